"""Fields of ``--trainer`` that are right in name and type, tried before anything is written."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from copy import copy
from typing import Any

from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor, nn
from transformers.trainer_utils import IntervalStrategy

from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.core.settings import resolved
from opera.core.terminal import shortened


class _NoLoss(nn.Module):
    """Stands in for the loss of a trainer that does not train."""

    def forward(self, *given: object) -> Tensor:
        raise NotImplementedError


class _Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave the automatic model card out."""


def check_trainer(
    settings: TrainSettings,
    arguments: SentenceTransformerTrainingArguments,
    model: SentenceTransformer,
) -> None:
    """Make a trainer, optimizer and schedule with the fields that the user gave, where there are any; drop them again.

    Args:
        settings: the run's, automatic ones resolved.
        arguments: the trainer's.
        model: the model that will train.

    Raises:
        SettingError: if the trainer refuses them, or would never evaluate.
    """
    fields = settings.trainer
    if not fields:
        return
    if fields.get("eval_delay"):
        _check_delay(settings, float(fields["eval_delay"]))
    if fields.get("neftune_noise_alpha") is not None and not hasattr(model, "get_input_embeddings"):
        raise SettingError(
            "--trainer neftune_noise_alpha: sentence-transformers' models do not say where their input embeddings "
            "are, so no noise can be added; leave it out"
        )
    if arguments.torch_compile:
        _check_compiler(arguments.torch_compile_backend, model.device.type)
    try:
        with tempfile.TemporaryDirectory() as folder:
            tried = copy(arguments)
            tried.output_dir = folder  # trainers make it
            tried.eval_strategy = IntervalStrategy.NO
            trainer = _Trainer(model=model, args=tried, loss=_NoLoss())
            trainer.create_optimizer_and_scheduler(resolved(settings.max_steps))
    except Exception as error:  # whatever the libraries raise
        reason = shortened(" ".join(str(error).split()) or type(error).__name__, 200)
        raise SettingError(
            f"--trainer {', '.join(fields)}: the trainer refuses it: {reason}"
        ) from error


def _check_delay(settings: TrainSettings, delay: float) -> None:
    every, steps = settings.eval_steps, resolved(settings.max_steps)
    if every is None:
        raise SettingError(
            f"--trainer eval_delay={delay:g}: nothing is evaluated without eval_steps; leave it out"
        )
    if (last := steps // every * every) < delay:
        raise SettingError(
            f"--trainer eval_delay={delay:g}: would skip every evaluation: with eval_steps={every} the last is at step "
            f"{last} of {steps}; give {last} or less"
        )


def _check_compiler(backend: str | None, device: str) -> None:
    """Refuse to compile a model for CPUs without a C++ compiler, which torch looks for in the first step."""
    wanted = os.environ.get(
        "CXX", "clang++" if sys.platform == "darwin" else "cl" if os.name == "nt" else "g++"
    )
    if device == "cpu" and backend in (None, "inductor") and shutil.which(wanted) is None:
        raise SettingError(
            f"--trainer torch_compile: needs a C++ compiler, and {wanted} is not installed; install it, name another "
            "in the variable CXX, or leave the field out"
        )
