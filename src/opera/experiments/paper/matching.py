"""Which runs of a grid match which row of the paper: by data set, method, and all its settings.

Where a row states no value, a run has its preset's, or OPERA's default without a preset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from opera.config.presets import PRESETS
from opera.core.errors import SettingError, nearest
from opera.data.names import source_name
from opera.experiments.analysis import Group
from opera.experiments.paper.tables import PaperRow, PaperTable
from opera.methods import METHODS
from opera.runs.record import grid_in

PRETRAINED = "Pretrained"
FAMILIES = {"NDCG": "retrieved_ideal_nDCG", "Recall": "R", "MRR": "RR", "Success": "Success"}
"""Our names of the paper's measures; its NDCG is not trec_eval's (paper.md, row 8)."""

METHODS_BY_LABEL: dict[str, tuple[str, dict[str, Any]]] = {
    "FT": ("ft", {}),
    "InfoBatch": ("infobatch", {}),
    "DP": ("dp", {}),
    "DP (full)": ("dp", {}),
    "DP w/ Both": ("dp", {}),
    "DP w/ Query Sel.": ("dp", {"levels": "query"}),
    "DP w/ Doc Sel.": ("dp", {"levels": "document"}),
    "DP (hard cutoff)": ("dp", {"soft": False}),
    "DP (fixed-strength)": ("dp", {"alpha_start": 4, "alpha_end": 4, "v_end": 0.25}),
    "DP (α: 2→5, default)": ("dp", {}),
    "DP (α: 5→2, reversed)": ("dp", {"alpha_start": 5, "alpha_end": 2}),
    "DP (I_u = 1)": ("dp", {"update_interval": 1}),
    "DP (I_u = 10)": ("dp", {"update_interval": 10}),
    "DP (I_u = 100)": ("dp", {"update_interval": 100}),
}
_PRUNED = re.compile(r"(SP|RP)(?:\.(\d+)|(\d+))?( \(CBS\)|\+DP)?")


@dataclass(frozen=True)
class MethodSpec:
    """A method and the settings that a row states."""

    method: str
    settings: Mapping[str, Any]

    def fits(self, settings: Mapping[str, Any]) -> bool:
        """Whether a run has this method, and its preset's settings where the row states none."""
        expected = method_settings(self.method, settings.get("preset")) | dict(self.settings)
        if expected.get("score") != "cbs":
            expected.pop("cbs_pool", None)  # without CBS its pool changes nothing
        return settings["method"] == self.method and all(
            settings.get(name, value) == value for name, value in expected.items()
        )


def method_settings(method: str, preset: str | None) -> dict[str, Any]:
    """Return all settings of a method with a preset."""
    values, fields = PRESETS.get(preset or "", {}), METHODS[method].settings_class.model_fields
    return {name: values.get(name, field.default) for name, field in fields.items()}


def matching_methods(label: str, k: float = 0.25) -> tuple[MethodSpec, ...]:
    """Translate a method in the paper's words; runs of any one of the results match.

    ``k`` is the retention rate of labels without one. KeyError if no table has the label.
    """
    if match := _PRUNED.fullmatch(label):
        pruned, decimals, percent, suffix = match.groups()
        digits = decimals or percent
        retention = {"k": float(f"0.{digits}") if digits else k}
        if suffix == " (CBS)":
            return MethodSpec("sp+cbs", retention), MethodSpec("sp", {**retention, "score": "cbs"})
        return (MethodSpec(f"{pruned.lower()}{(suffix or '').lower()}", retention),)
    return (MethodSpec(*METHODS_BY_LABEL[label]),)


def row_methods(table: PaperTable, row: PaperRow) -> tuple[MethodSpec, ...]:
    """The method of a row, with the settings that the table states."""
    return matching_methods(row.method, table.retention.get(row.data, 0.25))


def data_key(source: str) -> str:
    """Normalise a data set's name in the paper, or its path, so that the same one has one key.

    ``../data/tripclick-head/``, ``paper:tripclick-head`` and ``TripClick (h)`` are all
    ``tripclickhead``.
    """
    name = (source_name(source) or PurePosixPath(source.replace("\\", "/")).name).lower()
    key = re.sub(r"[^a-z0-9]", "", name.removesuffix(".jsonl"))
    return {"tripclickh": "tripclickhead", "tripclickt": "tripclicktorso"}.get(key, key)


