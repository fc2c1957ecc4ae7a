"""The rules of pairs and texts, as SQL over the long relation; and the rows that break one."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.terminal import shortened
from opera.data.checks import MAX_GRADE

if TYPE_CHECKING:
    from opera.data.read import Table

WHITE = (
    r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""White space, as Python has it, for a regular expression of DuckDB."""
CONTROL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
LEAST, LARGEST = 1e-37, 1e28
"""Sizes of numbers that are not 0: they are kept in 32 bits, and so is the sum of 2^31 of them."""
_VALUE = re.compile(r"(, got)? ?\(?\{\}\)?")
EMPTY = "must not be empty; fill it or remove the row"


def blank(column: str) -> str:
    """SQL: whether a text is empty or white space; most begin with another ASCII character."""
    return f"({column} NOT BETWEEN '!' AND '~' AND NOT regexp_matches({column}, '[^{WHITE}]'))"


def number(column: str) -> str:
    """SQL: the number that a text is."""
    return f"TRY_CAST({column} AS DOUBLE)"


class Rule(NamedTuple):
    """A rule of the long relation.

    Attributes:
        role: the column that it is about; its name in the file stands for ``{column}``.
        broken: SQL: whether a row breaks the rule.
        text: the rule in words, with advice; ``{}`` stands for the value of the first row.
        numeric: whether the value is shown as a number.
    """

    role: str
    broken: str
    text: str
    numeric: bool = False


GRADE = number("grade")
WHOLE = "column {column} must not hold a tab, a line break or another control character, got {}"
SIZE = f"column {{column}} must be 0, or from {LEAST:g} to {LARGEST:g} in size, got {{}}"
BETWEEN = f"grade must lie between -{MAX_GRADE} and {MAX_GRADE}, got {{}}"


def id_rules(column: str) -> list[Rule]:
    """The rules of an id, which must fit into one column of a line."""
    return [
        Rule(column, blank(column), "column {column} must not be empty"),
        Rule(column, f"regexp_matches({column}, '{CONTROL}')", WHOLE),
    ]


def number_rules(column: str) -> list[Rule]:
    """The rules of a number."""
    value, said = number(column), f"NOT {blank(column)}"
    fits = f"{value} IS NOT NULL AND NOT regexp_matches({column}, '[^0-9eE.+ -]')"
    large = f"{value} != 0 AND abs({value}) NOT BETWEEN {LEAST!r} AND {LARGEST!r}"
    finite = "column {column} must be a finite number, got {}"
    return [
        Rule(column, blank(column), "column {column} is missing"),
        Rule(column, f"NOT ({fits}) AND {said}", "column {column} must be a number, got {}"),
        Rule(column, f"{fits} AND isinf({value})", finite, True),
        Rule(
            column,
            f"{fits} AND isfinite({value}) AND {large}",
            f"{SIZE}; multiply all by one number",
            True,
        ),
    ]


def rules(*, lines: bool, lenient: bool) -> list[Rule]:
    """The rules of the relation ``pairs``; see :class:`opera.data.relation.Relation`."""
    empty, no_document = f"column {{column}} {EMPTY}", blank("document")
    if lines:
        no_document += f" AND (title IS NULL OR {blank('title')})"
    asked, answered = "coalesce(query, query_id)", "coalesce(document, document_id)"
    texts = [
        Rule("query", f"{blank('query')} AND {answered} IS NOT NULL", empty),
        Rule("document", f"{no_document} AND NOT negative AND {asked} IS NOT NULL", empty),
    ]
    fraction = f"{GRADE} != floor({GRADE}) AND isfinite({GRADE})"
    large = f"abs({GRADE}) > {MAX_GRADE} AND abs({GRADE}) <= {LARGEST!r}"
    if lines:
        whole = "grade must be a whole number, got {}"
        grades = [
            Rule("grade", large, BETWEEN, True),
            Rule("grade", f"{fraction} AND abs({GRADE}) < {MAX_GRADE}", whole, True),
        ]
    else:  # fractions are weights, of any size
        weighed = f"split IN (SELECT split FROM pairs WHERE {fraction})"
        advice = "counts, as of clicks, are weights: --columns weight=COLUMN"
        grades = [Rule("grade", f"{large} AND NOT {weighed}", f"{BETWEEN}; {advice}", True)]
    split = "column {column} must be train, dev or test, got {}"
    negative = Rule("weight", f"{number('weight')} < 0", "weight must be 0 or more, got {}", True)
    named = [rule for column in ("query_id", "document_id") for rule in id_rules(column)]
    numbers = [rule for column in ("grade", "weight", "score") for rule in number_rules(column)]
    checked = [*named, Rule("split", "NOT known_split", split), *numbers, negative, *grades]
    return checked if lenient else [*texts, *checked]


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
        return sum(broken.values()), sum(self._read[own] for own, n in broken.items() if n)


def _short(rule: str) -> str:
    """A rule without the value, and without what to do."""
    return _VALUE.sub("", rule).partition("; ")[0]
