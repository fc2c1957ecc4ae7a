"""One pair in every format; folders, compressed files, and what CSV and TSV files look like."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import datasets
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


def test_a_table_of_ids_that_are_no_ids(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1.5], "text": ["x"]}), tmp_path / "d.parquet")
    pq.write_table(pa.table({"query": ["a"], "doc_id": [8]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"d\.parquet, row 1: column 'id' must be a text or a whole number, got 1\.5$"):
        load_data(pairs=tmp_path / "p.parquet", documents=tmp_path / "d.parquet")


def test_columns_by_number_where_there_is_no_header(tmp_path: Path) -> None:
    for name, text in (("p.csv", "what?,that\nwho?,he\n"), ("p.tsv", "what?\tthat\nwho?\the\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(DataError, match=r"'what\?', 'that'; .*no header: --columns query=1,document=2$"):
            load_data(tmp_path / name)
        data = load_data(tmp_path / name, columns={"query": "1", "document": "2"})
        assert data.queries.texts() == ["what?", "who?"]


def test_a_batch_ends_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.data.tables.readers.BATCH_ROWS", 2)
    monkeypatch.setattr("opera.data.tables.sides.AT_ONCE", 2)
    rows = [(f"q{row % 3}", f"d{row % 4}") for row in range(7)]
    (tmp_path / "p.csv").write_text("query,document\n" + "".join(f"{query},{doc}\n" for query, doc in rows))
    data = load_data(tmp_path / "p.csv")
    assert data.queries.texts() == ["q0", "q1", "q2"]
    assert data.corpus.texts() == ["d0", "d1", "d2", "d3"]
    assert len(data.split("train").doc_rows) == 7
    (tmp_path / "d.csv").write_text("id,text\n" + "".join(f"d{row},text {row}\n" for row in range(4)))
    by_id = load_data(pairs=tmp_path / "p.csv", documents=tmp_path / "d.csv")
    assert by_id.split("train").doc_rows.tolist() == data.split("train").doc_rows.tolist()


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
