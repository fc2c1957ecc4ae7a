"""A loss, a gradient or a weight that is no number: training ends, the pairs are named, the last checkpoint is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

import opera
from opera.core.errors import TrainingError
from opera.training.callbacks import Trace
from opera.training.checkpoint import damage
from opera.training.loss import InfoNCELoss
from opera.training.trainer import OperaTrainer
from small_runs import SMALL


def test_the_pairs_of_the_batch_are_named(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = tmp_path / "run", []
    pair_losses = InfoNCELoss.pair_losses

    def spoilt(self: InfoNCELoss, *arguments: Any) -> torch.Tensor:
        losses = pair_losses(self, *arguments)
        calls.append(losses)
        return losses * torch.where(torch.arange(len(losses)) == 2, torch.nan, 1) if len(calls) == 6 else losses

    with monkeypatch.context() as patch:
        patch.setattr(InfoNCELoss, "pair_losses", spoilt)
        with pytest.raises(TrainingError) as caught:
            opera.adapt(beir, model=static_model, out=out, **SMALL)
    written = json.loads((out / "not_finite.json").read_text())
    assert (written["step"], written["what"], len(written["pairs"])) == (6, "the loss", 16)
    bad = written["pairs"][2]
    assert [row["finite"] for row in written["pairs"]].count(False) == 1
    assert str(caught.value) == (
        f"step 6: the loss of 1 of 16 pairs, among them '{bad['query_id']}' with '{bad['doc_id']}' is not a finite "
        f"number (all pairs of the batch: {out / 'not_finite.json'}); the checkpoint of step 4 is kept; lower "
        "learning_rate, or set precision=fp32, and start again with --overwrite"
    )
    assert damage(out / "checkpoints" / "checkpoint-4") == ""
    resumed = opera.adapt(beir, model=static_model, out=out, resume=True, **SMALL)
    assert resumed.training.resumed_from == 4
    assert not (out / "not_finite.json").exists()


def test_a_gradient_that_is_no_number_ends_the_step(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norm = OperaTrainer.__mro__[1]._get_grad_norm

    def infinite(self: Any, model: Any, grad_norm: Any = None) -> Any:
        return torch.tensor(torch.inf) if self.state.global_step == 5 else norm(self, model, grad_norm=grad_norm)

    monkeypatch.setattr(OperaTrainer.__mro__[1], "_get_grad_norm", infinite)
    with pytest.raises(
        TrainingError, match=r"step 6: the gradient of the batch of '.*the checkpoint of step 4 is kept"
    ):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
    assert len(json.loads((tmp_path / "run" / "not_finite.json").read_text())["pairs"]) == 16


def test_weights_that_are_no_numbers_are_never_saved(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_step_end = Trace.on_step_end

    def spoil(self: Trace, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        on_step_end(self, args, state, control, **kwargs)
        if state.global_step == 8:
            with torch.no_grad():
                next(kwargs["model"].parameters())[0, 0] = torch.nan

    monkeypatch.setattr(Trace, "on_step_end", spoil)
    with pytest.raises(TrainingError, match=r"step 8: .*weight holds values that are not finite numbers, so the model"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", **SMALL)
    (kept,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert kept.name == "checkpoint-4"
    assert all(abs(values).max() < 1e3 for values in load_file(kept / "model.safetensors").values())
    assert not (tmp_path / "run" / "model").exists()
