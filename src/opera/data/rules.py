"""The rules of pairs and texts, as SQL over the long relation."""

from __future__ import annotations

from typing import NamedTuple

from opera.data.checks import MAX_GRADE

WHITE = (
    r"\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
"""White space, as Python has it, for a regular expression of DuckDB."""
CONTROL = r"[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]"
LEAST, LARGEST = 1e-37, 1e28
"""Sizes of numbers that are not 0: they are kept in 32 bits, and so is the sum of 2^31 of them."""
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
BETWEEN = (
    f"grade must lie between -{MAX_GRADE} and {MAX_GRADE}, got {{}}; counts, as of clicks, are "
    "weights: --columns weight=COLUMN"
)


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


def rules(*, lenient: bool) -> list[Rule]:
    """The rules of the relation ``pairs``; see :class:`opera.data.relation.Relation`."""
    empty = f"column {{column}} {EMPTY}"
    no_document = f"{blank('document')} AND (title IS NULL OR {blank('title')})"
    asked, answered = "coalesce(query, query_id)", "coalesce(document, document_id)"
    texts = [
        Rule("query", f"{blank('query')} AND {answered} IS NOT NULL", empty),
        Rule("document", f"{no_document} AND NOT negative AND {asked} IS NOT NULL", empty),
    ]
    fraction = f"{GRADE} != floor({GRADE}) AND isfinite({GRADE})"
    weighed = f"split IN (SELECT split FROM pairs WHERE {fraction})"  # of any size
    large = f"abs({GRADE}) > {MAX_GRADE} AND abs({GRADE}) <= {LARGEST!r} AND NOT {weighed}"
    split = "column {column} must be train, dev or test, got {}"
    negative = Rule("weight", f"{number('weight')} < 0", "weight must be 0 or more, got {}", True)
    named = [rule for column in ("query_id", "document_id") for rule in id_rules(column)]
    numbers = [rule for column in ("grade", "weight", "score") for rule in number_rules(column)]
    size = Rule("grade", large, BETWEEN, True)
    checked = [*named, Rule("split", "NOT known_split", split), *numbers, negative, size]
    return checked if lenient else [*texts, *checked]
