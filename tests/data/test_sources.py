"""``load_data``: which source reads what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opera.data import RetrievalData, load_data, register_source, sources
from opera.data.files_read import load_stored

MakeBeir = Callable[..., Path]


def test_a_registered_source_comes_before_those_known(beir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCES", list(sources.SOURCES))
    known = load_data(beir)

    @register_source
    class Renamed:
        description = "the topics"

        def matches(self, source: str) -> bool:
            return source == str(beir)

        def load(self, source: str) -> RetrievalData:
            return RetrievalData.from_dicts("renamed", corpus={}, queries={}, qrels={})

    assert load_data(beir).name == "renamed"
    assert load_data(f"{beir}/").fingerprint == known.fingerprint


def test_the_example_comes_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    data = load_stored("example:faq")  # as a command loads what a run names
    assert (data.name, data.source) == ("faq", "example:faq")
    assert (len(data.queries), len(data.corpus), data.counts()["train_pairs"]) == (300, 66, 300)
    assert "".join([*data.queries.texts(), *data.corpus.texts()]).isascii()
