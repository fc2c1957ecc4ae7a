"""BEIR folders: what is read, and how errors are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opera.data import load_data

MakeBeir = Callable[..., Path]


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_a_byte_order_mark_and_other_line_breaks_are_read(make_beir: MakeBeir, ending: str) -> None:
    folder = make_beir()
    plain = load_data(folder)
    for path in (*folder.glob("*.jsonl"), *folder.glob("qrels/*.tsv")):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", ending.encode()))
    data = load_data(folder)
    assert data.corpus.table == plain.corpus.table
    assert data.queries.table == plain.queries.table
    assert data.split("train").grades.tolist() == plain.split("train").grades.tolist()


def test_the_options_of_tables_hold_for_a_beir_folder(make_beir: MakeBeir) -> None:
    folder = make_beir()
    whole = load_data(folder).counts()
    (folder / "qrels" / "val.tsv").write_text("query-id\tcorpus-id\tvotes\ntrain0\td0\t3\nnobody\td0\t1\n")
    data = load_data(folder, skip_bad_rows=True, columns={"grade": "votes"})
    assert data.split("dev").grades.tolist() == [3]
    assert data.counts() == {**whole, "dev_queries": 1, "dev_pairs": 1}
    assert data.skipped is not None
    assert data.skipped["line"].to_pylist() == [3]
    assert load_data(data.source).fingerprint == data.fingerprint


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "train_queries", "train_pairs", "test_pairs"),
    [
        ("scifact", 809, 919, 339),
        ("entailmentbank", 1308, 5752, 1519),
    ],
)
def test_real_folders(shared: Path, name: str, train_queries: int, train_pairs: int, test_pairs: int) -> None:
    data = load_data(shared / "data" / name)
    counts = data.counts()
    assert (counts["train_queries"], counts["train_pairs"], counts["test_pairs"]) == (
        train_queries,
        train_pairs,
        test_pairs,
    )
