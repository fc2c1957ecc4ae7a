"""Checks of ids and texts that files and dictionaries share: what passes can be written as a BEIR folder."""

from __future__ import annotations

from opera.core.errors import DataError


def check_id(place: str, identifier: object) -> None:
    """Check that an id is a string that fits into one column of a line, as in qrels and TREC files.

    Args:
        place: start of the message: where the id stands, and what it is.
        identifier: the id.

    Raises:
        DataError: naming the rule.
    """
    _check_string(place, identifier)
    if not identifier:
        raise DataError(f"{place} must not be empty")
    if "\t" in str(identifier) or str(identifier).splitlines() != [identifier]:
        raise DataError(f"{place} must not hold a tab or a line break, got {identifier!r}")


def check_text(place: str, text: object) -> None:
    """Check that a text is a string with more than white space in it.

    Args:
        place: start of the message: the document or query.
        text: its text.

    Raises:
        DataError: naming the rule.
    """
    _check_string(f"{place}: text", text)
    if not str(text).strip():
        raise DataError(f"{place} has an empty text")


def check_encodable(place: str, value: str) -> None:
    """Check that a string has no lone half of a surrogate pair, as texts cut in the middle of an emoji have.

    Args:
        place: start of the message: the column or value.
        value: the string.

    Raises:
        DataError: naming the half character.
    """
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{place} holds half a character ({value[error.start]!r}); remove it") from None


def _check_string(place: str, value: object) -> None:
    if not isinstance(value, str):
        raise DataError(f"{place} must be a string, got {value!r}")
    check_encodable(place, value)
