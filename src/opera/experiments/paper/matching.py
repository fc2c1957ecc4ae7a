"""Which runs of a grid match which row of the paper: by data set, method, and every setting of that method."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from opera.core.errors import SettingError, nearest
from opera.data.names import source_name
from opera.experiments.analysis import Group
from opera.experiments.paper.readings import READINGS, has_method, reading_of
from opera.experiments.paper.tables import PaperRow, PaperTable
from opera.runs.grid_record import GRID_FILE, GridRecord

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
        """Whether a run with these settings has this method, all other settings of it being its reading's."""
        return has_method(settings, self.method, self.settings)


def matching_methods(label: str, k: float = 0.25) -> tuple[MethodSpec, ...]:
    """Translate a method in the paper's words; runs of any one of the results match.

    Args:
        label: a label such as ``FT``, ``SP.75+DP`` or ``RP25``.
        k: retention rate for labels without one.

    Raises:
        KeyError: if no table has the label.
    """
    if match := _PRUNED.fullmatch(label):
        pruned, decimals, percent, suffix = match.groups()
        digits = decimals or percent
        retention = {"k": float(f"0.{digits}") if digits else k}
        if suffix == " (CBS)":
            return MethodSpec("sp+cbs", retention), MethodSpec("sp", {**retention, "score": "cbs"})
        return (MethodSpec(f"{pruned.lower()}{(suffix or '').lower()}", retention),)
    method, settings = METHODS_BY_LABEL[label]
    return (MethodSpec(method, settings),)


def data_key(source: str) -> str:
    """Normalise a data set's name in the paper, or its path, so that the same data set has the same key.

    ``../data/tripclick-head/``, ``paper:tripclick-head`` and ``TripClick (h)`` are all ``tripclickhead``.
    """
    name = (source_name(source) or PurePosixPath(source.replace("\\", "/")).name).lower()
    key = re.sub(r"[^a-z0-9]", "", name.removesuffix(".jsonl"))
    return {"tripclickh": "tripclickhead", "tripclickt": "tripclicktorso"}.get(key, key)


def our_measure(name: str) -> str | None:
    """Translate the paper's name of a measure, such as ``NDCG@10``; ``None`` if it is not a measure of rankings."""
    family, at, cutoff = name.partition("@")
    return f"{FAMILIES[family]}{at}{cutoff}" if family in FAMILIES else None


class GridRuns:
    """A grid's runs, by data set, for matching against a table of the paper.

    Args:
        groups: all of the grid's groups.
        table: the table.
        steps: only this number of steps; ``None`` for each data set's largest.
        scaled: the grid's number of steps for each of the paper's, where they differ.
    """

    def __init__(
        self,
        groups: Iterable[Group],
        table: PaperTable,
        steps: int | None = None,
        scaled: Callable[[int], int] | None = None,
    ) -> None:
        self.table, self.steps, self.scaled = table, steps, scaled
        self._by_data: dict[str, list[Group]] = {}
        for group in groups:
            self._by_data.setdefault(data_key(group.data), []).append(group)

    def has(self, data: str) -> bool:
        """Whether there is a run on a data set."""
        return data_key(data) in self._by_data

    def on_data(self, data: str) -> list[Group]:
        """The groups on a data set with the table's noise setting."""
        groups = self._by_data.get(data_key(data), [])
        return [
            group for group in groups if _settings(group).get("noise", "none") == self.table.noise
        ]

    def step_counts(self, data: str) -> list[int]:
        """The numbers of steps to match on a data set, ascending."""
        counts = sorted({group.steps for group in self.on_data(data)})
        if self.steps is not None:
            return [count for count in counts if count == self.steps]
        return counts if self.table.by_steps else counts[-1:]

    def matching_groups(self, row: PaperRow, steps: int | None, reading: str) -> list[Group]:
        """The groups that match a row: none, one, or several that differ in settings the paper does not name.

        Args:
            row: a row of a data set, not an average.
            steps: the number of steps; ``None`` for the largest of :meth:`step_counts`.
            reading: only runs of this reading of the paper.
        """
        if row.method == PRETRAINED:
            groups = self._by_data.get(data_key(row.data), [])
            own = [group for group in groups if reading_of(_settings(group)) == reading]
            return [max(own, key=lambda group: len(group.runs))] if own else []
        counts = self.step_counts(row.data)
        count = steps if steps is not None else (counts or [-1])[-1]
        specs = matching_methods(row.method, self.table.retention.get(row.data, 0.25))
        return [
            group
            for group in self.on_data(row.data)
            if group.steps == count
            and count in counts
            and reading_of(_settings(group)) == reading
            and any(spec.fits(_settings(group)) for spec in specs)
        ]

    def readings(self, rows: Iterable[PaperRow]) -> list[str]:
        """The readings of the paper that runs that match one of these rows have; ours where there is none."""
        trained = [row for row in rows if row.method != PRETRAINED]
        return [
            reading
            for reading in READINGS
            if any(self.matching_groups(row, self.steps_of(row), reading) for row in trained)
        ] or ["ours"]

    def steps_of(self, row: PaperRow) -> int | None:
        """How many steps runs must have to match a row; ``None`` where the table does not say."""
        if not self.table.by_steps or row.steps is None:
            return None
        return self.scaled(row.steps) if self.scaled else row.steps

    def models(self, data_sets: Sequence[str]) -> list[str]:
        """Names of the models that the runs on these data sets started from."""
        keys = {data_key(data) for data in data_sets}
        groups = [group for key in keys for group in self._by_data.get(key, [])]
        return sorted(
            {model_name(run.record.model.source) for group in groups for run in group.runs}
        )


def with_grid_names(groups: Iterable[Group], folder: Path) -> list[Group]:
    """Name data sets as the grid in a folder does, where ``opera reproduce`` made it: a set may be read from anywhere.

    Raises:
        RunFolderError: if ``grid.json`` is not as OPERA wrote it.
    """
    named = GridRecord.read(folder).data if (folder / GRID_FILE).is_file() else {}
    homes = {(folder / name).resolve(): name for name in named}

    def name_of(group: Group) -> str:
        return next(
            (homes[home] for home in group.runs[0].path.resolve().parents if home in homes),
            group.data,
        )

    return [replace(group, data=name_of(group)) for group in groups]


def with_settings(groups: Iterable[Group], settings: Mapping[str, Any]) -> list[Group]:
    """Select the groups whose runs have these settings.

    Raises:
        SettingError: if no run has a setting of that name.
    """
    everything = list(groups)
    known = {name for group in everything for name in _settings(group)}
    for name in settings:
        if everything and name not in known:
            raise SettingError(
                f"--set {name}: no run of the grid has such a setting{nearest(name, known)}"
            )
    return [
        group
        for group in everything
        if all(
            name in _settings(group) and _settings(group)[name] == value
            for name, value in settings.items()
        )
    ]


def model_name(source: str) -> str:
    """Return the last part of a model's folder or hub id."""
    return PurePosixPath(str(source).replace("\\", "/")).name


def _settings(group: Group) -> dict[str, Any]:
    return group.runs[0].settings
