"""Signals while training, and the services that curves and the guard's choice are logged to."""

import signal
from typing import Any, ClassVar

import pytest
from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from opera.core.errors import SettingError
from opera.run_folder.folder import Run
from processes import start
from small_runs import SMALL, assert_same_run, interrupted_at, train_command

SIGNALLED = """
import functools, sys
from pathlib import Path
from opera.run import adapt as module
from waiting import WaitsForASignal

reached, *arguments = sys.argv[1:]
module.adapt = functools.partial(module.adapt, callbacks=[WaitsForASignal(5, Path(reached))])
sys.argv = ["opera", *arguments]
from opera.cli import main

main()
"""


def test_a_signal_saves_a_checkpoint_and_the_run_resumes(beir, static_model, tmp_path):
    """The sixth step waits for the signal before it begins."""
    script, out, reached = tmp_path / "signalled.py", tmp_path / "run", tmp_path / "reached"
    script.write_text(SIGNALLED)
    arguments = train_command(beir, static_model, out, "--steps", "12", "--set", "save_steps=1000")
    child = start([str(script), str(reached), *arguments], tmp_path / "log")
    child.wait_until(reached.exists)
    child.send_signal(signal.SIGTERM)
    assert child.wait() == 130, child.log.read_text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert "the same command with --resume continues from the last checkpoint" in child.log.read_text()
    assert Run.open(out).record.status == "running"
    resumed = start(["-m", "opera", *arguments, "--resume"], tmp_path / "log2")
    assert resumed.wait() == 0, resumed.log.read_text()
    assert Run.open(out).training.resumed_from == 6
    assert Run.open(out).trace().num_rows == 12


class Service(TrainerCallback):
    """A service that keeps what is logged."""

    logs: ClassVar[list[dict[str, Any]]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.logs.clear()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        self.logs.append({**logs, "step": state.global_step})


class Missing(Service):
    """A service whose package is not installed."""

    def __init__(self) -> None:
        raise RuntimeError("requires wandb to be installed")


@pytest.fixture
def serve(monkeypatch) -> Any:
    return lambda service: monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "wandb", service)


SETTINGS = {**SMALL, "guard": False, "report_to": "wandb", "logging_steps": 2, "method": "dp", "learning_rate": 0.05}


def test_the_curves_are_logged_and_services_change_nothing(train, serve):
    """Settings without effect are no part of a run's identity, so it resumes without the service."""
    serve(Service)
    with interrupted_at(6):
        train("cut", **SETTINGS)
    run = train(**SETTINGS)
    lines = [logs for logs in Service.logs if "loss" in logs]
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    trace = run.trace().to_pylist()
    for line in lines:
        row = trace[line["step"] - 1]
        assert (line["opera/alpha"], line["opera/r"]) == (row["alpha"], row["r"])
    assert lines[-1]["opera/coverage_pairs"] == (run.pairs()["times_drawn"].to_numpy() > 0).mean()
    plain = {**SETTINGS, "report_to": "none", "logging_steps": 5, "save_steps": 2, "save_total_limit": 5}
    resumed = train("cut", resume=True, **plain)
    assert resumed.training.resumed_from == 4
    assert_same_run(resumed, run)


def test_a_service_without_its_package_is_refused_before_anything_is_written(train, serve, tmp_path):
    serve(Missing)
    with pytest.raises(SettingError, match=r"report_to=wandb: RuntimeError: requires wandb"):
        train(**SETTINGS)
    assert not (tmp_path / "run").exists()
