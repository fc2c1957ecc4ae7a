"""A reproduction before it runs: its cells, the part of them that this call runs, and what ``grid.json`` records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opera.core.errors import SettingError
from opera.core.terminal import shown
from opera.experiments.grid.plan import Cell, GridPart, plan_parts
from opera.experiments.reproduce.cells import TableSettings, settings_by_set, table_parts
from opera.experiments.reproduce.sets import ChosenSets

MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Shard:
    """One part of the cells: ``--shard 3/32`` is part 3 of 32.

    Attributes:
        number: which part, from 1.
        count: how many parts there are.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``K/N``.

        Raises:
            SettingError: if it is anything else.
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MOST_SHARDS:
            rule = f"must be K/N with 1 <= K <= N <= {MOST_SHARDS:,}, such as 3/32"
            raise SettingError(f"--shard: {rule}, got {shown(text)}")
        return cls(int(match[1]), int(match[2]))

    @property
    def name(self) -> str:
        """Name of its lock."""
        return f"{self.number}-of-{self.count}"

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """This part of the cells. Neighbours by data set stay together, so that few shards encode the same corpus."""
        names = list(dict.fromkeys(cell.data_name for cell in cells))
        by_set = sorted(cells, key=lambda cell: names.index(cell.data_name))
        first, last = (len(by_set) * number // self.count for number in (self.number - 1, self.number))
        return by_set[first:last]


@dataclass(frozen=True)
class ReproductionPlan:
    """What a reproduction runs.

    Attributes:
        shared: the table, and what all its rows share.
        out: the grid's folder.
        chosen: the data sets.
        parts: the grid's parts, one per data set and number of steps.
        cells: all cells.
    """

    shared: TableSettings
    out: Path
    chosen: ChosenSets
    parts: tuple[GridPart, ...]
    cells: tuple[Cell, ...]

    @property
    def model(self) -> str:
        """The model that all cells start from."""
        return self.shared.model

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each data set is read from, by its name in the catalogue."""
        return self.chosen.sources

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why each of the table's other sets is left out."""
        return self.chosen.left_out

    @property
    def settings_by_set(self) -> dict[str, dict[str, Any]]:
        """The settings of each data set, as ``grid.json`` records them."""
        return settings_by_set(self.parts)

    def with_sets(self, chosen: ChosenSets) -> ReproductionPlan:
        """The plan with fewer data sets; the cells of the others stay as they are."""
        parts = tuple(part for part in self.parts if part.name in chosen.sources)
        cells = tuple(cell for cell in self.cells if cell.data_name in chosen.sources)
        return replace(self, chosen=chosen, parts=parts, cells=cells)

    def without(self, reasons: Mapping[str, str]) -> ReproductionPlan:
        """The plan without some data sets, by name with the reason."""
        return self.with_sets(self.chosen.without(reasons))


def plan_reproduction(shared: TableSettings, out: Path, chosen: ChosenSets) -> ReproductionPlan:
    """List the cells of a reproduction and check every recipe. Looks at no data and no model.

    Raises:
        SettingError: for wrong settings, all of them at once.
    """
    shared.check()
    parts = table_parts(shared, chosen.sources)
    return ReproductionPlan(shared, out, chosen, tuple(parts), tuple(plan_parts(parts, out)))
