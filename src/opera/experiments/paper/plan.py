"""A reproduction before it runs: its cells, and the part of them that this call runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opera.core.errors import SettingError
from opera.core.terminal import shown
from opera.experiments.grid.plan import Cell, plan_parts
from opera.experiments.paper.cells import TableSettings, table_parts

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
        first, last = (
            len(by_set) * number // self.count for number in (self.number - 1, self.number)
        )
        return by_set[first:last]


@dataclass(frozen=True)
class ReproductionPlan:
    """What a reproduction runs.

    Attributes:
        shared: the table, and what all its rows share.
        out: the grid's folder.
        sources: where each data set is read from, by its name in the catalogue.
        left_out: why each of the table's other sets that were not left out by name is left out.
        settings_by_set: the settings of each data set, as ``grid.json`` records them.
        cells: all cells.
    """

    shared: TableSettings
    out: Path
    sources: Mapping[str, str]
    left_out: Mapping[str, str]
    settings_by_set: dict[str, dict[str, Any]]
    cells: tuple[Cell, ...]

    @property
    def model(self) -> str:
        """The model that all cells start from."""
        return self.shared.model


def plan_reproduction(
    shared: TableSettings, out: Path, sources: Mapping[str, str], left_out: Mapping[str, str]
) -> ReproductionPlan:
    """List the cells of a reproduction and check every recipe. Looks at no data and no model.

    Raises:
        SettingError: for wrong settings, all of them at once.
    """
    shared.check()
    parts = table_parts(shared, sources)
    by_set = {part.name: dict(part.shared) for part in parts}
    return ReproductionPlan(shared, out, sources, left_out, by_set, tuple(plan_parts(parts, out)))
