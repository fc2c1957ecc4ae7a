"""Names for methods, data sets and settings in tables: only what sets them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opera.config.training import TrainSettings
from opera.data.names import source_name
from opera.methods import METHODS
from opera.runs.folder import Run

GROUPING = {"seed", "max_steps", "method"}
"""Settings that define groups and so stay out of their labels."""


def method_label(run: Run, differing: frozenset[str] = frozenset()) -> str:
    """Name a run's method with the settings that set it apart: ``sp:k=0.5``.

    These are the method's own, and of the others those that differ between the runs, ``model``
    among them; none at its default. The own ones of a method not registered here must differ too.
    """
    settings = _recorded_settings(run)
    method = METHODS.get(settings["method"])
    own = method.settings_class.model_fields if method else {}
    fields = {**TrainSettings.flat_fields, **own}
    label = settings["method"]
    for name in [*own, *sorted(differing - own.keys())]:
        if name in settings and not (name in fields and settings[name] == fields[name].default):
            label += f":{name}={_format_value(settings[name])}"
    return str(label)


def differing_settings(runs: Sequence[Run]) -> frozenset[str]:
    """Find the settings, ``model`` among them, that differ between runs on one data set.

    What differs between data sets alone sets no run apart from another, and stays out of labels.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in _recorded_settings(run).items():
            found.setdefault((run.record.data.source, name), set()).add(repr(value))
    return frozenset(name for (_, name), values in found.items() if len(values) > 1) - GROUPING


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of training that all runs share and that are not at their default."""
    first, *others = [run.record.identity for run in runs]
    return {
        name: first[name]
        for name, field in TrainSettings.flat_fields.items()
        if name not in GROUPING
        and first.get(name, field.default) != field.default
        and all(repr(other.get(name)) == repr(first[name]) for other in others)
    }


def format_settings(settings: Mapping[str, Any]) -> str:
    """Format settings as on a command line: ``noise=random, noise_share=0.3``."""
    return ", ".join(f"{name}={_format_value(value)}" for name, value in settings.items())


def display_names(sources: Sequence[str]) -> dict[str, str]:
    """Name each data set by the last part of its path, or as the user did where that is shared."""
    short = [short_name(source) for source in sources]
    both = zip(sources, short, strict=True)
    return {source: source if short.count(name) > 1 else name for source, name in both}


def short_name(source: str) -> str:
    """Return the last part of a data set's path, or the name of one that is published."""
    return source_name(source) or Path(source).name.removesuffix(".jsonl") or source


def _recorded_settings(run: Run) -> dict[str, Any]:
    """A run's settings as its user gave them, with the model among them."""
    return {**run.record.identity, "model": short_name(run.record.model.source)}


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ":".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
