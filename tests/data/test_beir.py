"""BEIR folders: what is read, and how errors are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import load_data

MakeBeir = Callable[..., Path]


def test_reads_texts_and_judgements(beir: Path) -> None:
    data = load_data(beir)
    assert len(data.corpus) == 120
    assert set(data.splits) == {"train", "test"}
    first = json.loads((beir / "corpus.jsonl").read_text().splitlines()[0])
    assert data.corpus.texts(np.array([0])) == [f"common0 {first['text']}"]
    assert data.corpus.texts(np.array([0]), "text") == [first["text"]]
    qrels = data.split("train")
    written = {tuple(line.split("\t")) for line in (beir / "qrels" / "train.tsv").read_text().splitlines()[1:]}
    queries, docs = data.queries.ids(), data.corpus.ids()
    read = {
        (queries[qrels.query_rows[q]], docs[d], str(g))
        for q, d, g in zip(qrels.query_index, qrels.doc_rows, qrels.grades, strict=True)
    }
    assert read == written


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
    (folder / "corpus.jsonl").write_bytes(f'{{"_id": "d0", "text": "x"}}{ending}caf'.encode() + b"\xe9")
    with pytest.raises(DataError, match=r"corpus\.jsonl:2: not UTF-8"):
        load_data(folder)


def test_splits_have_the_names_that_tables_give_them(make_beir: MakeBeir) -> None:
    folder = make_beir()
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "TEST.tsv")
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "val.tsv")
    assert set(load_data(folder).splits) == {"dev", "test"}
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\ntrain0\td0\t1\n")
    with pytest.raises(DataError, match=r"val\.tsv: names the same split as dev\.tsv; keep one of the two"):
        load_data(folder)


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
