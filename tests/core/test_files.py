"""Outputs: whole or not at all, as the umask says, and never over what must not be lost."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from opera.core import files
from opera.core.errors import RunFolderError, SettingError, StorageError
from opera.core.files import (
    check_folder,
    check_output,
    check_reads_stay,
    outdated,
    replace_file,
    replace_folder,
    strangers,
    unfinished,
)


def writes(**contents: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, text in contents.items():
            (folder / name).write_text(text)

    return write


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def full(path: Path) -> None:
    (path / "half" if path.is_dir() else path).write_text("half")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_written_honours_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "x", lambda temporary: temporary.write_text("x"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [mode]


def test_an_output_is_complete_or_as_it_was(tmp_path: Path) -> None:
    """A full disk changes nothing, and what a killed process left is taken over."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    for text in ("1", "2"):
        replace_file(file, lambda temporary, text=text: temporary.write_text(text))  # type: ignore[misc]
        replace_folder(folder, writes(**{f"a{text}": text}))
        for replace, path in ((replace_file, file), (replace_folder, folder)):
            with pytest.raises(StorageError, match=f"^{path}: cannot be written: no space left.*; free some space"):
                replace(path, full)  # type: ignore[operator]
        assert (file.read_text(), texts(folder)) == (text, {f"a{text}": text})
        assert set(tmp_path.iterdir()) == {file, folder}
        unfinished(file).write_text("longer than what comes")
        for leftover in (unfinished(folder), outdated(folder)):
            leftover.mkdir()
            (leftover / "half").touch()


def test_a_link_to_a_folder_stays_one_and_no_temporary_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to("elsewhere")
    replace_folder(tmp_path / "linked", writes(a="1"))
    assert (tmp_path / "linked").is_symlink()
    assert texts(tmp_path / "elsewhere") == {"a": "1"}
    unfinished(tmp_path / "out").symlink_to("elsewhere")
    with pytest.raises(StorageError, match="cannot be written"):
        replace_file(tmp_path / "out", lambda temporary: temporary.write_text("1"))
    with pytest.raises(StorageError, match="cannot be written"):
        replace_folder(tmp_path / "out", writes(a="2"))
    assert texts(tmp_path / "elsewhere") == {"a": "1"}


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("first")
        with pytest.raises(RunFolderError, match="another process is writing it"):
            replace_file(tmp_path / "x", lambda other: other.write_text("second"))

    replace_file(tmp_path / "x", write)
    assert texts(tmp_path) == {"x": "first"}


def test_files_of_others_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("1_Pooling/config.json", "config.json", ".git/config", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "model.json").symlink_to("config.json")
    expected = [tmp_path / name for name in (".git/config", "model.json", "notes.txt")]
    assert strangers(tmp_path, ["*.json"]) == expected
    assert strangers(tmp_path / "absent", ["*.json"]) == []


def test_a_file_that_the_command_reads_is_never_replaced(tmp_path: Path) -> None:
    read = tmp_path / "data"
    read.mkdir()
    (read / "near.tsv").touch()
    (tmp_path / "linked").symlink_to(read)
    for path in (read / "near.tsv", tmp_path / "linked" / "near.tsv"):
        for overwrite in (False, True):
            with pytest.raises(SettingError, match="is read by this command; pass another file"):
                check_output(path, "--out", [".tsv"], overwrite=overwrite, reads=[read])


def test_other_files_are_replaced_with_overwrite_only(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    check_output(out, "--out", [".tsv"], overwrite=False, reads=[tmp_path / "absent"])
    out.write_text("x")
    with pytest.raises(SettingError, match=r"out\.tsv: exists; pass --overwrite to replace it, or another file"):
        check_output(out, "--out", [".tsv"], overwrite=False)
    check_output(out, "--out", [".tsv"], overwrite=True)
    check_output(out, "--out", [".tsv"], overwrite=False, ours=lambda file: file == out)


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> int:  # root may write anywhere
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "TemporaryFile", refuse)
    with pytest.raises(SettingError, match=r"its folder cannot be written to \(Permission denied\)$"):
        check_output(Path("x.tsv"), "--out", [".tsv"], overwrite=False)
    with pytest.raises(RunFolderError, match=r"^--out a/b: \. cannot be written to \(Permission denied\)$"):
        check_folder(Path("a/b"), "--out")


def test_nothing_is_removed_that_is_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    removed = [run / "run.json", run / "model"]
    (run / "model").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("run/model")
    for read in (run, run / "model", tmp_path / "linked", run / "run.json"):
        with pytest.raises(RunFolderError, match=r"--overwrite would delete .*, which this command reads"):
            check_reads_stay(run, "--out", [read], removed)
    check_reads_stay(run, "--out", [tmp_path, run / "mine.yaml", Path("minilm")], removed)


def test_a_file_in_an_absent_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory"):
        replace_file(tmp_path / "absent" / "x", lambda temporary: temporary.write_text("x"))
