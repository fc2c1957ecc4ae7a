"""Which runs of a grid answer which row of the paper: by data set, method, and every setting of that method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from opera.core.errors import SettingError, nearest
from opera.experiments.analysis import Group
from opera.experiments.paper.tables import PaperRow, PaperTable
from opera.methods import METHODS

PRETRAINED = "Pretrained"
FAMILIES = {"NDCG": "retrieved_ideal_nDCG", "Recall": "R", "MRR": "RR", "Success": "Success"}
"""What each of the paper's measures is called here; its NDCG is not trec_eval's (paper.md, row 8)."""

PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
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
class Wanted:
    """A method and those of its settings that are not at their default."""

    method: str
    settings: Mapping[str, Any]

    def fits(self, settings: Mapping[str, Any]) -> bool:
        """Whether a run with these settings is of this method, with all other settings of it at their default."""
        if settings["method"] != self.method:
            return False
        fields = METHODS[self.method].settings_class.model_fields
        expected = {name: field.default for name, field in fields.items()} | dict(self.settings)
        if expected.get("score") != "cbs":  # without CBS its pool changes nothing
            expected.pop("cbs_pool", None)
        return all(settings.get(name, value) == value for name, value in expected.items())


def wanted(label: str, k: float = 0.25) -> tuple[Wanted, ...]:
    """Say what runs answer a row, from its method in the paper's words; any one of the result will do.

    Args:
        label: such as ``FT``, ``SP.75+DP`` or ``RP25``.
        k: retention rate of a label that holds none.

    Raises:
        KeyError: for a label that is in no table.
    """
    if match := _PRUNED.fullmatch(label):
        pruned, decimals, percent, more = match.groups()
        digits = decimals or percent
        keep = {"k": float(f"0.{digits}") if digits else k}
        if more == " (CBS)":
            return Wanted("sp+cbs", keep), Wanted("sp", {**keep, "score": "cbs"})
        return (Wanted(f"{pruned.lower()}{(more or '').lower()}", keep),)
    method, settings = PLAIN[label]
    return (Wanted(method, settings),)


def data_key(source: str) -> str:
    """Reduce a data set's name, or the source that a run was given, to what both have in common.

    ``../data/tripclick-head/``, ``TripClick (head)`` and ``TripClick (h)`` are all ``tripclickhead``.
    """
    name = PurePosixPath(source.replace("\\", "/")).name.lower()
    key = re.sub(r"[^a-z0-9]", "", name.removesuffix(".jsonl"))
    return {"tripclickh": "tripclickhead", "tripclickt": "tripclicktorso"}.get(key, key)


def our_measure(name: str) -> str | None:
    """Translate the paper's name of a measure, such as ``NDCG@10``; ``None`` for what is no such measure."""
    family, at, cutoff = name.partition("@")
    return f"{FAMILIES[family]}{at}{cutoff}" if family in FAMILIES else None


class Grid:
    """A grid of runs, by data set.

    Args:
        groups: all of the grid's.
        table: the table it is held against.
        steps: take these numbers of steps alone; ``None`` for the largest of each data set.
    """

    def __init__(self, groups: Iterable[Group], table: PaperTable, steps: int | None = None) -> None:
        self.table, self.steps = table, steps
        self._by_data: dict[str, list[Group]] = {}
        for group in groups:
            self._by_data.setdefault(data_key(group.data), []).append(group)

    def has(self, data: str) -> bool:
        """Whether any run is on a data set."""
        return data_key(data) in self._by_data

    def on(self, data: str) -> list[Group]:
        """The groups on a data set whose training labels are those of the table: as they are, or with its noise."""
        groups = self._by_data.get(data_key(data), [])
        return [group for group in groups if _settings(group).get("noise", "none") == self.table.noise]

    def step_counts(self, data: str) -> list[int]:
        """The numbers of steps that are looked at for a data set, ascending."""
        counts = sorted({group.steps for group in self.on(data)})
        if self.steps is not None:
            return [count for count in counts if count == self.steps]
        return counts if self.table.by_steps else counts[-1:]

    def find(self, row: PaperRow, steps: int | None = None) -> list[Group]:
        """The groups that answer a row: none, one, or several that differ in settings the paper does not name.

        Args:
            row: of a data set, not an average.
            steps: the number of steps; ``None`` for the largest that is looked at.
        """
        if row.method == PRETRAINED:
            return sorted(self._by_data.get(data_key(row.data), []), key=lambda group: -len(group.runs))[:1]
        counts = self.step_counts(row.data)
        count = steps if steps is not None else (counts or [-1])[-1]
        if count not in counts:
            return []
        choices = wanted(row.method, self.table.retention.get(row.data, 0.25))
        groups = [group for group in self.on(row.data) if group.steps == count]
        return [group for group in groups if any(choice.fits(_settings(group)) for choice in choices)]

    def models(self, data_sets: Sequence[str]) -> list[str]:
        """Names of the models that the runs on these data sets began from."""
        keys = {data_key(data) for data in data_sets}
        groups = [group for key in keys for group in self._by_data.get(key, [])]
        return sorted({model_name(run.record.model.source) for group in groups for run in group.runs})


def with_settings(groups: Iterable[Group], settings: Mapping[str, Any]) -> list[Group]:
    """The groups whose runs have these settings.

    Raises:
        SettingError: for a name that no run has as a setting.
    """
    everything = list(groups)
    known = {name for group in everything for name in _settings(group)}
    for name in settings:
        if everything and name not in known:
            raise SettingError(f"--set {name}: no run of the grid has such a setting{nearest(name, known)}")
    return [
        group
        for group in everything
        if all(name in _settings(group) and _settings(group)[name] == value for name, value in settings.items())
    ]


def model_name(source: str) -> str:
    """The last part of a model's folder or hub id."""
    return PurePosixPath(str(source).replace("\\", "/")).name


def _settings(group: Group) -> dict[str, Any]:
    return group.runs[0].settings
