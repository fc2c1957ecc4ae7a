"""Automatic values of the loss and the optimizer, by the size of the data, the kind of model and
the device.

A setting that is ``None`` is automatic. :func:`resolve` replaces it by a number before any other
code reads it. Explicit values stay. docs/training.md has the study behind the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from opera.config.training import TrainSettings

ModelKind = Literal["adapter", "static", "small", "large"]
"""A projection over frozen vectors, a static embedding table, a transformer below 50M parameters,
or a larger one.
"""
TRANSFORMERS: tuple[ModelKind, ...] = ("small", "large")
"""The kinds that need a forward pass to encode a text."""

KINDS: dict[ModelKind, str] = {
    "adapter": "an adapter",
    "static": "a static model",
    "small": "a transformer below 50M parameters",
    "large": "a transformer of 50M parameters or more",
}

AUTOMATIC = (
    "max_steps",
    "epochs",
    "learning_rate",
    "warmup_ratio",
    "temperature",
    "per_device_train_batch_size",
    "precision",
)
"""The settings that :func:`resolve` sets."""


@dataclass(frozen=True)
class Situation:
    """The facts that automatic values depend on.

    Attributes:
        queries: the number of training queries.
        model: the kind of model.
        device: ``cuda``, ``mps`` or ``cpu``.
        processes: the number of processes that train together.
        lora: whether LoRA's matrices train instead of the weights.
        kind: the name of the kind in :mod:`opera.retrieval.kinds`.
        known_documents: the fraction of expected documents that are in train, as on dev.
    """

    queries: int
    model: ModelKind
    device: str
    processes: int = 1
    lora: bool = False
    kind: str = "dense"
    known_documents: float = 1.0


@dataclass(frozen=True)
class Defaults:
    """Automatic values for one kind of model.

    Attributes:
        temperature: temperature of the loss.
        queries_per_batch: queries in a batch of all processes; at most the training queries.
        learning_rate: peak learning rate.
        warmup_ratio: fraction of the steps for warm-up.
        epochs: passes over the training queries.
        least_steps: lower bound of the steps.
        most_steps: upper bound of the steps, by device; other devices have that of ``cuda``.
    """

    temperature: float
    queries_per_batch: int
    learning_rate: float
    warmup_ratio: float
    epochs: float
    least_steps: int
    most_steps: dict[str, int]


NEW_DOCUMENTS_RATE, MOSTLY_NEW = 3e-3, 0.25
"""The learning rate of a static model if fewer of the expected documents are known. A higher rate
moves the tokens of training documents away from all others (docs/training.md)."""
LORA_RATE = 10
"""LoRA's matrices train with the learning rate of the weights, times this."""

DEFAULTS: dict[ModelKind, Defaults] = {
    "adapter": Defaults(0.05, 256, 3e-3, 0.0, 20, 50, {"cpu": 1000, "cuda": 1000}),
    "static": Defaults(0.07, 512, 1e-2, 0.0, 40, 50, {"cpu": 200, "cuda": 200}),
    "small": Defaults(0.05, 64, 1e-4, 0.1, 5, 50, {"cpu": 400, "cuda": 1000}),
    "large": Defaults(0.05, 64, 2e-5, 0.1, 3, 50, {"cpu": 100, "cuda": 1000}),
}


def resolve(settings: TrainSettings, situation: Situation) -> TrainSettings:
    """Replace automatic values by numbers. Explicit values stay.

    An epoch has as many steps as it takes to sample every training query once. ``epochs`` of the
    result is always the number of epochs of the run.

    Raises:
        SettingError: if ``global_batch_size`` does not divide evenly over the processes.
    """
    defaults = DEFAULTS[situation.model]
    # in a training on all queries, no batch has a query twice
    queries_per_batch = min(defaults.queries_per_batch, situation.queries)
    automatic_size = math.ceil(queries_per_batch / situation.processes)
    per_device = settings.explicit_batch_size(situation.processes) or automatic_size
    queries_per_step = per_device * situation.processes * settings.gradient_accumulation_steps
    per_epoch = math.ceil(situation.queries / queries_per_step)
    steps = settings.max_steps or _steps(settings.epochs, per_epoch, defaults, situation.device)
    warmup = settings.warmup_ratio
    return settings.model_copy(
        update={
            "max_steps": steps,
            "epochs": settings.epochs or steps / per_epoch,
            "learning_rate": settings.learning_rate or automatic_rate(situation),
            "warmup_ratio": defaults.warmup_ratio if warmup is None else warmup,
            "temperature": settings.temperature or automatic_temperature(situation),
            "per_device_train_batch_size": per_device,
        }
    )


def automatic_temperature(situation: Situation) -> float:
    """Return the automatic temperature: that of sentence-transformers for scores without bound."""
    return DEFAULTS[situation.model].temperature if situation.kind == "dense" else 1.0


def automatic_rate(situation: Situation) -> float:
    """Return the automatic learning rate."""
    if situation.model == "static" and situation.known_documents < MOSTLY_NEW:
        return NEW_DOCUMENTS_RATE
    return DEFAULTS[situation.model].learning_rate * (LORA_RATE if situation.lora else 1)


def reason_for_steps(settings: TrainSettings, situation: Situation) -> str:
    """Say why a run has its number of steps."""
    if settings.max_steps is not None or settings.epochs is not None:
        return "given"
    defaults = DEFAULTS[situation.model]
    most = _most_steps(defaults, situation.device)
    return f"{defaults.epochs:g} epochs, at least {defaults.least_steps} and at most {most} steps"


def _steps(epochs: float | None, per_epoch: int, defaults: Defaults, device: str) -> int:
    """Return the steps of the explicit epochs, or of the default epochs within their bounds."""
    if epochs is not None:
        return math.ceil(epochs * per_epoch)
    steps = max(math.ceil(defaults.epochs * per_epoch), defaults.least_steps)
    return min(steps, _most_steps(defaults, device))


def _most_steps(defaults: Defaults, device: str) -> int:
    return defaults.most_steps.get(device, defaults.most_steps["cuda"])
