"""``load_data``: which source reads what."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opera.core.errors import DataError, InputError
from opera.data import RetrievalData, load_data, register_source, sources
from opera.data.files_read import load_stored

MakeBeir = Callable[..., Path]


def test_a_folder_that_may_not_be_entered(make_beir: MakeBeir, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_beir()

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def look_up(path: Any, *more: Any, **options: Any) -> Any:
            if not isinstance(path, int) and Path(path).parent == folder:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return call(path, *more, **options)

        return look_up

    for name in ("stat", "lstat"):  # root may enter any
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    with pytest.raises(DataError, match=r"corpus\.jsonl: cannot be read \(Permission denied\)"):
        load_data(folder)


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


def test_what_is_no_data_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.jsonl")
    (tmp_path / "loop").symlink_to("loop")
    for source, problem in {
        "": "data: must not be empty",
        str(tmp_path / "train.jsonl"): "is a named pipe; pass a BEIR folder",
        str(tmp_path / "loop"): "its links lead in a circle",
        str(tmp_path / ("a" * 300)): "the name is too long",
        "/dev/zero": "is a device; pass",
    }.items():
        with pytest.raises(InputError, match=problem):
            load_data(source)


def test_the_example_comes_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    data = load_stored("example:faq")  # as a command loads what a run names
    assert (data.name, data.source) == ("faq", "example:faq")
    assert (len(data.queries), len(data.corpus), data.counts()["train_pairs"]) == (300, 66, 300)
    assert "".join([*data.queries.texts(), *data.corpus.texts()]).isascii()
