"""``opera data``: the list of the paper's sets, fetching them, and what their counts are checked against."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import Opera
from opera.data import load_data
from opera.data.catalogue import PAPER_SETS, PaperSet, find_set


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("the network must not be used")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")


def found_counts(entry: PaperSet) -> dict[str, int]:
    return load_data(entry.source).with_relevant_grade(entry.relevant_grade).counts()


@pytest.fixture
def antique(irds: Path, monkeypatch: pytest.MonkeyPatch) -> PaperSet:
    """ANTIQUE as if the paper had counted the small files of the tests, but for its test pairs."""
    counts = {name: count for name, count in found_counts(find_set("antique")).items() if name in ENTRY_COUNTS}
    entry = replace(find_set("antique"), **counts | {"test_pairs": 9}, known_counts={"test_pairs": (2, "as is known")})
    monkeypatch.setitem(PAPER_SETS, "antique", entry)
    return entry


ENTRY_COUNTS = ("documents", "train_queries", "train_pairs", "test_queries", "test_pairs")


def test_the_list_has_all_sets_with_their_sizes(run_opera: Opera) -> None:
    done = run_opera("data")
    for entry in PAPER_SETS.values():
        assert f"{entry.documents:,}" in done.stdout
        assert entry.name in done.stdout
    assert "86.1 GB" in done.stdout
    assert done.returncode == 0
    records = json.loads(run_opera("data", "--json").stdout)
    assert [record["name"] for record in records] == list(PAPER_SETS)
    assert records[0]["counts"] == find_set("nfcorpus").table_counts
    assert records[4]["ir_datasets"] == {"train": "antique/train", "test": "antique/test"}


def test_a_known_difference_is_told_with_its_reason_and_equal_counts_too(
    run_opera: Opera, antique: PaperSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_opera("data", "get", "antique")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "paper:antique: 3 documents, 1 train query, 2 train pairs, 1 test query, 2 test pairs",
        "  note: the paper counts grades from 3 up as relevant: relevant_grade=3",
        "  antique has other counts than Table 8: test_pairs 2, there 9 (as is known).",
    ]
    assert {each["name"]: each["here"] for each in json.loads(run_opera("data", "--json").stdout)}["antique"]
    monkeypatch.setitem(PAPER_SETS, "antique", replace(antique, test_pairs=2))
    assert "  all counts are those of Table 8" in run_opera("data", "get", "antique").stdout


def test_an_unknown_difference_ends_with_status_1(run_opera: Opera, irds: Path) -> None:
    done = run_opera("data", "get", "nfcorpus", "antique", "--json")
    assert done.returncode == 1
    nfcorpus, antique = json.loads(done.stdout)
    assert nfcorpus["differs_from_table_8"][0] == {"name": "documents", "table": 3633, "found": 3, "reason": ""}
    assert antique["counts"]["test_pairs"] == 2
    lines = run_opera("data", "get", "nfcorpus").stdout.splitlines()
    assert any("documents 3, there 3,633" in line for line in lines)
    entry = Path(lines[-1].removeprefix("  no reason is known; are its files whole? They are read anew without "))
    assert (entry / "corpus.arrow").is_file()


def test_out_writes_a_beir_folder(run_opera: Opera, irds: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = run_opera("data", "get", "irds:antique/train", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert f"written to {tmp_path / 'out'}" in done.stdout
    written = load_data(tmp_path / "out")
    assert written.corpus.table == load_data("irds:antique/train").corpus.table
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_what_cannot_be_fetched_says_what_to_fetch(run_opera: Opera, irds: Path) -> None:
    done = run_opera("data", "get", "irds:beir/arguana")
    assert done.returncode == 2
    assert "arguana.zip as " in done.stderr.splitlines()[-1]
