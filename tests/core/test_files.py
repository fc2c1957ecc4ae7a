"""Outputs: whole or not at all, as the umask says, and never over what must not be lost."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from opera.core import files
from opera.core.errors import RunFolderError, SettingError, StorageError
from opera.core.files import (
    LIST_FILE,
    check_folder,
    check_output,
    check_reads_stay,
    replace_file,
    replace_folder,
    unfinished,
    written_files,
)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_written_honours_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        replace_file(tmp_path / ("x" * 255), lambda temporary: temporary.write_text("x"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [mode]


@pytest.fixture
def read(tmp_path: Path) -> Path:
    """A folder that the command reads, with a file behind a linked folder."""
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.tsv").write_text("far")
    (tmp_path / "data" / "near.tsv").write_text("near")
    (tmp_path / "data" / "inner" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "data")  # a circle of folders ends all the same
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["data/near.tsv", "elsewhere/far.tsv", "soft.tsv", "hard.tsv"])
def test_a_file_that_the_command_reads_is_never_replaced_by_whatever_name(
    tmp_path: Path, read: Path, name: str
) -> None:
    (tmp_path / "soft.tsv").symlink_to(read / "near.tsv")
    (tmp_path / "hard.tsv").hardlink_to(read / "near.tsv")
    for overwrite in (False, True):
        with pytest.raises(SettingError, match="which this command reads; pass another file"):
            check_output(tmp_path / name, "--out", [".tsv"], overwrite=overwrite, reads=[read])


def test_other_files_are_replaced_with_overwrite_only(tmp_path: Path, read: Path) -> None:
    out = tmp_path / "out.tsv"
    check_output(out, "--out", [".tsv"], overwrite=False, reads=[read, tmp_path / "absent"])
    out.write_text("same text, another file")
    with pytest.raises(SettingError, match=r"out\.tsv: exists; pass --overwrite to replace it, or another file"):
        check_output(out, "--out", [".tsv"], overwrite=False, reads=[read])
    check_output(out, "--out", [".tsv"], overwrite=True, reads=[read])
    check_output(out, "--out", [".tsv"], overwrite=False, reads=[tmp_path], ours=lambda file: file == out)


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(**_: object) -> int:  # root may write anywhere
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(files, "TemporaryFile", refuse)
        with pytest.raises(SettingError, match=r"its folder cannot be written to \(Permission denied\)$"):
            check_output(Path("x.tsv"), "--out", [".tsv"], overwrite=False)
        with pytest.raises(RunFolderError, match=r"^--out a/b: \. cannot be written to \(Permission denied\)$"):
            check_folder(Path("a/b"), "--out")
    with pytest.raises(RunFolderError, match="the path is too long for the files in it"):
        check_folder(Path("/".join(["d" * 200] * 18)), "--out")


def test_nothing_is_removed_that_is_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    removed = [run / "run.json", run / "model" / "config.json"]
    (run / "model").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("run/model")
    for read in (run, run / "model", tmp_path / "linked", run / "run.json"):
        with pytest.raises(RunFolderError, match=r"--overwrite would delete .*, which this command reads"):
            check_reads_stay(run, "--out", [read], removed)
    check_reads_stay(run, "--out", [tmp_path, run / "model" / "mine.yaml", Path("minilm")], removed)


def made(folder: Path) -> dict[str, str]:
    """The files of a folder, links as such, but for the list of what was written."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    texts = {path: f"-> {path.readlink()}" if path.is_symlink() else path.read_text() for path in files}
    return {str(path.relative_to(folder)): text for path, text in texts.items() if path.name != LIST_FILE}


def writes(**files: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name.replace("_", "/")).parent.mkdir(exist_ok=True)
            (folder / name.replace("_", "/")).write_text(text)

    return write


