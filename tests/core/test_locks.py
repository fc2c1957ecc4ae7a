"""A folder is written by one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opera.core import locks
from opera.core.errors import RunFolderError
from opera.core.locks import LOCK_FILE, refuse_in_use, sole_use
from processes import start

HOLD = """
import signal, sys
from pathlib import Path
from opera.core.locks import sole_use
with sole_use(Path(sys.argv[1]), "trains into this folder"):
    (Path(sys.argv[1]) / "held").touch()
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.0)


def test_a_held_folder_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    refuse_in_use(tmp_path)
    with sole_use(tmp_path, "trains into this folder"):
        with pytest.raises(RunFolderError, match=f"process {os.getpid()} on .* trains into this folder; wait until"):
            refuse_in_use(tmp_path)
        with pytest.raises(RunFolderError, match="trains into this folder"), sole_use(tmp_path, "x"):
            pass
    refuse_in_use(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    folder, script = tmp_path / "run", tmp_path / "hold.py"
    folder.mkdir()
    script.write_text(HOLD)
    child = start([str(script), str(folder)], tmp_path / "log")
    child.wait_until((folder / "held").exists)
    with pytest.raises(RunFolderError, match="trains into this folder"):
        refuse_in_use(folder)
    child.send_signal(9)
    child.wait()
    assert (folder / LOCK_FILE).exists()
    refuse_in_use(folder)
    assert not (folder / LOCK_FILE).exists()
    with sole_use(folder, "x"):
        pass
    assert not (folder / LOCK_FILE).exists()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), sole_use(tmp_path, "x"):
        pass
    assert not (tmp_path / "elsewhere").exists()
