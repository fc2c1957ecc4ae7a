"""Collect the rows that break rules, for one message or for a list of skipped rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from opera.core.errors import DataError
from opera.core.terminal import shortened

if TYPE_CHECKING:
    from opera.data.read import Table

FEW_ROWS, MOST_LEFT_OUT = 20, 0.5
"""Largest number and fraction of rows to leave out. If more are bad, the options are probably
wrong."""
_VALUE = re.compile(r"(, got)? ?\(?\{\}\)?")


class Problems:
    """The rows that break rules.

    Args:
        skip: whether to leave out rows that break a rule; ``None``: the source has no such option.
    """

    def __init__(self, skip: bool | None = None) -> None:
        self.skip = skip
        self.rows: dict[str, dict[Table, set[int]]] = {}
        """The numbers in the relation of the rows that break each rule."""
        self._first: dict[str, tuple[Table, int, str]] = {}
        self._read: dict[Table, int] = {}

    def count(self, table: Table, rows: int) -> None:
        """Count rows of a table."""
        self._read[table] = self._read.get(table, 0) + rows

    def add(self, table: Table, numbers: Collection[int], rule: str, value: object = "") -> None:
        """Add rows that break a rule. The first row's ``value`` replaces ``{}`` in the rule."""
        lines = [int(number) for number in numbers]
        self._first.setdefault(rule, (table, lines[0], rule.replace("{}", str(value))))
        self.rows.setdefault(rule, {}).setdefault(table, set()).update(lines)

    def refuse(self, table: Table, number: int, rule: str, value: object) -> None:
        """Add a row that cannot be read."""
        self.count(table, 1)
        self.add(table, [number], rule, value)

    def broken(self, table: Table, *rules: str) -> set[int]:
        """The rows of a table that break one of the rules, by default any rule."""
        return set().union(*(self.rows[rule].get(table, ()) for rule in rules or self.rows))

    def check(self) -> None:
        """Raise a DataError with all broken rules, unless bad rows are skipped and are few or
        under half of the rows.
        """
        broken, rows = self._counts()
        if self.rows and not self.skip:
            raise self.error()
        if broken > max(FEW_ROWS, MOST_LEFT_OUT * rows):
            option = next(iter(self._read)).skip
            raise DataError(
                *self.error().lines,
                f"{option} would leave out {broken:,} of {rows:,} rows, which is too much: correct "
                "the file, or the options that say how to read it",
            )

    def error(self) -> DataError:
        """The error with all broken rules: the first bad row and the number of bad rows."""
        lines = []
        for rule, (table, number, text) in self._in_order():
            broken, rows = self._counts(rule)
            count = f" ({broken:,} of {rows:,} rows)" if broken > 1 else ""
            lines.append(f"{table.place(number)}: {text}{count}")
        broken, rows = self._counts()
        if self.skip is False and 1 < broken < rows:
            option = next(iter(self._read)).skip
            lines.append(f"{option} leaves out these {broken:,} of {rows:,} rows")
        return DataError(*lines)

    def note(self) -> str:
        """Count the rows that are left out, by rule, with the place of the first row."""
        broken, rows = self._counts()
        rules = (
            f"{_short(rule)} ({self._counts(rule)[0]:,}, the first is "
            f"{table.short}{table.mark.format(table.line(number))})"
            for rule, (table, number, _) in self._in_order()
        )
        return shortened(f"left out {broken:,} of {rows:,} rows: {'; '.join(rules)}", 2000)

    def left_out(self) -> Iterator[tuple[str, int, str, str]]:
        """Yield the rows that are left out. This reads every table again for the texts."""
        for table in self._read:
            numbers = {table.line(number): number for number in self.broken(table)}
            for line, text in table.originals(numbers) if numbers else ():
                number = numbers[line]
                rules = [rule for rule in self.rows if number in self.rows[rule].get(table, ())]
                yield table.short, line, "; ".join(map(_short, rules)), text

    def _in_order(self) -> list[tuple[str, tuple[Table, int, str]]]:
        """The rules with their first bad row, ordered by file and line."""
        tables = list(self._read)
        return sorted(
            self._first.items(), key=lambda first: (tables.index(first[1][0]), first[1][1])
        )

    def _counts(self, *rules: str) -> tuple[int, int]:
        """The number of rows that break a rule, and the number of all rows in the same tables."""
        broken = {table: len(self.broken(table, *rules)) for table in self._read}
        return sum(broken.values()), sum(self._read[table] for table, n in broken.items() if n)


def _short(rule: str) -> str:
    """A rule without value and advice."""
    return _VALUE.sub("", rule).partition("; ")[0]
