"""BEIR folders: what is read, and how errors are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import DataError
from opera.data import load_data
from text_files import edit_line

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


def test_repeated_rows_merge_and_contradictions_are_refused(make_beir: MakeBeir) -> None:
    folder = make_beir()
    path = folder / "qrels" / "train.tsv"
    first = path.read_text().splitlines()[1]
    count = len(load_data(folder).split("train").doc_rows)
    path.write_text(path.read_text() + first + "\n")
    merged = load_data(folder)
    assert len(merged.split("train").doc_rows) == count
    assert merged.notes == ("train: merged 1 repeated pairs",)
    path.write_text(path.read_text() + first[:-1] + "9\n")
    with pytest.raises(DataError, match=r"grade 9 for a pair that .*:\d+ gives"):
        load_data(folder)


def test_bytes_that_are_not_utf8_are_found(make_beir: MakeBeir) -> None:
    folder = make_beir()
    lines = (folder / "corpus.jsonl").read_bytes().split(b"\n")
    lines[41] = b'{"_id": "d41", "text": "caf\xe9"}'
    (folder / "corpus.jsonl").write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"corpus\.jsonl:42: not UTF-8"):
        load_data(folder)


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


def test_files_that_macos_and_editors_leave_are_noted(make_beir: MakeBeir) -> None:
    folder = make_beir()
    (folder / "qrels" / "._train.tsv").write_bytes(b"\0\5\x16\7")
    (folder / "qrels" / "train.tsv~").write_text("old")
    data = load_data(folder)
    assert set(data.splits) == {"train", "test"}
    assert data.notes == ("in qrels/ only .tsv files that are not hidden are read, not '._train.tsv', 'train.tsv~'",)


def test_splits_have_the_names_that_tables_give_them(make_beir: MakeBeir) -> None:
    folder = make_beir()
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "TEST.tsv")
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "val.tsv")
    assert set(load_data(folder).splits) == {"dev", "test"}
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\ntrain0\td0\t1\n")
    with pytest.raises(DataError, match=r"val\.tsv: names the same split as dev\.tsv; keep one of the two"):
        load_data(folder)


def test_metadata_may_hold_any_json(make_beir: MakeBeir) -> None:
    folder = make_beir()
    edit_line(folder / "corpus.jsonl", 1, '{"_id": "d0", "text": "x", "metadata": [1, {"a": [null]}, 1e9]}')
    edit_line(folder / "corpus.jsonl", 2, '{"_id": "d1", "text": "x", "metadata": "none", "title": null}')
    assert load_data(folder).corpus.texts(slice(0, 2)) == ["x", "x"]


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
