"""The worker's side: jobs, messages and logs. Real cells in real workers are in test_grid.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opera.core.errors import SettingError
from opera.experiments.grid import worker
from opera.experiments.grid.worker import output_appended_to, run_job
from opera.runs.folder import Run
from processes import start

VALUES = {"method": "ft", "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 8}


def test_a_cell_is_trained_and_keeps_no_checkpoints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    job = {"kind": "train", "data": str(beir), "model": str(static_model), "out": str(tmp_path / "cell")}
    assert run_job({**job, "values": VALUES}) == {"done": True}
    run = Run.open(tmp_path / "cell")
    assert run.finished
    assert run.settings["save_steps"] == 2
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
    error: Exception,
    reason: str,
    printed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(worker, "adapt", fail)
    monkeypatch.setattr(worker, "load_once", lambda source: None)
    job = {"kind": "train", "data": "x", "model": "m", "out": str(tmp_path / "cell"), "values": VALUES}
    blamed = {"input": True} if isinstance(error, SettingError) else {}
    assert run_job(job) == {"failed": reason} | blamed
    assert capsys.readouterr().err.startswith(printed)


def test_all_output_goes_to_the_log_and_comes_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "seed0.log"
    log.write_text("an earlier try\n")
    with pytest.raises(KeyError), output_appended_to(str(log)):  # noqa: PT012
        os.write(1, b"standard output\n")
        os.write(2, b"standard error\n")
        raise KeyError
    os.write(1, b"after\n")
    assert log.read_text() == "an earlier try\nstandard output\nstandard error\n"
    assert capfd.readouterr().out == "after\n"


ORPHAN = """
import os, threading
from opera.experiments.grid.worker import end_with_parent

theirs, ours = os.pipe()
os.dup2(theirs, 0)
os.close(theirs)
busy = threading.Event()
watch = threading.Thread(target=end_with_parent, args=(busy,))
watch.start()
os.write(ours, b"a job\\n")  # lines that arrive are no hang-up
busy.set()
os.close(ours)
watch.join()
"""


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    assert start([str(script)], tmp_path / "log").wait() == 1
