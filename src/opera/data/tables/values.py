"""Values of a column as texts or numbers, checked; a wrong one is named by its place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.errors import DataError
from opera.core.terminal import shown
from opera.data.checks import CONTROL, check_id

Place = Callable[[int], str]
"""File and row of a value, by its number in the batch."""

DIGEST = pa.binary(16)
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_LARGEST_EXACT = 2.0**53


def flattened(values: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values of a column, lists opened, and the row of each: int64."""
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pc.list_flatten(values), np.asarray(pc.list_parent_indices(values), dtype=np.int64)
    return values, np.arange(len(values))


def as_texts(values: pa.Array, column: str, place: Place) -> pa.StringArray:
    """Return a column as texts; numbers become their digits, and nothing becomes an empty text.

    Raises:
        DataError: for values of another kind, and for fractions.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        valid = np.asarray(values.is_valid())
        wrong = valid & ~((numbers == np.floor(numbers)) & (np.abs(numbers) < _LARGEST_EXACT))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DataError(f"{place(at)}: column {shown(column)} must be a text or a whole number, got {numbers[at]}")
        values = pa.array(np.where(valid, numbers, 0).astype(np.int64), mask=~valid)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind) or _is_text(kind)):
        raise DataError(f"{place(0)}: column {shown(column)} must hold texts or whole numbers, but holds {kind}")
    return pc.fill_null(values.cast(pa.string()), "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_ids(values: pa.Array, column: str, place: Place) -> pa.StringArray:
    """Return a column as ids: texts that are not empty and stand in one column of a line.

    Raises:
        DataError: as :func:`as_texts` and :func:`opera.data.checks.check_id`.
    """
    ids = as_texts(values, column, place)
    wrong = blank(ids) | np.asarray(pc.match_substring_regex(ids, CONTROL.pattern).to_numpy(zero_copy_only=False))
    if wrong.any():
        at = int(np.argmax(wrong))
        check_id(f"{place(at)}: column {shown(column)}", ids[at].as_py())
    return ids


def as_numbers(values: pa.Array, column: str, place: Place) -> NDArray[np.float64]:
    """Return a column as finite numbers: float64.

    Raises:
        DataError: for anything else, and for nothing.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if _is_text(kind):
        fits = pc.fill_null(pc.match_substring_regex(values, _NUMBER), False)
        if not pc.all(fits, min_count=0).as_py():
            at = fits.index(False).as_py()
            value = values[at].as_py()
            problem = "is missing" if value is None else f"must be a number, got {shown(value)}"
            raise DataError(f"{place(at)}: column {shown(column)} {problem}")
        values = pc.utf8_ltrim(pc.utf8_trim_whitespace(values), "+").cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{place(0)}: column {shown(column)} must hold numbers, but holds {kind}")
    numbers = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(f"{place(at)}: column {shown(column)} must be a finite number, got {values[at].as_py()}")
    return numbers


def blank(texts: pa.StringArray) -> BoolArray:
    """Whether each text is empty or white space: bool."""
    nothing = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
    return np.asarray(nothing.to_numpy(zero_copy_only=False), dtype=bool)


def digests(*columns: pa.StringArray) -> pa.Array:
    """Hash the texts of each row: binary of 16 bytes. Two rows have one hash where all their texts are equal.

    Empty texts but the last count as absent: a text without a title has the hash of the text alone.
    """
    if len(columns) == 1:
        hashed = [xxhash.xxh3_128_digest(text.encode()) for text in columns[0].to_pylist()]
    else:
        joined = zip(*(column.to_pylist() for column in columns), strict=True)
        hashed = [xxhash.xxh3_128_digest("\0".join(filter(None, texts)).encode()) for texts in joined]
    return pa.array(hashed, DIGEST)
