"""``irds:`` and ``paper:``: the library's own loading code on small files laid out as its sources are."""

import socket
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from opera.data import load_data
from opera.data.irds_source import find_splits
from opera.data.retrieval_data import with_relevant_grade
from opera_paper.catalogue import PAPER_SETS
from tiny_world import judged


@pytest.fixture
def offline(monkeypatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("the network must not be used")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")


@pytest.mark.usefixtures("irds", "offline")
@pytest.mark.parametrize("name", ["nfcorpus", "fiqa", "hotpotqa", "fever"])
def test_the_papers_sets_of_beir_have_three_splits(name):
    data = load_data(f"paper:{name}")
    assert list(data.splits) == ["train", "dev", "test"]
    assert data.corpus.ids() == ["MED-1", "MED-2", "MED-3"]
    title = "" if name == "fiqa" else "Title one "  # the library leaves FiQA's titles out: all are empty
    assert data.corpus.texts(slice(0, 1)) == [f"{title}first text"]
    assert judged(data, "dev") == [("PLAIN-dev", "MED-1", 1), ("PLAIN-dev", "MED-2", 2)]
    assert data.notes[0] == "left out 3 judgements of missing documents, such as 'MED-9'"
    assert (data.name, data.source) == (name, f"paper:{name}")


@pytest.mark.usefixtures("irds", "offline")
@pytest.mark.parametrize(
    ("name", "document", "queries", "judgements"),
    [
        ("tripclick-head", "Title 1 abstract 1", ["a head train query", "a head val query"],
         [("test:7", "1", 1), ("test:7", "2", 0), ("test:7", "3", 1)]),
        ("tripclick-torso", "Title 1 abstract 1", ["a torso train query", "a torso val query"],
         [("test:7", "1", 1), ("test:7", "2", 0), ("test:7", "3", 1)]),
        pytest.param("triviaqa", 'Title 1 "passage 1"', ["which train?", "which dev?"],
                     [("test:0", "1", 1), ("test:0", "2", 2), ("test:0", "3", 0), ("test:0", "4", -1)],
                     marks=pytest.mark.skipif(find_spec("ijson") is None, reason="ijson reads DPR's files")),
    ],
)  # fmt: skip
def test_sets_whose_test_split_is_called_otherwise(name, document, queries, judgements):
    data = load_data(f"paper:{name}")
    assert data.corpus.texts(slice(0, 1)) == [document]
    assert data.queries.texts() == queries
    assert judged(data, "test") == judgements


@pytest.mark.usefixtures("irds", "offline")
def test_antique_keeps_its_levels():
    data = load_data("paper:antique")
    assert judged(data, "train") == [("3", "1_0", 4), ("3", "1_1", 3), ("3", "2_0", 2)]
    assert with_relevant_grade(data, PAPER_SETS["antique"].relevant_grade).counts()["test_pairs"] == 2


@pytest.mark.usefixtures("irds", "offline")
def test_an_id_with_judgements_is_the_only_split():
    assert find_splits("antique/train") == {"train": "antique/train"}
    assert find_splits("beir/scidocs") == {"test": "beir/scidocs"}
    assert find_splits("msmarco-passage/trec-dl-2019/judged") == {"test": "msmarco-passage/trec-dl-2019/judged"}


@pytest.mark.usefixtures("irds", "offline")
def test_what_is_parsed_needs_neither_files_nor_the_library(monkeypatch):
    first = load_data("paper:fever")
    assert load_data("irds:beir/fever").fingerprint == first.fingerprint
    assert load_data("paper:hotpotqa").fingerprint != load_data("paper:fiqa").fingerprint
    monkeypatch.setitem(sys.modules, "ir_datasets", None)  # importing it fails
    again = load_data("paper:fever")
    assert again.corpus.table == first.corpus.table
