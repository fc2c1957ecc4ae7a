"""Logging services: opened before anything is written, with OPERA's curves among theirs, and no part of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from transformers import TrainerCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

import opera
from opera.core.errors import SettingError, TrainingError
from opera.training import services
from opera.training.services import service_names
from small_runs import SMALL, InterruptedAt, assert_same_run


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


class Dropped(Fake):
    """A service that is gone after some lines."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if state.global_step == 6:
            raise ConnectionError("gone")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(service: type[TrainerCallback]) -> None:
        Fake.heard = []
        monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "wandb", service)
        monkeypatch.setattr(services, "get_available_reporting_integrations", lambda: ["wandb"])

    return put


SETTINGS = {**SMALL, "report_to": "wandb", "logging_steps": 2, "method": "dp"}


def test_the_curves_and_the_choice_are_logged(serve: Any, beir: Path, static_model: Path, tmp_path: Path) -> None:
    serve(Fake)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **SETTINGS)
    names = [name for name, _ in Fake.heard]
    assert (names[0], names[-1], names.count("setup"), names.count("end")) == ("setup", "end", 1, 1)
    lines = [values for name, values in Fake.heard if name == "log" and "loss" in values]
    assert [line["at"] for line in lines] == [2, 4, 6, 8]
    trace = run.trace().to_pylist()
    for line in lines:
        at = trace[line["at"] - 1]
        assert line["opera/alpha"] == at["alpha"]
        assert line["opera/r"] == at["r"]
    shares = [line["opera/coverage_pairs"] for line in lines]
    assert shares == sorted(shares)
    assert shares[-1] == (run.pairs()["times_drawn"].to_numpy() > 0).mean()
    assert 0 < lines[0]["opera/coverage_queries"] <= 1
    assert run.record.guard is not None
    assert Fake.heard[-2][1]["opera/lambda"] == run.record.guard.share


def test_a_second_training_opens_them_anew(serve: Any, beir: Path, static_model: Path, tmp_path: Path) -> None:
    serve(Fake)
    run = opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SETTINGS, "refit": True})
    trainings = 2 if run.record.guard and run.record.guard.refit else 1
    names = [name for name, _ in Fake.heard]
    assert trainings == 2
    assert names.count("setup") == names.count("end") == 2
    assert names.index("end") < len(names) - 1 - names[::-1].index("setup")


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (Closed, "report_to=wandb: cannot be opened (PermissionError: no API key configured); fix it, or leave"),
        (Broken, "report_to=wandb: cannot be opened (AttributeError: module 'wandb' has no attribute 'init')"),
    ],
)
@pytest.mark.parametrize("report_to", ["wandb", "all"])
def test_a_service_that_cannot_be_opened_is_refused_before_anything_is_written(
    report_to: str, service: Any, message: str, serve: Any, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    serve(service)
    with pytest.raises(SettingError) as caught:
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **{**SETTINGS, "report_to": report_to})
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_run_whose_service_fails_goes_on_without_it(
    serve: Any, beir: Path, static_model: Path, tmp_path: Path
) -> None:
    serve(Dropped)
    with pytest.raises(TrainingError, match=r"report_to=wandb: failed \(ConnectionError: gone\); the run goes on with"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SETTINGS)
    plain = {**SETTINGS, "report_to": "none", "logging_steps": 5}
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "run", resume=True, **plain)
    assert resumed.training.resumed_from == 4
    assert_same_run(resumed, opera.adapt(beir, model=static_model, out=tmp_path / "whole", **plain))


def test_settings_without_effect_are_no_part_of_a_run(
    beir: Path, static_model: Path, tmp_path: Path, interrupted_at: InterruptedAt
) -> None:
    with interrupted_at(6):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", method="dp", **SMALL)
    other = {**SMALL, "logging_steps": 3, "save_steps": 2, "save_total_limit": 5}
    resumed = opera.adapt(beir, model=static_model, out=tmp_path / "run", method="dp", resume=True, **other)
    assert resumed.record.identity["trainer"] is None
    assert resumed.settings["trainer"]["save_steps"] == 2
    np.testing.assert_array_equal(resumed.trace()["step"], np.arange(1, 9))


def test_all_is_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "get_available_reporting_integrations", lambda: ["comet_ml", "mlflow"])
    assert service_names("all") == ["comet_ml", "mlflow"]
    assert (service_names("none"), service_names("wandb"), service_names(["wandb"])) == ([], ["wandb"], ["wandb"])
