"""Signals while training, and the services that curves and the guard's choice are logged to."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

import opera
from opera.core.errors import SettingError
from opera.engine import callbacks
from opera.runs.folder import Run
from processes import start
from small_runs import SMALL, InterruptedAt, assert_same_run, train_command

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(
    beir: Path, static_model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The sixth step waits for the signal before it begins."""
    script, out, reached = tmp_path / "signalled.py", tmp_path / "run", tmp_path / "reached"
    script.write_text(SIGNALLED)
    arguments = train_command(beir, static_model, out, "--steps", "12", "--set", "save_steps=1000")
    child = start([str(script), str(reached), *arguments], tmp_path / "log")
    child.wait_until(reached.exists)
    child.send_signal(number)
    assert child.wait() == 130, child.log.read_text()
    said = child.log.read_text()
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert "saving a checkpoint, then stopping" in said
    assert "the same command with --resume continues from the last checkpoint" in said
    assert Run.open(out).record.status == "running"
    if number == signal.SIGTERM:
        resumed = start(["-m", "opera", *arguments, "--resume"], tmp_path / "log2")
        assert resumed.wait() == 0, resumed.log.read_text()
        assert Run.open(out).training.resumed_from == 6
        assert Run.open(out).trace().num_rows == 12


class Fake(TrainerCallback):  # type: ignore[misc]
    """A service that writes down what it hears."""

    heard: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def setup(self, args: Any, state: Any, model: Any, processing_class: Any) -> None:
        assert state.is_world_process_zero
        self.heard.append(("setup", {}))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        self.heard.append(("log", {**logs, "at": state.global_step}))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(("end", {}))


class Closed(Fake):
    """A service that does not let this user in."""

    def setup(self, args: Any, state: Any, model: Any, processing_class: Any) -> None:
        raise PermissionError("no API key\nconfigured")


class Broken(Fake):
    """A service whose package cannot be imported."""

    def __init__(self) -> None:
        raise AttributeError("module 'wandb' has no attribute 'init'")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(service: type[TrainerCallback]) -> None:
        Fake.heard = []
        monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "wandb", service)
        monkeypatch.setattr(callbacks, "get_available_reporting_integrations", lambda: ["wandb"])

    return put


SETTINGS = {**SMALL, "report_to": "wandb", "logging_steps": 2, "method": "dp", "learning_rate": 0.05}


def test_the_curves_are_logged_and_services_change_nothing(
    serve: Any, beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    """Settings without effect are no part of a run's identity, so it resumes without the service."""
    serve(Fake)
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=tmp_path / "cut", **SETTINGS)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **SETTINGS)
    names = [name for name, _ in Fake.heard]
    assert [name for name in names if name != "log"] == ["setup", "setup", "end"]
    lines = [values for name, values in Fake.heard if name == "log" and "loss" in values][-4:]
    assert [line["at"] for line in lines] == [2, 4, 6, 8]
    trace = run.trace().to_pylist()
    for line in lines:
        at = trace[line["at"] - 1]
        assert (line["opera/alpha"], line["opera/r"]) == (at["alpha"], at["r"])
    shares = [line["opera/coverage_pairs"] for line in lines]
    assert shares == sorted(shares)
    assert shares[-1] == (run.pairs()["times_drawn"].to_numpy() > 0).mean()
    assert 0 < lines[0]["opera/coverage_queries"] <= 1
    plain = {**SETTINGS, "report_to": "none", "logging_steps": 5, "save_steps": 2, "save_total_limit": 5}
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "cut", resume=True, **plain)
    assert resumed.training.resumed_from == 4
    assert resumed.record.identity["trainer"] is None
    assert resumed.settings["trainer"]["save_steps"] == 2
    assert_same_run(resumed, run)


@pytest.mark.parametrize(
    ("service", "report_to", "message"),
    [
        (Closed, "wandb", "cannot be opened (PermissionError: no API key configured); fix the service, or remove"),
        (Broken, "all", "cannot be opened (AttributeError: module 'wandb' has no attribute 'init')"),
    ],
)
def test_a_service_that_cannot_be_opened_is_refused_before_anything_is_written(
    service: Any, report_to: str, message: str, serve: Any, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    serve(service)
    with pytest.raises(SettingError) as caught:
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SETTINGS, "report_to": report_to})
    assert f"report_to=wandb: {message}" in str(caught.value)
    assert not (tmp_path / "run").exists()
