"""Collect the rows that break rules, for one message or for a list of skipped rows."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import numpy as np

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shortened

_VALUE = re.compile(r"(, got)? ?\(?\{\}\)?")


class Table(Protocol):
    """A table with rows; see :class:`opera.data.read.Table`."""

    short: str
    mark: str
    skip: str

    def place(self, number: int) -> str:
        """Name a row in messages."""

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of rows."""


class Problems:
    """The rows that break rules.

    Args:
        skip: whether to leave out rows that break a rule; ``None``: the source has no such option.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self.rows: dict[str, dict[Table, array[int]]] = {}
        """The lines or numbers of the rows that break each rule."""
        self._first: dict[str, tuple[Table, int, str]] = {}
        self._read: dict[Table, int] = {}

    def count(self, table: Table, rows: int) -> None:
        """Count rows of a table."""
        self._read[table] = self._read.get(table, 0) + rows

    def add(
        self, table: Table, numbers: Collection[int], rule: str, value: Callable[[], object] = str
    ) -> None:
        """Add rows that break a rule. The first row's ``value`` replaces ``{}`` in the rule."""
        if len(numbers) == 0:
            return
        if rule not in self._first:
            first = next(iter(numbers))
            self._first[rule] = table, int(first), rule.replace("{}", str(value()))
        self.rows.setdefault(rule, {}).setdefault(table, array("q")).extend(map(int, numbers))

    def refuse(self, table: Table, number: int, rule: str, value: object = "") -> None:
        """Add a row that cannot be read."""
        self.count(table, 1)
        self.add(table, [number], rule, lambda: value)

    def broken(self, table: Table) -> IntArray:
        """The rows of a table that break a rule, ascending."""
        return self._numbers(table, self.rows)

    def check(self) -> None:
        """Raise a DataError with all broken rules, unless bad rows are left out."""
        if self.rows and not self.skip:
            raise self.error()

    def error(self) -> DataError:
        """The error with all broken rules: the first bad row and the number of bad rows."""
        lines = []
        for rule, (table, number, text) in self._in_order():
            broken, rows = self._counts([rule])
            count = f" ({broken:,} of {rows:,} rows)" if broken > 1 else ""
            lines.append(f"{table.place(number)}: {text}{count}")
        broken, rows = self._counts(self.rows)
        if self.skip is False and 1 < broken < rows:
            option = next(iter(self._read)).skip
            lines.append(f"{option} leaves out these {broken:,} of {rows:,} rows")
        return DataError(*lines)

    def note(self) -> str:
        """Count the rows that are left out, by rule, with the place of the first row."""
        broken, rows = self._counts(self.rows)
        rules = (
            f"{_short(rule)} ({self._counts([rule])[0]:,}, the first is "
            f"{table.short}{table.mark.format(number)})"
            for rule, (table, number, _) in self._in_order()
        )
        return shortened(f"left out {broken:,} of {rows:,} rows: {'; '.join(rules)}", 2000)

    def left_out(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the rows that are left out. This reads every table again for the texts."""
        for table in self._read:
            reasons: dict[int, list[str]] = {}
            for rule, tables in self.rows.items():
                for number in dict.fromkeys(tables.get(table, ())):
                    reasons.setdefault(number, []).append(_short(rule))
            for number, text in table.originals(reasons.keys()) if reasons else ():
                yield table.short, number, "; ".join(reasons[number]), text

    def _in_order(self) -> list[tuple[str, tuple[Table, int, str]]]:
        """The rules with their first bad row, ordered by file and line."""
        tables = list(self._read)
        return sorted(
            self._first.items(), key=lambda first: (tables.index(first[1][0]), first[1][1])
        )

    def _numbers(self, table: Table, rules: Collection[str]) -> IntArray:
        numbers = [self.rows[rule][table] for rule in rules if table in self.rows[rule]]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *map(np.asarray, numbers)]))

    def _counts(self, rules: Collection[str]) -> tuple[int, int]:
        """The number of rows that break a rule, and the number of all rows in the same tables."""
        broken = {table: len(self._numbers(table, rules)) for table in self._read}
        return sum(broken.values()), sum(self._read[table] for table, n in broken.items() if n)


def _short(rule: str) -> str:
    """A rule without value and advice."""
    return _VALUE.sub("", rule).partition("; ")[0]
