"""The rules of ids, texts and pairs. Their SQL reads the tables of ``ingest.sql``."""

from __future__ import annotations

from typing import NamedTuple

from opera.core.errors import DataError
from opera.core.terminal import shown

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


CONTROL_SQL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
LEAST, LARGEST = 1e-37, 1e28
"""The range of numbers other than 0. A number, and a sum of 2^31 numbers, must fit into 32 bits."""


def literal_sql(text: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


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
        Rule(column, f"blank({column})", "column {column} must not be empty"),
        Rule(column, f"regexp_matches({column}, '{CONTROL_SQL}')", ONE_LINE),
    ]


def number_rules(column: str) -> list[Rule]:
    """The rules of a number."""
    value, has_value = f"number({column})", f"NOT blank({column})"
    fits = f"{value} IS NOT NULL AND NOT regexp_matches({column}, '[^0-9eE.+ -]')"
    large = f"{value} != 0 AND abs({value}) NOT BETWEEN {LEAST!r} AND {LARGEST!r}"
    finite = "column {column} must be a finite number, got {}"
    return [
        Rule(column, f"blank({column})", "column {column} is missing"),
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
    no_document = "blank(document) AND (title IS NULL OR blank(title))"
    query, document = "coalesce(query, query_id)", "coalesce(document, document_id)"
    texts = [
        Rule("query", f"blank(query) AND {document} IS NOT NULL", empty),
        Rule("document", f"{no_document} AND NOT negative AND {query} IS NOT NULL", empty),
    ]
    fraction = "number(grade) != floor(number(grade)) AND isfinite(number(grade))"
    weighed = f"split IN (SELECT split FROM pairs WHERE {fraction})"  # weights have no limit
    size = "abs(number(grade))"
    large = f"{size} > {MAX_GRADE} AND {size} <= {LARGEST!r} AND NOT {weighed}"
    split = "column {column} must be train, dev or test and agree with the file name, got {}"
    negative = Rule("weight", "number(weight) < 0", "weight must be 0 or more, got {}", True)
    ids = [rule for column in ("query_id", "document_id") for rule in id_rules(column)]
    numbers = [rule for column in ("grade", "weight", "score") for rule in number_rules(column)]
    range_of_grades = Rule("grade", large, BETWEEN, True)
    splits = Rule("split", "NOT known_split", split)
    all_data = [*ids, splits, *numbers, negative, range_of_grades]
    return all_data if lenient else [*texts, *all_data]
