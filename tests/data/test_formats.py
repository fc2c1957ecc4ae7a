"""What single formats can hold or spoil: types of columns, folders of ``datasets``, streams that were cut off."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opera.core.errors import DataError
from opera.data import load_data
from opera.data.table_files import TableSource

TABLE = pa.table({"question": ["one", "two"], "answer": ["a", "b"]})
PAIR = {"query": "q", "document": "d"}


def lines(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("several", [False, True])
def test_folders_that_datasets_saved(several: bool, tmp_path: Path) -> None:
    part = datasets.Dataset(TABLE)
    saved = datasets.DatasetDict(train=part, validation=part) if several else part
    saved.save_to_disk(str(tmp_path / "saved"))
    data = load_data(tmp_path / "saved")
    assert (data.queries.texts(), data.corpus.texts()) == (["one", "two"], ["a", "b"])
    assert set(data.splits) == ({"train", "dev"} if several else {"train"})


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.large_string(), pa.string_view()])
def test_kinds_of_ids(kind: pa.DataType, tmp_path: Path) -> None:
    ids = pa.array(["7", "8"]).cast(kind) if "string" in str(kind) else pa.array([7, 8]).cast(kind)
    pq.write_table(pa.table({"id": ids, "text": ["x", "y"]}), tmp_path / "d.parquet")
    pq.write_table(pa.table({"query": ["a"], "doc_id": [8]}), tmp_path / "p.parquet")
    data = load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")
    assert (data.corpus.ids(), data.split("train").doc_rows.tolist()) == (["7", "8"], [1])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.float16(), pa.bool_()])
def test_kinds_of_grades(kind: pa.DataType, tmp_path: Path) -> None:
    table = {"query": ["a", "b"], "document": ["x", "y"], "label": pa.array(["0", "1"]).cast(kind)}
    pq.write_table(pa.table(table), tmp_path / "p.parquet", store_schema=True)
    assert load_data(tmp_path / "p.parquet").split("train").grades.tolist() == [0, 1]


@pytest.mark.parametrize(("kind", "end"), [(pa.float16(), 2**11), (pa.float32(), 2**24), (pa.float64(), 2**53)])
def test_ids_that_a_float_may_have_rounded(tmp_path: Path, kind: pa.DataType, end: int) -> None:
    pq.write_table(pa.table({"query": ["a"], "doc_id": [str(end - 1)]}), tmp_path / "p.parquet")
    ids = pa.array(np.array([1, end], dtype=kind.to_pandas_dtype()))
    pq.write_table(pa.table({"id": ids, "text": ["x", "y"]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=rf"row 2: column 'id' must be .*is exact only below {end:,}: store"):
        load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"label": 0}, ":1: column 'label' is missing"),
        ({"split": "test"}, ":1: column 'split' must be train, dev or test, got ''"),
        ({"negative": True}, ":5: column 'negative' must contain texts or whole numbers, but its type is bool"),
        (
            {"document": ["d"], "query": ["d"]},
            ":1: column 'query' must contain texts or whole numbers, but its type is list",
        ),
        ({"document": []}, ":5: column 'document' must not be empty; fill it or remove the row"),
    ],
)
def test_what_the_last_row_changes_is_said(tmp_path: Path, more: dict[str, object], problem: str) -> None:
    rows = [{"query": f"q{row}", "document": f"d{row}"} for row in range(5)]
    with pytest.raises(DataError, match=rf"p\.jsonl{problem}"):
        load_data(lines(tmp_path / "p.jsonl", *rows[:-1], {**rows[-1], **more}))


def test_lists_with_something_behind_a_null(tmp_path: Path) -> None:
    mask = pa.array([False, True, False])
    negatives = pa.ListArray.from_arrays([0, 1, 2, 3], pa.array(["x", "hidden", "z"]), mask=mask)
    table = pa.table({"query": ["a", "b", "c"], "document": ["d", "e", "f"], "negatives": negatives})
    with pa.OSFile(str(tmp_path / "p.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = load_data(tmp_path / "p.arrow")
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 1, 1, 2]
    assert data.corpus.texts(data.given_negatives.doc_rows) == ["x", "z"]


def test_a_renamed_folder_is_read_anew(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "part.csv").write_text("query,document\na,b\n")
    before = load_data(tmp_path)
    (tmp_path / "test").rename(tmp_path / "dev")
    after = load_data(tmp_path)
    assert (set(before.splits), set(after.splits)) == ({"train", "test"}, {"train", "dev"})
    assert before.fingerprint != after.fingerprint


def test_the_source_leads_back_to_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a & b.csv").write_text("an id,words\n1,one\n")
    (tmp_path / "p.csv").write_text("query,document\nx,1\n")
    data = load_data(pairs={"test": "p.csv"}, documents="a & b.csv", columns={"id": "an id", "text": "words"})
    assert data.source == ("tables:documents=a%20%26%20b.csv&pairs.test=p.csv&columns.id=an%20id&columns.text=words")
    assert load_data(data.source).fingerprint == data.fingerprint
    tables = TableSource.of({"train": "/home/me/clicks.csv"}, "/home/me/docs", columns="query=q")
    assert tables.options() == ["--documents", "docs", "--pairs", "train=clicks.csv", "--columns", "query=q"]


def test_a_file_of_a_beir_folder_is_no_table_of_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.jsonl: has texts but no pairs, like a file of a BEIR folder; pass"):
        load_data(lines(tmp_path / "c.jsonl", {"_id": "d", "title": "", "text": "x"}))


@pytest.mark.parametrize("row", ['q two, "d two"', ' "q two",d two', 'q two,said "two" ,'])
def test_spaces_beside_quotation_marks_are_kept_whatever_reads_the_file(tmp_path: Path, row: str) -> None:
    """RFC 4180 has no spaces around quoted fields; DuckDB alone would drop spaces and quotation marks."""
    text = f"query,document\nq one,d one\n{row.rstrip(',')}\n"
    (tmp_path / "fast.csv").write_text(text)
    (tmp_path / "slow.csv").write_text(text + ",\n")  # a row that breaks a rule is read line by line
    fast = load_data(tmp_path / "fast.csv")
    slow = load_data(tmp_path / "slow.csv", skip_bad_rows=True)
    for table in ("queries", "corpus"):
        assert getattr(fast, table).texts(slice(0, 2)) == getattr(slow, table).texts(slice(0, 2))
