"""Errors of the machine: what is said of a limit, of open files, and which place is named."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from opera.core.errors import StorageError
from opera.core.files import replace_file
from opera.core.reading import open_file
from opera.core.storage import FAILED_WRITING, writing
from opera.data import load_data


@pytest.mark.parametrize("words", FAILED_WRITING)
def test_a_failure_without_a_number_names_the_limit_on_files(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    with (
        pytest.raises(StorageError, match=r"^run: cannot be written: no space left on device; free"),
        writing(Path("run")),
    ):
        raise RuntimeError(words)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (20480, 20480))
    with pytest.raises(StorageError, match=r"more than the 20,480 bytes .* \(ulimit -f\)"), writing(Path("run")):
        raise RuntimeError(words)


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC])
def test_the_file_is_named_and_not_its_temporary_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(temporary: Path) -> None:
        raise OSError(number, os.strerror(number), str(temporary))

    with pytest.raises(StorageError, match=r"^pairs\.tsv: cannot be written: "):
        replace_file(Path("pairs.tsv"), fail)
    assert list(tmp_path.iterdir()) == []


def test_too_many_open_files_are_no_fault_of_the_data(beir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object, *rest: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        StorageError, match=r"cannot be read: too many open files; raise the limit on open files \(ulimit"
    ):
        open_file(beir / "corpus.jsonl")
    with pytest.raises(StorageError, match="too many open files"):
        load_data(beir)
