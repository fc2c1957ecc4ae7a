"""Checks of ids, texts and grades. They make sure that a BEIR folder can hold the data."""

from __future__ import annotations

import re

from opera.core.errors import DataError
from opera.core.terminal import shown

MAX_GRADE = 1000
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_id(place: str, identifier: object) -> None:
    """Check that an id is a string that fits into one column of a line, as in qrels and TREC files.

    Args:
        place: start of the message: the place of the id, and its kind.
        identifier: the id.

    Raises:
        DataError: with the rule.
    """
    text = check_string(place, identifier)
    if CONTROL.search(text):
        raise DataError(
            f"{place} must not contain a tab, a line break or another control character, got "
            f"{shown(text)}"
        )
    if not text.strip():
        raise DataError(f"{place} must not be empty")


def check_text(place: str, text: object) -> None:
    """Check that a text is a string and not only white space.

    Args:
        place: the document or query; the message starts with it.
        text: its text.

    Raises:
        DataError: with the rule.
    """
    if not check_string(f"{place}: text", text).strip():
        raise DataError(f"{place} has an empty text")


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
