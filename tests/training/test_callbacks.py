"""Signals while training."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from opera.runs.folder import Run
from processes import start
from small_runs import train_command

SIGNALLED = """
import functools, sys
from pathlib import Path
from opera.training import adapt as module
from waiting import WaitsForASignal

reached, *arguments = sys.argv[1:]
module.adapt = functools.partial(module.adapt, callbacks=[WaitsForASignal(5, Path(reached))])
sys.argv = ["opera", *arguments]
from opera.cli import main

main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    beir: Path, bert_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The sixth step waits for the signal before it begins."""
    script, out, reached = tmp_path / "signalled.py", tmp_path / "run", tmp_path / "reached"
    script.write_text(SIGNALLED)
    arguments = train_command(beir, bert_model, out, "--steps", "12", "--set", "save_steps=1000")
    child = start([str(script), str(reached), *arguments], tmp_path / "log")
    child.wait_until(reached.exists)
    child.send_signal(number)
    assert child.wait() == 130, child.log.read_text()
    said = child.log.read_text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert "saving a checkpoint, then stopping" in said
    assert "the same command with --resume continues from step 6" in said
    assert Run.open(out).record.status == "running"
    resumed = start(["-m", "opera", *arguments, "--resume"], tmp_path / "log2")
    assert resumed.wait() == 0, resumed.log.read_text()
    assert Run.open(out).training.resumed_from == 6
    assert Run.open(out).trace().num_rows == 12
