"""Names for methods, data sets and settings in tables: only what sets them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.data.names import source_name
from opera.methods import method_named
from opera.runs.folder import Run

GROUPING = ("seed", "max_steps", "method")
"""Settings that define groups and so stay out of their labels."""


def method_label(run: Run, differing: frozenset[str] = frozenset()) -> str:
    """Name a run's method with the settings that set it apart: ``sp:k=0.5``.

    The label holds the method's own settings that are not at their default, and training settings
    that differ between runs. Of a method that is not registered here it holds the own settings that
    differ.

    Args:
        run: the run.
        differing: names of the settings, ``model`` among them, that differ between the runs. Those
            at their default are left out.
    """
    settings = _recorded_settings(run)
    own = _own_fields(settings["method"]) or {}
    named = [
        name for name, field in own.items() if name in settings and settings[name] != field.default
    ]
    named += [
        name
        for name in sorted(differing)
        if name not in own and name in settings and not _is_default(name, settings)
    ]
    return ":".join(
        [settings["method"], *(f"{name}={_format_value(settings[name])}" for name in named)]
    )


def differing_settings(runs: Sequence[Run]) -> frozenset[str]:
    """Find the settings of training, ``model`` among them, that differ between runs on one data
    set.

    What differs between data sets alone sets no run apart from another, and stays out of labels.
    Own settings that differ between the runs of one method are among them if the method is not
    registered here.
    """
    by_data: dict[str, list[Run]] = {}
    for run in runs:
        by_data.setdefault(run.record.data.source, []).append(run)
    return frozenset().union(*map(_differing_settings, by_data.values()))


def _differing_settings(runs: Sequence[Run]) -> frozenset[str]:
    names = [name for name in ("model", *TrainSettings.flat_fields) if name not in GROUPING]
    recorded = [_recorded_settings(run) for run in runs]
    differing = _differing(names, recorded)
    for method in {
        values["method"] for values in recorded if _own_fields(values["method"]) is None
    }:
        own = {name for run in runs if run.settings["method"] == method for name in run.settings}
        own -= {*TrainSettings.flat_fields, "method"}
        differing |= _differing(own, [values for values in recorded if values["method"] == method])
    return differing


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of training that all runs share and that are not at their default."""
    recorded = [run.record.identity for run in runs]
    names = [
        name for name in TrainSettings.flat_fields if name not in GROUPING and name in recorded[0]
    ]
    alike = [name for name in names if len({repr(values.get(name)) for values in recorded}) == 1]
    return {name: recorded[0][name] for name in alike if not _is_default(name, recorded[0])}


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


def _differing(names: Iterable[str], recorded: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(
        name for name in names if len({repr(values.get(name)) for values in recorded}) > 1
    )


def _own_fields(method: str) -> Mapping[str, FieldInfo] | None:
    """The declarations of a method's own settings; ``None`` if it is not registered here."""
    try:
        return method_named(method).settings_class.model_fields
    except SettingError:
        return None


def _recorded_settings(run: Run) -> dict[str, Any]:
    """A run's settings as its user gave them, with the model among them."""
    return {**run.record.identity, "model": short_name(run.record.model.source)}


def _is_default(name: str, settings: dict[str, Any]) -> bool:
    field = TrainSettings.flat_fields.get(name)
    return field is not None and settings[name] == field.default


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ":".join(str(part) for part in value)
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