@pytest.mark.parametrize("way", ["itself", "by a link"])
def test_a_folder_is_replaced_but_for_what_others_put_there(way: str, tmp_path: Path) -> None:
    home = tmp_path / "out"
    if way == "by a link":
        (tmp_path / "elsewhere").mkdir()
        home.symlink_to("elsewhere")
    replace_folder(home, writes(a="1", sub_b="1", old_c="1"))
    assert made(home) == {"a": "1", "sub/b": "1", "old/c": "1"}
    (home / ".git" / "refs" / "heads").mkdir(parents=True)  # empty after git gc, and git needs it
    theirs = {".git/config": "mine", "notes.txt": "mine", "sub/mine": "mine"}
    for name, text in theirs.items():
        (home / name).write_text(text)
    (home / "old" / "c").unlink()
    (home / "old" / "c").symlink_to(tmp_path / "far")  # no longer the file that was written
    replace_folder(home, writes(a="2", new_d="2"))
    assert made(home) == {"a": "2", "new/d": "2", "old/c": f"-> {tmp_path / 'far'}", **theirs}
    assert home.is_symlink() == (way == "by a link")
    assert (home / ".git" / "refs" / "heads").is_dir()
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "elsewhere"}


def test_a_folder_is_not_replaced_by_half_of_one_nor_over_a_file_of_others(tmp_path: Path) -> None:
    home = tmp_path / "out"
    replace_folder(home, writes(a="1"))
    (home / "notes").write_text("mine")
    before = made(home)

    def fail(folder: Path) -> None:
        (folder / "a").write_text("2")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="no space left on device"):
        replace_folder(home, fail)
    with pytest.raises(RunFolderError, match=r"out/notes: was not written by OPERA and would be lost; move it away$"):
        replace_folder(home, writes(a="2", notes="2"))
    assert made(home) == before
    assert list(tmp_path.iterdir()) == [home]


def test_nothing_is_written_through_a_link_in_the_place_of_a_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    unfinished(tmp_path / "out").symlink_to("mine")
    with pytest.raises(StorageError, match="cannot be written"):
        replace_file(tmp_path / "out", lambda temporary: temporary.write_text("1"))
    with pytest.raises(StorageError, match="cannot be written"):
        replace_folder(tmp_path / "out", writes(a="1"))
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("moment", range(8))
def test_a_folder_that_is_replaced_says_whose_it_is_at_every_moment(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each change of the folder, it can be told from one of somebody else's, and the next call goes on."""
    home = tmp_path / "out"
    replace_folder(home, writes(a="1", b="1", c="1"))
    (home / "notes").write_text("mine")
    changes: list[Path] = []

    def killed(change: Callable[..., Any]) -> Callable[..., Any]:
        def run(path: Path, *arguments: Any, **options: Any) -> Any:
            changes.append(path)
            if len(changes) > moment:
                raise KeyboardInterrupt
            return change(path, *arguments, **options)

        return run

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        for name in ("unlink", "replace", "rename"):
            patch.setattr(Path, name, killed(getattr(Path, name)))
        replace_folder(home, writes(a="2", d="2"))
    assert written_files(home)
    replace_folder(home, writes(a="3"))
    assert made(home) == {"a": "3", "notes": "mine"}


def test_a_list_names_only_files_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "far").write_text("mine")
    home = tmp_path / "out"
    (home / "in").mkdir(parents=True)
    (home / "in" / "a").write_text("1")
    (home / "link").symlink_to("../far")
    (home / "folder").symlink_to("..")
    (home / LIST_FILE).write_text(json.dumps(["in/a", "link", "../far", str(tmp_path / "far"), "folder/far", 1, None]))
    assert written_files(home) == [home / "in" / "a", home / LIST_FILE]
    for text in ("{}", "not JSON", "[]"):
        (home / LIST_FILE).write_text(text)
        assert written_files(home) == []
    (home / LIST_FILE).unlink()
    (home / LIST_FILE).symlink_to("in/a")
    assert written_files(home) == []


def test_two_that_write_one_file_at_a_time_both_end(tmp_path: Path) -> None:
    """Threads stand for processes: a lock belongs to an open file, and each opens its own."""
    writers, rounds = 4, 50
    at_work: dict[str, list[int]] = {"file": [], "folder": []}

    def write(number: int) -> None:
        def alone(temporary: Path, home: str) -> None:
            at_work[home].append(number)
            temporary.write_text(str(number))
            assert at_work[home] == [number]
            at_work[home].clear()

        for _ in range(rounds):
            replace_file(tmp_path / "file", lambda file: alone(file, "file"))
            replace_folder(tmp_path / "folder", lambda folder: alone(folder / "x", "folder"))

    with ThreadPoolExecutor(writers) as pool:
        for done in [pool.submit(write, number) for number in range(writers)]:
            done.result()
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}
    assert (tmp_path / "file").read_text() in "0123"
