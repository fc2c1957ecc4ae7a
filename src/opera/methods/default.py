"""The method of a training that names none, and the evidence for it; ``opera train`` and ``opera inspect`` share it."""

from __future__ import annotations

AUTO, DEFAULT_METHOD, PRESET_METHOD = "auto", "ft", "dp"
"""What ``method`` is by default, the method that it stands for, and the one under a preset of the paper."""

DEFAULT_REASON = (
    "ft, plain fine-tuning under the guard, is the default: no method beat it in most data sets with the batch, "
    "temperature, steps and share λ as well chosen (docs/samplers.md)."
)
