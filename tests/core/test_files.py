"""Outputs: whole or not at all, as the umask says, and never over what must not be lost."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from opera.core.arguments import without_parents
from opera.core.errors import StorageError
from opera.core.files import clear_leftovers, exchange, replace_file, replace_folder, unfinished, writing


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


def test_what_is_written_honours_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "x", lambda temporary: temporary.write_text("x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


def test_an_output_is_complete_or_as_it_was(tmp_path):
    """A full disk changes nothing, and what a killed process left is taken over."""
    file, folder = tmp_path / "file", tmp_path / "folder"
    for text in ("1", "2"):
        replace_file(file, lambda temporary, text=text: temporary.write_text(text))
        replace_folder(folder, writes(**{f"a{text}": text}))
        for replace, path in ((replace_file, file), (replace_folder, folder)):
            with pytest.raises(StorageError, match=f"^{path}: cannot be written: no space left.*; free some space"):
                replace(path, full)
        assert (file.read_text(), texts(folder)) == (text, {f"a{text}": text})
        assert set(tmp_path.iterdir()) == {file, folder}
        (tmp_path / ".file.7.part").write_text("longer than what comes")
        for leftover in (".folder.7.part", ".folder.old.part"):
            (tmp_path / leftover).mkdir()
            (tmp_path / leftover / "half").touch()


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_folder_is_never_absent_while_another_replaces_it(tmp_path, in_one_step, monkeypatch):
    """In one step no rename happens; a process killed between renames leaves a folder that the next call puts back."""
    folder, new = tmp_path / "folder", tmp_path / "new"
    for path, text in ((folder, "old"), (new, "new")):
        path.mkdir()
        (path / "a").write_text(text)
    if not in_one_step:
        monkeypatch.setattr("sys.platform", "other")
    renamed = []
    rename = Path.rename

    def killed_at_second(path: Path, target: Path) -> Path:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed_at_second)
    if in_one_step:
        exchange(new, folder)
    else:
        with pytest.raises(KeyboardInterrupt):
            exchange(new, folder)
        assert not folder.exists()
    monkeypatch.undo()
    clear_leftovers(folder)
    assert texts(folder) == {"a": "new" if in_one_step else "old"}
    assert texts(new) == {"a": "old" if in_one_step else "new"}
    assert set(tmp_path.iterdir()) == {folder, new}


def test_a_link_to_a_folder_stays_one_and_no_temporary_link_is_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to("elsewhere")
    unfinished(tmp_path / "out").symlink_to("elsewhere/hit")
    replace_folder(tmp_path / "linked", writes(a="1"))
    replace_file(tmp_path / "out", lambda temporary: temporary.write_text("1"))
    assert (tmp_path / "linked").is_symlink()
    assert texts(tmp_path / "elsewhere") == {"a": "1"}


def test_errors_of_libraries_count_and_those_of_other_files_pass():
    with pytest.raises(StorageError, match=r"^run: cannot be written: i/o error: no space left"), writing(Path("run")):
        raise SafetensorError("I/O error: No space left on device (os error 28)")
    with pytest.raises(FileNotFoundError), writing(Path("run")):
        raise FileNotFoundError(errno.ENOENT, "no such file", "data/corpus.jsonl")


def test_a_folder_above_is_that_of_a_links_target(tmp_path):
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/target")
    assert without_parents(tmp_path / "link" / ".." / "run") == tmp_path.resolve() / "far" / "run"
