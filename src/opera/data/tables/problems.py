"""What is wrong with rows of tables, by rule: one message, or a list of what is left out."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import DataError
from opera.core.terminal import shortened

if TYPE_CHECKING:
    from opera.data.tables.rows import TableFile

_VALUE = re.compile(r"(, got)? ?\(?\{\}\)?")


class At(NamedTuple):
    """Where a row stands: its table, and its line or number there."""

    table: TableFile
    number: int

    def __str__(self) -> str:
        return self.table.place(self.number)


Place = Callable[[int], At]
"""Says where a row stands, by its number among those that are read together."""


class Places:
    """Where rows stand, by their numbers from the first batch on."""

    def __init__(self) -> None:
        self._starts, self._parts = [0], list[Place]()

    def add(self, rows: int, place: Place) -> None:
        """Take a batch: how many rows, and where each of them stands."""
        self._parts.append(place)
        self._starts.append(len(self) + rows)

    def __len__(self) -> int:
        return self._starts[-1]

    def __call__(self, row: int) -> At:
        """Say where a row stands."""
        at = bisect_right(self._starts, row) - 1
        return self._parts[at](row - self._starts[at])


class Problems:
    """What is wrong with rows, by rule.

    Args:
        skip: whether rows that break a rule are left out; ``None``: nobody can ask for that.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self._first: dict[str, tuple[At, str]] = {}
        self._broken: dict[str, dict[TableFile, array[int]]] = {}
        self._read: dict[TableFile, int] = {}

    def count(self, table: TableFile, rows: int) -> None:
        """Take note of rows that were read."""
        self._read[table] = self._read.get(table, 0) + rows

    def add(
        self, rows: IntArray, place: Place, rule: str, value: Callable[[], object] = str
    ) -> None:
        """Take rows that break a rule.

        Args:
            rows: their numbers, ascending; one that occurs twice counts once.
            place: says where a row stands.
            rule: in words; ``{}`` stands for the first wrong value.
            value: that value.
        """
        for row in np.unique(rows).tolist():
            at = place(row)
            if rule not in self._first:
                self._first[rule] = at, rule.replace("{}", str(value()))
            self._broken.setdefault(rule, {}).setdefault(at.table, array("q")).append(at.number)

    def refuse(self, at: At, rule: str, value: object = "") -> None:
        """Take a row that cannot be read at all."""
        self.count(at.table, 1)
        self.add(np.zeros(1, dtype=np.int64), lambda _: at, rule, lambda: value)

    def breaks(self, table: TableFile, numbers: IntArray | range) -> BoolArray:
        """Whether each row of a table breaks a rule, by its line or number: bool."""
        return np.isin(np.asarray(numbers), self._numbers(table))

    def check(self) -> None:
        """Raise a DataError with all rules that rows break, unless these are left out."""
        if self._first and not self.skip:
            raise self.error()

    def error(self) -> DataError:
        """The error of all rules that rows break: the first row of each, and how many do."""
        lines = []
        for rule, at, text in self._in_order():
            count, rows = self._counts(rule)
            lines.append(f"{at}: {text}" + (f" ({count:,} of {rows:,} rows)" if count > 1 else ""))
        left, rows = self._counts()
        if self.skip is False and 1 < left < rows:
            option = next(iter(self._read)).skip
            lines.append(f"{option} leaves out these {left:,} of {rows:,} rows")
        return DataError(*lines)

    def note(self) -> str:
        """Say how many rows are left out, by rule, and where the first of each stands."""
        left, rows = self._counts()
        kinds = (
            f"{_kind(rule)} ({self._counts(rule)[0]:,}, the first is "
            f"{at.table.short}{at.table.mark.format(at.number)})"
            for rule, at, _ in self._in_order()
        )
        return shortened(f"left out {left:,} of {rows:,} rows: {'; '.join(kinds)}", 2000)

    def left_out(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the rows that are left out; each table is read once more for their texts."""
        for table in self._read:
            reasons: dict[int, list[str]] = {}
            for rule, broken in self._broken.items():
                for number in broken.get(table, ()):
                    reasons.setdefault(number, []).append(_kind(rule))
            for number, text in table.originals(reasons.keys()) if reasons else ():
                yield table.short, number, "; ".join(reasons[number]), text

    @property
    def found(self) -> bool:
        """Whether any row breaks a rule."""
        return bool(self._first)

    def _in_order(self) -> list[tuple[str, At, str]]:
        """The rules, the first row that breaks each, and what is wrong there; by file and line."""
        tables = list(self._read)
        found = [(rule, at, text) for rule, (at, text) in self._first.items()]
        return sorted(found, key=lambda own: (tables.index(own[1].table), own[1].number))

    def _numbers(self, table: TableFile, rule: str | None = None) -> IntArray:
        """The rows of a table that break a rule, or any; ascending."""
        rules = self._broken.values() if rule is None else [self._broken[rule]]
        found = [np.array(own[table], dtype=np.int64) for own in rules if table in own]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))

    def _counts(self, rule: str | None = None) -> tuple[int, int]:
        """How many rows break a rule, or any, and of how many in those tables."""
        broken = {table: len(self._numbers(table, rule)) for table in self._read}
        return sum(broken.values()), sum(self._read[own] for own, count in broken.items() if count)


def _kind(rule: str) -> str:
    """A rule without the value, and without what to do."""
    return _VALUE.sub("", rule).partition("; ")[0]
