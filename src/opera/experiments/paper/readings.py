"""Readings of the paper: documented ways to fill in what it leaves open, each with settings of its own per method.

``ours`` are OPERA's defaults, ``paper`` and ``release`` the presets of these names (docs/paper.md, "Presets"). A run
with a preset counts for that reading alone. One without counts for each that it fits; for ``paper`` and ``release`` its
batch per step and :data:`TRAINING` must be theirs too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Any

from opera.config.presets import PRESETS
from opera.config.training import TrainSettings
from opera.methods import METHODS

READINGS = {"ours": "OPERA's defaults", "paper": "the paper's text", "release": "the authors' release"}
"""What each reading is, in the order in which rows show them."""

TRAINING = ("warmup_ratio", "weight_decay", "temperature", "corpus_text", "prune_before_mining")
"""Settings of training that a run without a preset must share with the paper's text or the release to count for it."""


def method_settings(method: str, reading: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a method in a reading; ``own``, those that a row of the paper states, go before."""
    fields = METHODS[method].settings_class.model_fields
    preset = PRESETS.get(reading, {})
    return {name: preset.get(name, field.default) for name, field in fields.items()} | dict(own)


def fitting_readings(
    settings: Mapping[str, Any], method: str, own: Mapping[str, Any], processes: int = 1
) -> frozenset[str]:
    """Find the readings in which a run is the row of a method; none if it is another method's or has other settings.

    Args:
        settings: every setting of the run.
        method: the row's method.
        own: the settings that the row states.
        processes: how many processes trained together.
    """
    if settings["method"] != method:
        return frozenset()
    possible = possible_readings(settings, processes)
    return frozenset(reading for reading in possible if _has(settings, method_settings(method, reading, own)))


def possible_readings(settings: Mapping[str, Any], processes: int = 1) -> frozenset[str]:
    """The readings that a run belongs to whatever its method: its preset's; else ours and those it trains as."""
    preset = settings.get("preset")
    if preset is not None:
        return frozenset({str(preset)})
    return frozenset({"ours"} | {reading for reading in PRESETS if _trains_as(settings, reading, processes)})


def _trains_as(settings: Mapping[str, Any], reading: str, processes: int) -> bool:
    """Whether a run has a reading's settings of training."""
    preset, fields = PRESETS[reading], TrainSettings.flat_fields
    return _queries_per_step(settings, processes) == preset["global_batch_size"] and all(
        settings.get(name, fields[name].default) == preset.get(name, fields[name].default) for name in TRAINING
    )


def _queries_per_step(settings: Mapping[str, Any], processes: int) -> int | None:
    """Queries of an optimizer step; ``None`` where the run does not say."""
    if whole := settings.get("global_batch_size"):
        return int(whole)
    per_device = settings.get("per_device_train_batch_size")
    return per_device and int(per_device) * processes * int(settings.get("gradient_accumulation_steps", 1))


def fewest_readings(found: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Choose the fewest readings that have one of each of these; the first one alone where there is nothing."""
    wanted = [set(readings) for readings in found]
    for count in range(1, len(READINGS) + 1):
        for chosen in combinations(READINGS, count):
            if all(readings & set(chosen) for readings in wanted):
                return chosen
    return tuple(READINGS)


def _has(settings: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    without_cbs = expected.get("score") != "cbs"  # without CBS its pool changes nothing
    return all(
        settings.get(name, value) == value
        for name, value in expected.items()
        if not (without_cbs and name == "cbs_pool")
    )
