"""Errors of a disk are one sentence that names the place and says what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from opera.core.errors import StorageError
from opera.core.files import replace_file
from opera.core.storage import writing


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC, errno.EACCES])
def test_the_file_is_named_and_not_its_temporary_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(temporary: Path) -> None:
        raise OSError(number, os.strerror(number), str(temporary))

    with pytest.raises(StorageError, match=r"^pairs\.tsv: cannot be written: "):
        replace_file(Path("pairs.tsv"), fail)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_libraries_count_and_those_of_other_files_pass() -> None:
    error = SafetensorError("I/O error: No space left on device (os error 28)")
    with pytest.raises(StorageError, match=r"^run: cannot be written: i/o error: no space left"), writing(Path("run")):
        raise error
    with pytest.raises(FileNotFoundError), writing(Path("run")):
        raise FileNotFoundError(errno.ENOENT, "no such file", "data/corpus.jsonl")
