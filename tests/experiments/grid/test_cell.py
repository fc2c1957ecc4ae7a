"""The process of a cell: jobs, how they end, and the parent's death. Real grids are in test_grid.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from opera.core.errors import SettingError
from opera.experiments.grid import cell
from opera.experiments.grid.cell import run_job
from opera.runs.folder import Run
from processes import start

VALUES = {"method": "ft", "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 8}


def test_a_cell_is_trained_and_keeps_no_checkpoints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    job = {"data": str(beir), "model": str(static_model), "out": str(tmp_path / "cell"), "values": VALUES}
    assert run_job(job) == {}
    run = Run.open(tmp_path / "cell")
    assert run.finished
    assert run.settings["trainer"]["save_steps"] == 2
    assert not (run.path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("error", "reason", "printed"),
    [
        (SettingError("k: must be 1"), "k: must be 1", "opera: error: k: must be 1\n"),
        (OSError(28, "No space left", "x"), "x: no space left", "opera: error: x: no space left\n"),
        (KeyError("k"), "KeyError: 'k'", "Traceback (most recent call last)"),
    ],
)
def test_a_failure_is_a_message(
    error: Exception, reason: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(source: str) -> None:
        raise error

    monkeypatch.setattr(cell, "load_data", fail)
    blamed = {"input": True} if isinstance(error, SettingError) else {}
    assert run_job({"data": "x"}) == {"failed": reason} | blamed
    assert capsys.readouterr().err.startswith(printed)


ORPHAN = """
import os, threading
from opera.experiments.grid.cell import end_with_parent

theirs, ours = os.pipe()
os.dup2(theirs, 0)
os.close(theirs)
watch = threading.Thread(target=end_with_parent)
watch.start()
os.write(ours, b"lines that arrive are no end")
os.close(ours)
watch.join()
"""


def test_a_cell_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    assert start([str(script)], tmp_path / "log").wait() == 1
