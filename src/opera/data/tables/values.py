"""Values of a column as texts, ids or numbers, checked; a wrong one is named by its place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import CONTROL, check_id
from opera.data.texts import blank

Place = Callable[[int], str]
"""File and row of a value, by its number in the batch."""

_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_LEAST, _LARGEST = 1e-37, 1e28
"""Sizes of numbers that are not 0: they are kept in 32 bits, and so is the sum of 2^31 of them."""


def flattened(values: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values of a column, lists opened, and the row of each: int64."""
    kind, rows = values.type, np.arange(len(values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        # Arrow's own indices of the rows also count what lies behind a null, unlike list_flatten
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        return pc.list_flatten(values), np.repeat(rows, lengths)
    return values, rows


def as_texts(values: pa.Array, column: str, place: Place) -> pa.StringArray:
    """Return a column as texts; numbers become their digits, and nothing becomes an empty text.

    Raises:
        DataError: for values of another kind, and for fractions.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind, valid = values.type, np.asarray(values.is_valid())
    if pa.types.is_floating(kind):
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        # from here on two numbers may have been rounded to one
        end = 2 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)

        def rule(at: int) -> str:
            problem = f"must be a text or a whole number, got {numbers[at]}"
            if np.isfinite(numbers[at]) and abs(numbers[at]) >= end:
                problem += f"; {kind} keeps whole numbers apart below {end:,} only: "
                problem += "store them as int64 or as texts"
            return problem

        whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < end)
        _refuse(valid & ~whole, column, place, rule)
        values = pa.array(np.where(valid, numbers, 0).astype(np.int64), mask=~valid)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind) or _is_text(kind)):
        _refuse(
            valid, column, place, lambda at: f"must hold texts or whole numbers, but holds {kind}"
        )
        values = pa.nulls(len(values))
    return pc.fill_null(values.cast(pa.string()), "")


def as_ids(values: pa.Array, column: str, place: Place) -> pa.StringArray:
    """Return a column as ids: texts that are not empty and stand in one column of a line.

    Raises:
        DataError: as :func:`as_texts` and :func:`opera.data.checks.check_id`.
    """
    ids = as_texts(values, column, place)
    control = pc.match_substring_regex(ids, CONTROL.pattern).to_numpy(zero_copy_only=False)
    wrong = blank(ids) | np.asarray(control)
    if wrong.any():
        at = int(np.argmax(wrong))
        check_id(f"{place(at)}: column {shown(column)}", ids[at].as_py())
    return ids


def as_numbers(values: pa.Array, column: str, place: Place) -> NDArray[np.float64]:
    """Return a column as numbers that 32 bits hold: float64.

    Raises:
        DataError: for anything else, and for nothing.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if _is_text(kind):
        values = values.cast(pa.string())  # no search knows string views
        matches = pc.fill_null(pc.match_substring_regex(values, _NUMBER), values.is_null())
        wrong = ~np.asarray(matches.to_numpy(zero_copy_only=False))
        _refuse(
            wrong, column, place, lambda at: f"must be a number, got {shown(values[at].as_py())}"
        )
        values = pc.utf8_ltrim(pc.utf8_trim_whitespace(values), "+")
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{place(0)}: column {shown(column)} must hold numbers, but holds {kind}")
    cast = values.cast(pa.float64(), safe=False)
    numbers = np.asarray(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
    sizes = np.abs(numbers)

    def rule(at: int) -> str:
        if not np.isfinite(numbers[at]):
            value = values[at].as_py()
            return "is missing" if value is None else f"must be a finite number, got {value}"
        size = f"must be 0, or from {_LEAST:g} to {_LARGEST:g} in size, got {numbers[at]:g}"
        return f"{size}; multiply all by one number"

    _refuse(~((sizes <= _LARGEST) & ((sizes >= _LEAST) | (sizes == 0))), column, place, rule)
    return numbers


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _refuse(wrong: BoolArray, column: str, place: Place, rule: Callable[[int], str]) -> None:
    """Name the first wrong value of a column."""
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(f"{place(at)}: column {shown(column)} {rule(at)}")
