"""Readings of the paper: documented ways to fill in what it leaves open, each with settings of its own per method.

``ours`` are OPERA's defaults, ``paper`` and ``release`` the presets of these names (docs/paper.md, "Presets"). A run
with a preset counts for that reading, one without for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opera.config.presets import PRESETS
from opera.methods import METHODS

READINGS = {
    "ours": "OPERA's defaults",
    "paper": "the paper's text",
    "release": "the authors' release",
}
"""What each reading is, in the order in which rows show them."""


def reading_of(settings: Mapping[str, Any]) -> str:
    """The reading that a run belongs to, by all of its settings."""
    return str(settings.get("preset") or "ours")


def method_settings(method: str, reading: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a method in a reading; ``own``, those that a row of the paper states, go before."""
    fields = METHODS[method].settings_class.model_fields
    preset = PRESETS.get(reading, {})
    return {name: preset.get(name, field.default) for name, field in fields.items()} | dict(own)


def has_method(settings: Mapping[str, Any], method: str, own: Mapping[str, Any]) -> bool:
    """Whether a run has a row's method, with the settings that the row states and its own reading's for the others."""
    expected = method_settings(method, reading_of(settings), own)
    if expected.get("score") != "cbs":
        expected.pop("cbs_pool", None)  # without CBS its pool changes nothing
    return settings["method"] == method and all(
        settings.get(name, value) == value for name, value in expected.items()
    )
