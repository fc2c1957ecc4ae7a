"""The rules of ids, texts and pairs, in Python and in SQL; and the rows that break them.

The SQL reads the tables of relation.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from opera.core.errors import DataError
from opera.core.terminal import shortened, shown

if TYPE_CHECKING:
    from opera.data.read import Table


MAX_GRADE = 1000


def check_string(place: str, value: object) -> str:
    """Check that a value is a string that a file can hold, and return it.

    Args:
        place: start of the message.
        value: the value.

    Raises:
        DataError: with the rule.
    """
    if not isinstance(value, str):
        raise DataError(f"{place} must be a string, got {shown(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # as in a text that ends in the middle of an emoji
        raise DataError(
            f"{place} contains half a character ({value[error.start]!r}, a cut emoji); remove it"
        ) from None
    return value


WHITE = (
    r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""White space as in Python, for a regular expression of DuckDB."""
CONTROL_SQL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
LEAST, LARGEST = 1e-37, 1e28
"""The range of numbers other than 0. A number, and a sum of 2^31 numbers, must fit into 32 bits."""


def blank_sql(column: str) -> str:
    """SQL: true for an empty or white-space text. The first test is fast for ASCII."""
    return f"({column} NOT BETWEEN '!' AND '~' AND NOT regexp_matches({column}, '[^{WHITE}]'))"


def literal_sql(text: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def number_sql(column: str) -> str:
    """The SQL of a text as a number."""
    return f"TRY_CAST({column} AS DOUBLE)"


class Rule(NamedTuple):
    """A rule of the long relation.

    Attributes:
        role: the column of the rule. Its name in the file replaces ``{column}`` in the text.
        broken: the SQL of whether a row breaks the rule.
        text: the rule in words, with advice. The value of the first bad row replaces ``{}``.
        numeric: whether the message shows the value as a number.
    """

    role: str
    broken: str
    text: str
    numeric: bool = False


GRADE = number_sql("grade")
ONE_LINE = (
    "column {column} must not contain a tab, a line break or another control character, got {}"
)
SIZE = f"column {{column}} must be 0, or from {LEAST:g} to {LARGEST:g} in size, got {{}}"
BETWEEN = (
    f"grade must be between -{MAX_GRADE} and {MAX_GRADE}, got {{}}; pass counts, such as clicks, "
    "as weights: --columns weight=COLUMN"
)


def id_rules(column: str) -> list[Rule]:
    """The rules of an id, which must fit into one column of a text file."""
    return [
        Rule(column, blank_sql(column), "column {column} must not be empty"),
        Rule(column, f"regexp_matches({column}, '{CONTROL_SQL}')", ONE_LINE),
    ]


def number_rules(column: str) -> list[Rule]:
    """The rules of a number."""
    value, has_value = number_sql(column), f"NOT {blank_sql(column)}"
    fits = f"{value} IS NOT NULL AND NOT regexp_matches({column}, '[^0-9eE.+ -]')"
    large = f"{value} != 0 AND abs({value}) NOT BETWEEN {LEAST!r} AND {LARGEST!r}"
    finite = "column {column} must be a finite number, got {}"
    return [
        Rule(column, blank_sql(column), "column {column} is missing"),
        Rule(column, f"NOT ({fits}) AND {has_value}", "column {column} must be a number, got {}"),
        Rule(column, f"{fits} AND isinf({value})", finite, True),
        Rule(
            column,
            f"{fits} AND isfinite({value}) AND {large}",
            f"{SIZE}; rescale the column",
            True,
        ),
    ]


def rules(*, lenient: bool) -> list[Rule]:
    """The rules of the relation ``pairs``; see :class:`opera.data.relation.Relation`."""
    empty = "column {column} must not be empty; fill it or remove the row"
    no_document = f"{blank_sql('document')} AND (title IS NULL OR {blank_sql('title')})"
    query, document = "coalesce(query, query_id)", "coalesce(document, document_id)"
    texts = [
        Rule("query", f"{blank_sql('query')} AND {document} IS NOT NULL", empty),
        Rule("document", f"{no_document} AND NOT negative AND {query} IS NOT NULL", empty),
    ]
    fraction = f"{GRADE} != floor({GRADE}) AND isfinite({GRADE})"
    weighed = f"split IN (SELECT split FROM pairs WHERE {fraction})"  # weights have no limit
    large = f"abs({GRADE}) > {MAX_GRADE} AND abs({GRADE}) <= {LARGEST!r} AND NOT {weighed}"
    split = "column {column} must be train, dev or test and agree with the file name, got {}"
    negative = Rule(
        "weight", f"{number_sql('weight')} < 0", "weight must be 0 or more, got {}", True
    )
    ids = [rule for column in ("query_id", "document_id") for rule in id_rules(column)]
    numbers = [rule for column in ("grade", "weight", "score") for rule in number_rules(column)]
    size = Rule("grade", large, BETWEEN, True)
    all_data = [*ids, Rule("split", "NOT known_split", split), *numbers, negative, size]
    return all_data if lenient else [*texts, *all_data]


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
            lines.append(f"pass {option} to leave out these {broken:,} of {rows:,} rows")
        return DataError(*lines)

    def error_or(self, message: str) -> DataError:
        """The error with all broken rules, or with a message if no rule is broken."""
        return self.error() if self.rows else DataError(message)

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
