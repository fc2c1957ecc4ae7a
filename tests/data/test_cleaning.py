"""``opera review RUN --clean``: the user's files without the wrong pairs, every other byte as it was."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opera.core.errors import DataError
from opera.data import Mixture, load_data
from opera.data.cleaning import write_clean_files
from opera.data.decisions import read_decisions
from opera.data.names import TableSource

CSV = (
    "agent;question;article;clicks\r\n"
    'Zoë;"how to; reset";"press the\r\nred button";3\r\n'
    "\r\n"
    "Bob;where is it;in the «manual»;1\r\n"
    'Eve;how to  print;"use ""ink""";0004\r\n'
    "Zoë;how to print;buy paper;2"
)
PAIRS = [
    ("how to; reset", "press the red button"), ("where is it", "in the «manual»"),
    ("how to print", 'use "ink"'), ("how to print", "buy paper"),
]  # fmt: skip


def clean(source: TableSource, decided: dict[tuple[str, str], str], tmp_path: Path, **options: Any) -> list[Path]:
    """Clean the files of a source by decisions about texts."""
    data = load_data(source)
    table = tmp_path / "decisions.csv"
    rows = [
        {"query_id": "?", "doc_id": "?", "query": query, "document": document, "decision": kind}
        for (query, document), kind in decided.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), table.with_suffix(".parquet"))
    decisions, _ = read_decisions(Mixture.of(data), [table.with_suffix(".parquet")])
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    options = {"with_missing": False, **options}
    files = write_clean_files(data, source, decisions, lambda paths: [out / path.name for path in paths], **options)
    return [file.path for file in files]


@pytest.mark.parametrize("encoding", [None, "cp1252", "utf-16"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_csv_file_loses_only_the_wrong_rows(encoding, mark, tmp_path):
    if encoding and mark:
        pytest.skip("the mark means UTF-8")
    file = tmp_path / "tickets.csv"
    file.write_bytes(mark + CSV.encode(encoding or "utf-8"))
    source = TableSource.of(file, columns="query=question,document=article", encoding=encoding)
    wrong = {PAIRS[0]: "wrong", PAIRS[3]: "wrong", PAIRS[1]: "correct"}
    (written,) = clean(source, wrong, tmp_path)
    lines = CSV.split("\r\n")
    expected = "\r\n".join([lines[0], *lines[3:6], ""])
    assert written.read_bytes() == mark + expected.encode(encoding or "utf-8")
    (unchanged,) = clean(source, {PAIRS[0]: "correct"}, tmp_path)
    assert unchanged.read_bytes() == file.read_bytes()


def test_missing_pairs_become_rows_of_the_same_format(tmp_path):
    file = tmp_path / "tickets.csv"
    file.write_text(CSV, encoding="utf-8", newline="")
    source = TableSource.of(file, columns="query=question,document=article")
    missing = {(PAIRS[1][0], PAIRS[0][1]): "missing", PAIRS[3]: "wrong"}
    (written,) = clean(source, missing, tmp_path, with_missing=True)
    added = written.read_bytes().decode().removeprefix("\r\n".join(CSV.split("\r\n")[:-1]) + "\r\n")
    assert added == ';where is it;"press the\r\nred button";2.5\r\n'
    assert load_data(pairs=written, columns="query=question,document=article").counts()["train_pairs"] == 4


def test_json_lines_and_parquet_keep_their_columns(tmp_path):
    rows = [{"note": [1, None], "query": query, "document": document} for query, document in PAIRS]
    lines = [json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(rows)]
    (tmp_path / "p.jsonl").write_text("".join(lines), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.parquet"):
        source, wrong = TableSource.of(tmp_path / name), {PAIRS[1]: "wrong", PAIRS[2]: "wrong"}
        (written,) = clean(source, wrong, tmp_path)
        if name == "p.jsonl":
            assert written.read_text(encoding="utf-8") == lines[0] + lines[3]
        else:
            assert pq.read_table(written).equals(pq.read_table(tmp_path / name).take([0, 3]))


def test_a_beir_folder_loses_judgements_and_a_row_of_several_documents_is_refused(make_beir, tmp_path):
    folder = make_beir()
    data = load_data(folder)
    split = data.split("train")
    query = data.queries.texts(split.query_rows[split.query_index[:1]])[0]
    document = data.corpus.texts(split.doc_rows[:1])[0]
    before = (folder / "qrels" / "train.tsv").read_text().splitlines()
    files = clean(TableSource.of(folder), {(query, document): "wrong"}, tmp_path)
    (train,) = [file for file in files if file.name == "train.tsv"]
    assert len(before) - len(train.read_text().splitlines()) == 1
    many = tmp_path / "many.jsonl"
    many.write_text('{"query": "a", "document": ["x", "y"]}\n{"query": "b", "document": ["z"]}\n')
    with pytest.raises(DataError, match=r"many\.jsonl:1: has 2 documents, and only 1 of them are wrong"):
        clean(TableSource.of(many), {("a", "x"): "wrong"}, tmp_path)
    (written,) = clean(TableSource.of(many), {("a", "x"): "wrong", ("a", "y"): "wrong"}, tmp_path)
    assert written.read_text() == '{"query": "b", "document": ["z"]}\n'
