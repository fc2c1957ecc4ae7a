"""Automatic values of the loss and the optimizer, from the size of the data, the kind of model and
the device.

A setting that is ``None`` is automatic. :func:`resolve` turns it into a number before anything else
reads it; explicit values stay. docs/training.md has the study that chose the numbers.
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
"""The kinds whose every encoding costs a forward pass."""

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
"""The settings that :func:`resolve` fills in."""


@dataclass(frozen=True)
class Situation:
    """What automatic values depend on.

    Attributes:
        queries: training queries.
        model: the kind of model.
        device: ``cuda``, ``mps`` or ``cpu``.
        processes: how many processes train together.
        lora: whether LoRA's matrices train in place of the weights.
    """

    queries: int
    model: ModelKind
    device: str
    processes: int = 1
    lora: bool = False


@dataclass(frozen=True)
class Defaults:
    """What one kind of model trains with.

    Attributes:
        temperature: of the loss.
        queries_per_batch: over all processes; fewer where there are fewer training queries.
        learning_rate: its peak.
        warmup_ratio: share of the steps spent warming up.
        epochs: passes over the training queries.
        least_steps: the fewest steps, however small the data.
        most_steps: the most steps, however large the data, by device; others have those of
            ``cuda``.
    """

    temperature: float
    queries_per_batch: int
    learning_rate: float
    warmup_ratio: float
    epochs: float
    least_steps: int
    most_steps: dict[str, int]


LORA_RATE = 10
"""How many times the learning rate of the weights LoRA's matrices have."""

DEFAULTS: dict[ModelKind, Defaults] = {
    "adapter": Defaults(0.05, 256, 3e-3, 0.0, 20, 50, {"cpu": 1000, "cuda": 1000}),
    "static": Defaults(0.07, 512, 1e-2, 0.0, 40, 50, {"cpu": 200, "cuda": 200}),
    "small": Defaults(0.05, 64, 1e-4, 0.1, 5, 50, {"cpu": 400, "cuda": 1000}),
    "large": Defaults(0.05, 64, 2e-5, 0.1, 3, 50, {"cpu": 100, "cuda": 1000}),
}


def resolve(settings: TrainSettings, situation: Situation) -> TrainSettings:
    """Turn automatic values into numbers; what was given stays as it is.

    An epoch is as many steps as it takes to draw every training query once. ``epochs`` of the
    result says how many the run has, whatever decided it.

    Raises:
        SettingError: if ``global_batch_size`` does not divide evenly over the processes.
    """
    defaults = DEFAULTS[situation.model]
    queries_per_batch = min(defaults.queries_per_batch, situation.queries)  # no query twice
    automatic = math.ceil(queries_per_batch / situation.processes)
    per_device = settings.given_per_device(situation.processes) or automatic
    queries_per_step = per_device * situation.processes * settings.gradient_accumulation_steps
    per_epoch = math.ceil(situation.queries / queries_per_step)
    steps = settings.max_steps or _steps(settings.epochs, per_epoch, defaults, situation.device)
    warmup = settings.warmup_ratio
    return settings.with_values(
        {
            "max_steps": steps,
            "epochs": settings.epochs or steps / per_epoch,
            "learning_rate": settings.learning_rate or automatic_rate(situation),
            "warmup_ratio": defaults.warmup_ratio if warmup is None else warmup,
            "temperature": settings.temperature or defaults.temperature,
            "per_device_train_batch_size": per_device,
        }
    )


def automatic_rate(situation: Situation) -> float:
    """The learning rate that such a model trains with where none is given."""
    return DEFAULTS[situation.model].learning_rate * (LORA_RATE if situation.lora else 1)


def reason_for_steps(asked: TrainSettings, situation: Situation) -> str:
    """Say why a run has its number of steps."""
    if asked.max_steps is not None or asked.epochs is not None:
        return "given"
    usual = DEFAULTS[situation.model]
    most = _most_steps(usual, situation.device)
    return f"{usual.epochs:g} epochs, within {usual.least_steps} to {most} steps"


def _steps(epochs: float | None, per_epoch: int, defaults: Defaults, device: str) -> int:
    """Steps of the epochs that were given, or of the default ones within their limits."""
    if epochs is not None:
        return math.ceil(epochs * per_epoch)
    steps = max(math.ceil(defaults.epochs * per_epoch), defaults.least_steps)
    return min(steps, _most_steps(defaults, device))


def _most_steps(defaults: Defaults, device: str) -> int:
    return defaults.most_steps.get(device, defaults.most_steps["cuda"])
