"""``irds:`` and ``paper:``: the library's own loading code on small files laid out as its sources are."""

from __future__ import annotations

import logging
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from opera.core.errors import DataError, MissingExtraError
from opera.data import RetrievalData, load_data
from opera.data.irds_source import find_splits
from opera_paper.catalogue import PAPER_SETS

BEIR = ["nfcorpus", "fiqa", "hotpotqa", "fever"]
needs_ijson = pytest.mark.skipif(find_spec("ijson") is None, reason="ijson, which reads DPR's files, is not installed")


def judged(data: RetrievalData, split: str) -> list[tuple[str, str, int]]:
    qrels = data.split(split)
    queries = data.queries.ids(qrels.query_rows[qrels.query_index])
    return list(zip(queries, data.corpus.ids(qrels.doc_rows), qrels.grades.tolist(), strict=True))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("the network must not be used")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")


@pytest.mark.usefixtures("irds", "offline")
class TestPaperSets:
    @pytest.mark.parametrize("name", BEIR)
    def test_beir(self, name: str) -> None:
        data = load_data(f"paper:{name}")
        assert list(data.splits) == ["train", "dev", "test"]
        assert data.corpus.ids() == ["MED-1", "MED-2", "MED-3"]
        title = "" if name == "fiqa" else "Title one "  # the library leaves FiQA's titles out: all are empty
        assert data.corpus.texts(slice(0, 1)) == [f"{title}first text"]
        assert judged(data, "dev") == [("PLAIN-dev", "MED-1", 1), ("PLAIN-dev", "MED-2", 2)]
        assert data.notes == (
            "left out 3 judgements of missing documents, such as 'MED-9'",
            "1 document without title and text, such as 'MED-3': ranked, but not used as negatives",
        )
        assert (data.name, data.source) == (name, f"paper:{name}")

    def test_antique_keeps_its_levels(self, caplog: pytest.LogCaptureFixture) -> None:
        data = load_data("paper:antique")
        assert judged(data, "train") == [("3", "1_0", 4), ("3", "1_1", 3), ("3", "2_0", 2)]
        assert data.with_relevant_grade(PAPER_SETS["antique"].relevant_grade).counts()["test_pairs"] == 2

    @pytest.mark.parametrize("part", ["head", "torso"])
    def test_tripclick_tests_on_val(self, part: str) -> None:
        data = load_data(f"paper:tripclick-{part}")
        assert data.corpus.texts(slice(0, 1)) == ["Title 1 abstract 1"]
        assert data.queries.texts() == [f"a {part} train query", f"a {part} val query"]
        assert judged(data, "test") == [("test:7", "1", 1), ("test:7", "2", 0), ("test:7", "3", 1)]

    @needs_ijson
    def test_triviaqa_tests_on_dev_whose_ids_are_numbers_again(self) -> None:
        data = load_data("paper:triviaqa")
        assert data.corpus.texts(slice(0, 1)) == ['Title 1 "passage 1"']  # DPR's own quotation marks
        assert data.queries.ids() == ["0", "test:0"]
        assert data.queries.texts() == ["which train?", "which dev?"]
        assert judged(data, "test") == [
            ("test:0", "1", 1),
            ("test:0", "2", 2),
            ("test:0", "3", 0),
            ("test:0", "4", -1),
        ]


@pytest.mark.usefixtures("irds", "offline")
def test_an_id_with_its_split_is_that_split() -> None:
    data = load_data("irds:antique/train")
    assert list(data.splits) == ["train"]
    assert data.name == "antique"
    assert find_splits("beir/nfcorpus") == {split: f"beir/nfcorpus/{split}" for split in ("train", "dev", "test")}
    assert find_splits("beir/scidocs") == {"test": "beir/scidocs"}
    assert find_splits("dpr-w100/trivia-qa") == {split: f"dpr-w100/trivia-qa/{split}" for split in ("train", "dev")}
    assert find_splits("msmarco-passage/trec-dl-2019/judged") == {"test": "msmarco-passage/trec-dl-2019/judged"}


@pytest.mark.usefixtures("irds", "offline")
def test_what_is_parsed_needs_neither_files_nor_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_data("paper:fever")
    assert load_data("irds:beir/fever").fingerprint == first.fingerprint
    assert load_data("paper:hotpotqa").fingerprint != load_data("paper:fiqa").fingerprint
    monkeypatch.setitem(sys.modules, "ir_datasets", None)  # importing it fails
    again = load_data("paper:fever")
    assert again.corpus.table == first.corpus.table


@pytest.mark.usefixtures("irds", "offline")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("irds:beir/nfcorpsu", r"^irds:beir/nfcorpsu: ir_datasets has no such data set; did you mean 'beir/nfcorpus"),
        ("irds:beir", r"^irds:beir: has no judgements itself; pass one of beir/"),
        ("irds:clueweb09/catb", r"^irds:clueweb09/catb: has no judgements itself; pass one of clueweb09/catb/trec-"),
        ("paper:msmarco", r"^paper:msmarco: no such data set.* \(known: nfcorpus, tripclick-head, "),
    ],
)
def test_unknown_ids(source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(source)


@pytest.mark.usefixtures("offline")
def test_what_cannot_be_read_is_said_with_the_page_that_says_where_it_is(irds: Path) -> None:
    damaged = irds / "beir" / "quora" / "source.zip"
    damaged.parent.mkdir()
    damaged.write_bytes(b"half an archive")
    page = f"https://ir-datasets.com/beir.html says which files to download into {irds}"
    for source, reason in (("beir/scifact", "ConnectionError: .*"), ("beir/quora", "BadZipFile: .*")):
        with pytest.raises(DataError, match=rf"^irds:{source}: cannot be read \({reason}\); {page}$"):
            load_data(f"irds:{source}")


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(
        MissingExtraError, match=r"^irds:vaswani: needs the package ir-datasets.*pip install 'ir-datasets\[ijson\]'"
    ):
        load_data("irds:vaswani")


def test_terms_of_use_are_shown_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    find_splits("antique/train")
    log = logging.getLogger("ir_datasets")
    assert [
        log.filter(logging.makeLogRecord({"msg": text})) is False for text in ("[starting] x", "Please agree to")
    ] == [
        True,
        False,
    ]
