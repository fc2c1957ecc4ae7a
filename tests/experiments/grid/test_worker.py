"""The worker's side: jobs, messages and logs. Real cells in real workers are in test_grid.py."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opera.core.errors import SettingError
from opera.experiments.grid import worker
from opera.experiments.grid.worker import ProgressReport, output_appended_to, run_job
from opera.runs.folder import Run
from processes import start

VALUES = {"method": "ft", "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 8}


def messages(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_progress_is_reported_at_most_every_half_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out = SimpleNamespace(now=1000.0), io.StringIO()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: clock.now))
    report = ProgressReport(out)
    for step in range(1, 9):
        report.on_step_end(None, SimpleNamespace(global_step=step, max_steps=8), None)
        clock.now += 0.2
    assert messages(out) == [{"step": step, "steps": 8} for step in (1, 4, 7)]


def test_a_cell_is_trained_and_keeps_no_checkpoints(beir: Path, static_model: Path, tmp_path: Path) -> None:
    job = {"kind": "train", "data": str(beir), "model": str(static_model), "out": str(tmp_path / "cell")}
    out = io.StringIO()
    assert run_job({**job, "values": VALUES}, out) == {"done": True}
    assert messages(out)[0] == {"step": 1, "steps": 4}
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
    assert run_job(job, io.StringIO()) == {"failed": reason} | blamed
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
