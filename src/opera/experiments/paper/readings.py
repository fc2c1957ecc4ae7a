"""Readings of the paper: documented ways to fill in what it leaves open, each with settings of its own per method.

``ours`` are OPERA's defaults, ``paper`` and ``release`` the presets of these names (docs/paper.md, "Presets"). A run
that fits several of them, as plain fine-tuning does, counts for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import Any

from opera.config.presets import PRESETS
from opera.methods import METHODS

READINGS = {"ours": "OPERA's defaults", "paper": "the paper's text", "release": "the authors' release"}
"""What each reading is, in the order in which rows show them."""


def method_settings(method: str, reading: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a method in a reading; ``own``, those that a row of the paper states, go before."""
    fields = METHODS[method].settings_class.model_fields
    preset = PRESETS.get(reading, {})
    return {name: preset.get(name, field.default) for name, field in fields.items()} | dict(own)


def fitting_readings(settings: Mapping[str, Any], method: str, own: Mapping[str, Any]) -> frozenset[str]:
    """Find the readings in which a run is the row of a method; none if it is another method's or has other settings.

    Args:
        settings: every setting of the run.
        method: the row's method.
        own: the settings that the row states.
    """
    if settings["method"] != method:
        return frozenset()
    fitting = {reading for reading in READINGS if _has(settings, method_settings(method, reading, own))}
    return frozenset(fitting & {settings.get("preset")} or fitting)


def possible_readings(settings: Mapping[str, Any]) -> frozenset[str]:
    """The readings that a run belongs to whatever its method: that of its preset, else all."""
    preset = settings.get("preset")
    return frozenset({preset} if preset in READINGS else READINGS)


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
