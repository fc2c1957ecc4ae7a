"""A folder is written by one process at a time."""

import os

import pytest

from opera.core import cache
from opera.core.cache import LOCK_FILE, sole_use
from opera.core.errors import RunFolderError
from processes import start

HOLD = """
import signal, sys
from pathlib import Path
from opera.core.cache import sole_use
with sole_use(Path(sys.argv[1]), "trains into this folder"):
    (Path(sys.argv[1]) / "held").touch()
    signal.pause()
"""


def test_a_held_folder_is_refused_until_its_process_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "PATIENCE", 0.0)
    folder, script = tmp_path / "run", tmp_path / "hold.py"
    folder.mkdir()
    message = f"process {os.getpid()} on .* trains into this folder; wait until"
    refused = pytest.raises(RunFolderError, match=message)
    with sole_use(folder, "trains into this folder"), refused, sole_use(folder, "x"):
        pass
    assert not list(folder.iterdir())
    script.write_text(HOLD)
    child = start([str(script), str(folder)], tmp_path / "log")
    child.wait_until((folder / "held").exists)
    with pytest.raises(RunFolderError, match="trains into this folder"), sole_use(folder, "x"):
        pass
    child.send_signal(9)
    child.wait()
    assert (folder / LOCK_FILE).exists()
    with sole_use(folder, "x"):
        pass
    assert not (folder / LOCK_FILE).exists()
