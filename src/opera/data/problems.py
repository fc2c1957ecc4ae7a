"""The rows that break rules: one message, or a list of what is left out."""

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
    """What has rows; see :class:`opera.data.read.Table`."""

    short: str
    mark: str
    skip: str

    def place(self, number: int) -> str:
        """Name a row in messages."""

    def originals(self, numbers: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield number and text of some rows."""


class Problems:
    """The rows that break rules: one message, or a list of what is left out.

    Args:
        skip: whether rows that break a rule are left out; ``None``: nobody can ask for that.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self.rows: dict[str, dict[Table, array[int]]] = {}
        """The lines or numbers of the rows that break each rule."""
        self._first: dict[str, tuple[Table, int, str]] = {}
        self._read: dict[Table, int] = {}

    def count(self, table: Table, rows: int) -> None:
        """Take note of rows that were read."""
        self._read[table] = self._read.get(table, 0) + rows

    def add(
        self, table: Table, numbers: Collection[int], rule: str, value: Callable[[], object] = str
    ) -> None:
        """Take rows that break a rule; ``value`` is of the first, and stands for ``{}``."""
        if len(numbers) == 0:
            return
        if rule not in self._first:
            first = next(iter(numbers))
            self._first[rule] = table, int(first), rule.replace("{}", str(value()))
        self.rows.setdefault(rule, {}).setdefault(table, array("q")).extend(map(int, numbers))

    def refuse(self, table: Table, number: int, rule: str, value: object = "") -> None:
        """Take a row that cannot be read at all."""
        self.count(table, 1)
        self.add(table, [number], rule, lambda: value)

    def broken(self, table: Table) -> IntArray:
        """The rows of a table that break a rule, ascending."""
        return self._numbers(table, self.rows)

    def check(self) -> None:
        """Raise a DataError with all rules that rows break, unless these are left out."""
        if self.rows and not self.skip:
            raise self.error()

    def error(self) -> DataError:
        """The error of all rules that rows break: the first row of each, and how many do."""
        lines = []
        for rule, (table, number, text) in self._in_order():
            broken, rows = self._counts([rule])
            many = f" ({broken:,} of {rows:,} rows)" if broken > 1 else ""
            lines.append(f"{table.place(number)}: {text}{many}")
        broken, rows = self._counts(self.rows)
        if self.skip is False and 1 < broken < rows:
            option = next(iter(self._read)).skip
            lines.append(f"{option} leaves out these {broken:,} of {rows:,} rows")
        return DataError(*lines)

    def note(self) -> str:
        """Say how many rows are left out, by rule, and where the first of each stands."""
        broken, rows = self._counts(self.rows)
        kinds = (
            f"{_short(rule)} ({self._counts([rule])[0]:,}, the first is "
            f"{table.short}{table.mark.format(number)})"
            for rule, (table, number, _) in self._in_order()
        )
        return shortened(f"left out {broken:,} of {rows:,} rows: {'; '.join(kinds)}", 2000)

    def left_out(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the rows that are left out; each table is read once more for their texts."""
        for table in self._read:
            reasons: dict[int, list[str]] = {}
            for rule, tables in self.rows.items():
                for number in dict.fromkeys(tables.get(table, ())):
                    reasons.setdefault(number, []).append(_short(rule))
            for number, text in table.originals(reasons.keys()) if reasons else ():
                yield table.short, number, "; ".join(reasons[number]), text

    def _in_order(self) -> list[tuple[str, tuple[Table, int, str]]]:
        """The rules and the first row that breaks each; by file and line."""
        tables = list(self._read)
        return sorted(
            self._first.items(), key=lambda first: (tables.index(first[1][0]), first[1][1])
        )

    def _numbers(self, table: Table, rules: Collection[str]) -> IntArray:
        numbers = [self.rows[rule][table] for rule in rules if table in self.rows[rule]]
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *map(np.asarray, numbers)]))

    def _counts(self, rules: Collection[str]) -> tuple[int, int]:
        """How many rows break one of the rules, and of how many in those tables."""
        broken = {table: len(self._numbers(table, rules)) for table in self._read}
        return sum(broken.values()), sum(self._read[table] for table, n in broken.items() if n)


def _short(rule: str) -> str:
    """A rule without the value, and without what to do."""
    return _VALUE.sub("", rule).partition("; ")[0]