def our_measure(name: str) -> str | None:
    """Translate the paper's name of a measure; ``None`` if it is not a measure of rankings."""
    family, at, cutoff = name.partition("@")
    return f"{FAMILIES[family]}{at}{cutoff}" if family in FAMILIES else None


class GridRuns:
    """A grid's runs, by data set, for matching against a table of the paper.

    With ``steps`` only runs of this number count, else each data set's largest. ``scaled`` gives
    the grid's number of steps for each of the paper's, where they differ.
    """

    def __init__(
        self,
        groups: Iterable[Group],
        table: PaperTable,
        steps: int | None = None,
        scaled: Callable[[int], int] | None = None,
    ) -> None:
        self.table, self.steps, self.scaled = table, steps, scaled
        groups = list(groups)
        presets = sorted({str(_settings(group).get("preset") or "null") for group in groups})
        if len(presets) > 1:
            several = f"--grid: holds runs of several presets ({', '.join(presets)})"
            raise SettingError(f"{several}; pick one by --set preset=NAME; null for runs without")
        self._by_data: dict[str, list[Group]] = {}
        for group in groups:
            self._by_data.setdefault(data_key(group.data), []).append(group)

    def on_data(self, data: str) -> list[Group]:
        """The groups on a data set."""
        return self._by_data.get(data_key(data), [])

    def step_counts(self, data: str) -> list[int]:
        """The numbers of steps to match on a data set, ascending."""
        counts = sorted({group.steps for group in self._with_noise(data)})
        if self.steps is not None:
            return [count for count in counts if count == self.steps]
        return counts if self.table.by_steps else counts[-1:]

    def matching_groups(self, row: PaperRow) -> list[Group]:
        """The groups that match a row of a data set.

        None, one, or several that differ in settings the paper does not name.
        """
        if row.method == PRETRAINED:
            return sorted(self.on_data(row.data), key=lambda group: -len(group.runs))[:1]
        counts = self.step_counts(row.data)
        steps = counts[-1] if counts else -1
        if self.table.by_steps and row.steps is not None:
            steps = self.scaled(row.steps) if self.scaled else row.steps
        if steps not in counts:
            return []
        specs = row_methods(self.table, row)
        groups = [group for group in self._with_noise(row.data) if group.steps == steps]
        return [g for g in groups if any(spec.fits(_settings(g)) for spec in specs)]

    def models(self, data_sets: Iterable[str]) -> list[str]:
        """Names of the models that the runs on these data sets started from."""
        groups = [group for key in {*map(data_key, data_sets)} for group in self.on_data(key)]
        sources = {run.record.model.source for group in groups for run in group.runs}
        return sorted({PurePosixPath(source.replace("\\", "/")).name for source in sources})

    def _with_noise(self, data: str) -> list[Group]:
        """The groups on a data set with the table's noise setting."""
        noise = self.table.noise
        return [g for g in self.on_data(data) if _settings(g).get("noise", "none") == noise]


def with_grid_names(groups: Iterable[Group], folder: Path) -> list[Group]:
    """Name data sets as the grid in a folder does, if ``opera reproduce`` made it.

    It reads a set from anywhere. RunFolderError if ``grid.json`` is not as OPERA wrote it.
    """
    record = grid_in(folder)
    homes = {(folder / name).resolve(): name for name in (record.data if record else {})}

    def name_of(group: Group) -> str:
        parents = group.runs[0].path.resolve().parents
        return next((homes[home] for home in parents if home in homes), group.data)

    return [replace(group, data=name_of(group)) for group in groups]


def with_settings(groups: Iterable[Group], settings: Mapping[str, Any]) -> list[Group]:
    """Select the groups whose runs have these settings; SettingError for one that no run has."""
    everything = list(groups)
    known = {name for group in everything for name in _settings(group)}
    for name in settings:
        if everything and name not in known:
            raise SettingError(
                f"--set {name}: no run of the grid has such a setting{nearest(name, known)}"
            )

    def has_all(own: Mapping[str, Any]) -> bool:
        return all(name in own and own[name] == value for name, value in settings.items())

    return [group for group in everything if has_all(_settings(group))]


def _settings(group: Group) -> dict[str, Any]:
    return group.runs[0].settings
