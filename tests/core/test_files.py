"""Outputs: whole or not at all, as the umask says, and never over what must not be lost."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opera.core.errors import RunFolderError, SettingError
from opera.core.files import check_folder, check_output, check_reads_stay, replace_file, temporary_beside


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_what_is_written_honours_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        replace_file(tmp_path / ("x" * 255), lambda temporary: temporary.write_text("x"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [mode]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        replace_file(tmp_path / "out", fail)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("out", "old")]


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
    (tmp_path / "hard.tsv").hardlink_to(tmp_path / "elsewhere" / "far.tsv")
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

    def refuse(*_: object) -> int:  # root may write anywhere
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(SettingError, match=r"its folder cannot be written to \(Permission denied\)$"):
            check_output(Path("x.tsv"), "--out", [".tsv"], overwrite=False)
        with pytest.raises(RunFolderError, match=r"^--out a/b: \. cannot be written to \(Permission denied\)$"):
            check_folder(Path("a/b"), "--out")
    with pytest.raises(RunFolderError, match="the path is too long for the files in it"):
        check_folder(Path("/".join(["d" * 200] * 18)), "--out")


def test_a_folder_whose_files_are_read_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("run/model")
    for read in (tmp_path / "run", tmp_path / "run" / "model", tmp_path / "linked"):
        with pytest.raises(RunFolderError, match=r"--overwrite would delete .*, which this command reads"):
            check_reads_stay(tmp_path / "run", "--out", [read])
    check_reads_stay(tmp_path / "run", "--out", [tmp_path, tmp_path / "run" / "absent", Path("minilm")])


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "pairs[1].tsv"
    left, others = temporary_beside(path), [tmp_path / ".pairs[1].tsv-mine", temporary_beside(tmp_path / "other.tsv")]
    for file in (left, *others):
        file.write_text("half")
    running: list[Path] = []

    def write(temporary: Path) -> None:
        temporary.write_text("first")
        running.append(temporary)
        replace_file(path, lambda second: second.write_text("second"))
        assert temporary.read_text() == "first", "held by this call"

    replace_file(path, write)
    assert path.read_text() == "first"
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])
    assert running


def test_trying_a_folder_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    open_file = os.open

    def watch(place: object, flags: int, *mode: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and made:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        made.append(str(place))
        return open_file(place, flags, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", watch)
    for _ in range(2):
        check_output(tmp_path / "a.tsv", "--out", (".tsv",), overwrite=False)
    assert made[0] == str(tmp_path)
    assert Path(made[1]).parent == tmp_path, "a file system without nameless files"
    assert not list(tmp_path.iterdir())


def test_two_that_write_one_file_at_a_time_both_end(tmp_path: Path) -> None:
    """Threads stand for processes: a lock belongs to an open file, and each opens its own."""
    writers, rounds = 4, 50

    def write(number: int) -> None:
        for _ in range(rounds):
            replace_file(tmp_path / "file", lambda temporary: temporary.write_text(str(number)))

    with ThreadPoolExecutor(writers) as pool:
        for done in [pool.submit(write, number) for number in range(writers)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() in "0123"
