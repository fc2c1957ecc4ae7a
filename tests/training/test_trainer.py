"""The trainer: dev evaluations, fields of its arguments, losses and weights that are no numbers, memory."""

import os
import signal
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from transformers import EarlyStoppingCallback, TrainerCallback

import opera
from opera.training.loss import InfoNCELoss
from processes import DEADLINE, launched, torchrun
from small_runs import SMALL, assert_same_run, interrupted_at, train_command, weights


@pytest.mark.slow
def test_early_stopping_and_the_best_model_survive_a_resume(make_beir, static_model, tmp_path):
    folder = make_beir(dev=True)
    settings = {
        "max_steps": 400,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.05,
        "temperature": 0.1,
        "eval_steps": 10,
        "load_best_model_at_end": True,
        "callbacks": [EarlyStoppingCallback(3)],
    }
    uninterrupted = opera.adapt(folder, model=static_model, out=tmp_path / "uninterrupted", **settings)
    stopped = uninterrupted.training
    assert stopped.best_step <= stopped.steps < 400
    assert stopped.best_value > 0
    assert len(uninterrupted.trace()) == stopped.steps
    with interrupted_at(stopped.steps - 4):
        opera.adapt(folder, model=static_model, out=tmp_path / "cut", **settings)
    resumed = opera.adapt(folder, model=static_model, out=tmp_path / "cut", resume=True, **settings)
    assert resumed.training.resumed_from == stopped.steps - 10
    for fact in ("steps", "best_step", "best_value"):
        assert getattr(resumed.training, fact) == getattr(stopped, fact)
    assert_same_run(resumed, uninterrupted)


class SignalInLastStep(TrainerCallback):
    """Sends SIGTERM while the last step trains."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps - 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_in_the_last_step_stops_the_run(train, trained):
    with pytest.raises(KeyboardInterrupt):
        train(callbacks=[SignalInLastStep()], **SMALL)
    assert_same_run(train(resume=True, **SMALL), trained)


def test_a_run_takes_and_records_fields_of_the_trainer(train):
    named, other = (
        train(name, trainer=fields, guard=False, **SMALL)
        for name, fields in {"named": {"run_name": "mine"}, "other": {"adam_beta2": 0.5}}.items()
    )
    assert other.settings["trainer"] == {"adam_beta2": 0.5, "save_steps": SMALL["save_steps"]}
    assert "run_name" not in str(named.record.identity), "a run that is named otherwise may be resumed"
    assert weights(other) != weights(named)


def test_a_field_that_transformers_rejects_is_an_error_before_anything_is_written(train, tmp_path):
    with pytest.raises(opera.InputError, match="transformers rejects the settings"):
        train(trainer={"optim_args": "fast"}, **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_ends_the_training(beir, static_model, tmp_path, monkeypatch):
    out, calls, pair_losses = tmp_path / "run", [], InfoNCELoss.pair_losses

    def spoilt(self: InfoNCELoss, *arguments: Any) -> torch.Tensor:
        losses = pair_losses(self, *arguments)
        calls.append(losses)
        return losses * torch.where(torch.arange(len(losses)) == 2, torch.nan, 1) if len(calls) == 6 else losses

    with monkeypatch.context() as patch:
        patch.setattr(InfoNCELoss, "pair_losses", spoilt)
        with pytest.raises(opera.TrainingError, match=r"^step 6: the loss of 1 of 16 pairs is not a finite number"):
            opera.adapt(beir, model=static_model, out=out, **SMALL)
    assert opera.adapt(beir, model=static_model, out=out, resume=True, **SMALL).training.resumed_from == 4


class SpoilsAWeight(TrainerCallback):
    """Puts what is no number into the weights when step 8 has ended."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 8:
            with torch.no_grad():
                next(kwargs["model"].parameters())[0, 0] = torch.nan


def test_weights_that_are_no_numbers_are_never_saved(train, tmp_path):
    with pytest.raises(opera.TrainingError, match=r"step 8: .*weight has values that are not finite numbers, so OPERA"):
        train(callbacks=[SpoilsAWeight], **SMALL)
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == "checkpoint-4"
    assert all(abs(values).max() < 1e3 for values in load_file(checkpoint / "model.safetensors").values())
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (
            MemoryError(),
            opera.TrainingError,
            r"^out of memory while training: lower per_device_train_batch_size \(now 16\)",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to"), opera.TrainingError, "^out of memory while training"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            opera.TrainingError,
            "^out of memory while training",
        ),
        (RuntimeError("mat1 and mat2 shapes"), RuntimeError, "mat1 and mat2"),
    ],
)
def test_out_of_memory_names_the_settings_and_other_errors_pass(train, error, expected, message, monkeypatch):
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(InfoNCELoss, "pair_losses", fail)
    with pytest.raises(expected, match=message):
        train(**SMALL)


@pytest.mark.slow
def test_a_dead_process_ends_the_run_with_a_message(beir, bert_model, tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        "import os, sys\n"
        "from opera.training.callbacks import Trace\n"
        "end = Trace.on_step_end\n"
        "def dies(self, args, state, control, **kwargs):\n"
        "    end(self, args, state, control, **kwargs)\n"
        "    if state.global_step == 5 and os.environ['RANK'] == '1':\n"
        "        os._exit(7)\n"
        "Trace.on_step_end = dies\n"
        "from opera.cli import main\n"
        "main()\n"
    )
    arguments = train_command(beir, bert_model, tmp_path / "run", "--steps", "24")
    process = torchrun([str(script), *arguments], tmp_path / "log")
    assert process.wait(DEADLINE) != 0
    said = (tmp_path / "log").read_text()
    assert "exitcode" in said
    assert "another process ended; see its message" in said


@pytest.mark.slow
def test_an_adapter_of_queries_trains_in_two_processes(beir, static_model, tmp_path):
    """Its one parameter takes part in one of three forward passes per step."""
    options = ["--method", "ft", "--adapter", "query", "--steps", "3", "--set", "guard=false"]
    command = ["-m", "opera", *train_command(beir, static_model, tmp_path / "run", *options)]
    for child in launched(command, tmp_path / "log"):
        assert child.wait() == 0, child.log.read_text()
    run = opera.Run.open(tmp_path / "run")
    assert (run.record.processes, run.steps) == (2, 3)
