"""One pair in every format; folders, compressed files, and what CSV and TSV files look like."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from opera.core.errors import DataError
from opera.data import load_data

TABLE = pa.table({"question": ["one", "two"], "answer": ["a", "b"]})
CSV = b"question,answer\none,a\ntwo,b\n"
JSON = b'{"question": "one", "answer": "a"}\n\n{"question": "two", "answer": "b"}\n'


def stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)


def zst(path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as sink:
        sink.write(JSON)


def in_folder(path: Path) -> None:
    path.mkdir()
    (path / "train-00000.csv").write_bytes(CSV)
    (path / "test.csv").write_bytes(CSV)
    (path / ".hidden.csv").write_bytes(b"spoilt")
    (path / "README.md").write_bytes(b"about")


def saved(path: Path) -> None:
    datasets.Dataset(TABLE).save_to_disk(str(path))


def saved_splits(path: Path) -> None:
    part = datasets.Dataset(TABLE)
    datasets.DatasetDict(train=part, validation=part).save_to_disk(str(path))


FORMATS: dict[str, Callable[[Path], object]] = {
    "p.csv": lambda path: path.write_bytes(CSV),
    "windows.csv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n")),
    "old-mac.csv": lambda path: path.write_bytes(CSV.replace(b"\n", b"\r")),
    "excel.csv": lambda path: path.write_bytes(CSV.replace(b",", b";")),
    "pipes.csv": lambda path: path.write_bytes(CSV.replace(b",", b"|")),
    "p.tsv": lambda path: path.write_bytes(CSV.replace(b",", b"\t")),
    "p.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV)),
    "p.jsonl": lambda path: path.write_bytes(JSON),
    "p.ndjson": lambda path: path.write_bytes(JSON),
    "p.jsonl.zst": zst,
    "p.parquet": lambda path: pq.write_table(TABLE, path),
    "p.feather": lambda path: pa.feather.write_feather(TABLE, path),
    "p.arrow": stream,
    "folder": in_folder,
    "saved": saved,
    "saved-splits": saved_splits,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_holds_the_same(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name)
    data = load_data(tmp_path / name)
    assert data.queries.texts() == ["one", "two"]
    assert data.corpus.texts() == ["a", "b"]
    assert data.split("train").doc_rows.tolist() == [0, 1]
    assert set(data.splits) - {"train"} == {"folder": {"test"}, "saved-splits": {"dev"}}.get(name, set())


def test_kinds_of_ids(tmp_path: Path) -> None:
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        values = pa.array([7, 8]).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(["7", "8"]).cast(kind)
        pq.write_table(pa.table({"id": values, "text": ["x", "y"]}), tmp_path / "d.parquet")
        pq.write_table(pa.table({"query": ["a"], "doc_id": [8]}), tmp_path / "p.parquet")
        data = load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")
        assert data.corpus.ids() == ["7", "8"]
        assert data.split("train").doc_rows.tolist() == [1]


def test_kinds_of_grades(tmp_path: Path) -> None:
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.uint8()]
    for kind in [*kinds, pa.float16(), pa.bool_()]:
        table = {"query": ["a", "b"], "document": ["x", "y"], "label": pa.array(["0", "1"]).cast(kind)}
        pq.write_table(pa.table(table), tmp_path / "p.parquet", store_schema=True)
        assert load_data(tmp_path / "p.parquet").split("train").grades.tolist() == [0, 1], kind


def test_a_file_of_a_beir_folder(tmp_path: Path) -> None:
    lines(tmp_path / "corpus.jsonl", {"_id": "d", "title": "", "text": "x"})
    with pytest.raises(
        DataError, match=r"corpus\.jsonl: holds texts and no pairs, as in a BEIR folder; give the folder"
    ):
        load_data(tmp_path / "corpus.jsonl")


def test_columns_by_number_where_there_is_no_header(tmp_path: Path) -> None:
    for name, text in (("p.csv", "what?,that\nwho?,he\n"), ("p.tsv", "what?\tthat\nwho?\the\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=r"'what\?', 'that'; .*no header: --columns query=1,document=2$"):
            load_data(tmp_path / name)
        data = load_data(tmp_path / name, columns={"query": "1", "document": "2"})
        assert data.queries.texts() == ["what?", "who?"]


def test_a_renamed_folder_is_read_anew(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "part.csv").write_bytes(CSV)
    before = load_data(tmp_path)
    (tmp_path / "test").rename(tmp_path / "dev")
    after = load_data(tmp_path)
    assert (set(before.splits), set(after.splits)) == ({"train", "test"}, {"train", "dev"})
    assert before.fingerprint != after.fingerprint


def test_several_files_have_the_splits_of_their_names(tmp_path: Path) -> None:
    for name in ("train.csv", "test.csv", "clicks.csv"):
        (tmp_path / name).write_bytes(CSV)
    data = load_data(pairs=[tmp_path / name for name in ("train.csv", "test.csv", "clicks.csv")])
    assert list(data.splits) == ["train", "test"]
    assert data.notes[0] == "splits by the names of files: train.csv is train, test.csv is test"
    assert list(load_data(pairs=tmp_path / "test.csv").splits) == ["train"]
    assert list(load_data(pairs={"dev": tmp_path / "test.csv"}).splits) == ["dev"]


def test_notes_hold_no_folder(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.csv").write_bytes(CSV)
        assert load_data(tmp_path / folder / "p.csv").notes == (
            "p.csv: read 'question' as query, 'answer' as document",
        )


def lines(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def late(path: Path, more: dict[str, object]) -> Path:
    """A file of JSON Lines of which only the last has more than a query and a document."""
    plain = [{"query": f"q{row}", "document": f"d{row}"} for row in range(5)]
    return lines(path, *plain[:-1], {**plain[-1], **more})


def test_columns_that_first_appear_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.data.tables.rows.BATCH_ROWS", 2)
    data = load_data(late(tmp_path / "p.jsonl", {"title": "named", "negatives": ["d0", "d1"]}))
    assert data.split("train").doc_rows.tolist() == list(range(5))
    assert data.corpus.texts([0, 4]) == ["d0", "named d4"]
    assert data.given_negatives is not None
    assert data.given_negatives.doc_rows.tolist() == [0, 1]
    assert data.given_negatives.offsets.tolist() == [0] * 5 + [2]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"label": 0}, "column 'label' is missing"),
        ({"clicks": 3}, "column 'clicks' is missing"),
        ({"split": "test"}, "column 'split' must be train, dev or test, got ''"),
        ({"question": "q"}, "'query' and 'question' could each be the query"),
    ],
)
def test_what_the_first_rows_lack_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, object], problem: str
) -> None:
    monkeypatch.setattr("opera.data.tables.rows.BATCH_ROWS", 2)
    with pytest.raises(DataError, match=rf"p\.jsonl(:1)?: {problem}"):
        load_data(late(tmp_path / "p.jsonl", more))


def test_the_batch_does_not_say_what_a_column_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.data.tables.rows.BATCH_ROWS", 2)
    pair = {"query": "q", "document": "d"}
    with pytest.raises(DataError, match=r"p\.jsonl:1: column 'label' holds one value, and a list on line 4; write one"):
        load_data(lines(tmp_path / "p.jsonl", *[{**pair, "label": 0}] * 3, {**pair, "label": [1, 2]}))
    with pytest.raises(DataError, match=r"p\.jsonl:3: column 'label' must not mix true and false with other values"):
        load_data(lines(tmp_path / "p.jsonl", *[{**pair, "label": 0}] * 2, {**pair, "label": True}))
    with pytest.raises(
        DataError, match=r"p\.jsonl:4: column 'negative' must hold texts or whole numbers, but holds bool"
    ):
        load_data(lines(tmp_path / "p.jsonl", *[pair] * 3, {**pair, "negative": True}))
    with pytest.raises(DataError, match=r"p\.jsonl:4: column 'document' must not be empty; fill it or remove the row$"):
        load_data(lines(tmp_path / "p.jsonl", *[{**pair, "document": ["d"]}] * 3, {"query": "q"}))
    data = load_data(
        lines(
            tmp_path / "p.jsonl",
            {**pair, "label": True},
            {**pair, "document": "e", "label": False},
            pair | {"label": True},
        )
    )
    assert data.split("train").grades.tolist() == [1, 0]


@pytest.mark.parametrize(("kind", "end"), [(pa.float16(), 2**11), (pa.float32(), 2**24), (pa.float64(), 2**53)])
def test_ids_that_a_float_may_have_rounded(tmp_path: Path, kind: pa.DataType, end: int) -> None:
    pq.write_table(pa.table({"query": ["a"], "doc_id": [str(end - 1)]}), tmp_path / "p.parquet")
    for last in (end - 1, end):
        ids = pa.array(np.array([1, last], dtype=kind.to_pandas_dtype()))
        pq.write_table(pa.table({"id": ids, "text": ["x", "y"]}), tmp_path / "d.parquet")
        if last < end:
            assert load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet").corpus.ids()[1] == str(
                last
            )
    with pytest.raises(
        DataError, match=rf"row 2: column 'id' must be .*numbers apart below {end:,} only: store them as"
    ):
        load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")


def test_lists_with_something_behind_a_null(tmp_path: Path) -> None:
    negatives = pa.ListArray.from_arrays(
        [0, 1, 2, 3], pa.array(["x", "hidden", "z"]), mask=pa.array([False, True, False])
    )
    table = pa.table({"query": ["a", "b", "c"], "document": ["d", "e", "f"], "negatives": negatives})
    with pa.OSFile(str(tmp_path / "p.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = load_data(tmp_path / "p.arrow")
    assert data.given_negatives is not None
    assert data.given_negatives.offsets.tolist() == [0, 1, 1, 2]
    assert data.corpus.texts(data.given_negatives.doc_rows) == ["x", "z"]


def test_a_file_without_a_split_beside_those_with_one_is_noted(tmp_path: Path) -> None:
    for name in ("train.csv", "my-test.csv", "eval.csv"):
        (tmp_path / name).write_bytes(CSV)
    data = load_data(tmp_path)
    assert data.splits.keys() == {"train"}
    assert data.notes[0] == (
        "eval.csv, my-test.csv: no split begins the name, as in test.csv; train, unless a column says otherwise"
    )


@pytest.mark.parametrize(
    ("name", "again"),
    [("p.csv", "question,answer"), ("p.tsv", "answer,question"), ("p.csv.gz", "\ufeffquestion,answer")],
)
def test_a_header_in_the_middle_is_no_pair(tmp_path: Path, name: str, again: str) -> None:
    text = f"question,answer\none,a\n{again}\ntwo,b\n".replace(",", "\t" if name == "p.tsv" else ",").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(DataError, match=r"p\.[a-z.]+:3: is a header again .*, as where files were joined; remove it"):
        load_data(tmp_path / name)


def test_a_stream_that_was_cut_between_two_batches_is_refused(tmp_path: Path) -> None:
    """Arrow takes what is left for the whole."""
    file = tmp_path / "p.arrow"
    stream(file)
    file.write_bytes(file.read_bytes()[:-8])
    with pa.ipc.open_stream(file.read_bytes()) as opened:
        assert opened.read_all() == TABLE
    with pytest.raises(DataError, match=r"p\.arrow: cannot be read \(it was cut off: the mark at the end"):
        load_data(file)
