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
_digest = xxhash.xxh3_128_digest
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_LEAST, _LARGEST = 1e-37, 1e28
"""Sizes of numbers that are not 0: they are kept in 32 bits, and so is the sum of 2^31 of them."""


def flattened(values: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the values of a column, lists opened, and the row of each: int64."""
    kind, rows = values.type, np.arange(len(values))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        # Arrow's own indices of the rows also count what lies behind a null, which list_flatten leaves out
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
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
        valid = np.asarray(values.is_valid())
        end = 2 ** (
            np.finfo(kind.to_pandas_dtype()).nmant + 1
        )  # from here on two numbers may have been rounded to one
        wrong = valid & ~((numbers == np.floor(numbers)) & (np.abs(numbers) < end))
        if wrong.any():
            at = int(np.argmax(wrong))
            problem = f"{place(at)}: column {shown(column)} must be a text or a whole number, got {numbers[at]}"
            if np.isfinite(numbers[at]) and abs(numbers[at]) >= end:
                problem += f"; {kind} keeps whole numbers apart below {end:,} only: store them as int64 or as texts"
            raise DataError(problem)
        values = pa.array(np.where(valid, numbers, 0).astype(np.int64), mask=~valid)
    elif not (pa.types.is_integer(kind) or pa.types.is_null(kind) or _is_text(kind)):
        if values.null_count < len(values):
            first = place(int(np.argmax(values.is_valid())))
            raise DataError(
                f"{first}: column {shown(column)} must hold texts or whole numbers, but holds {kind}"
            )
        values = pa.nulls(len(values))
    return pc.fill_null(values.cast(pa.string()), "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def as_ids(values: pa.Array, column: str, place: Place) -> pa.StringArray:
    """Return a column as ids: texts that are not empty and stand in one column of a line.

    Raises:
        DataError: as :func:`as_texts` and :func:`opera.data.checks.check_id`.
    """
    ids = as_texts(values, column, place)
    wrong = blank(ids) | np.asarray(
        pc.match_substring_regex(ids, CONTROL.pattern).to_numpy(zero_copy_only=False)
    )
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
        fits = pc.fill_null(pc.match_substring_regex(values, _NUMBER), False)
        if not pc.all(fits, min_count=0).as_py():
            at = fits.index(False).as_py()
            value = values[at].as_py()
            problem = "is missing" if value is None else f"must be a number, got {shown(value)}"
            raise DataError(f"{place(at)}: column {shown(column)} {problem}")
        values = pc.utf8_ltrim(pc.utf8_trim_whitespace(values), "+").cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{place(0)}: column {shown(column)} must hold numbers, but holds {kind}")
    numbers = np.asarray(
        values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64
    )
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        at = int(np.argmax(wrong))
        value = values[at].as_py()
        problem = "is missing" if value is None else f"must be a finite number, got {value}"
        raise DataError(f"{place(at)}: column {shown(column)} {problem}")
    sizes = np.abs(numbers)
    wrong = (sizes > _LARGEST) | ((sizes < _LEAST) & (sizes > 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        rule = f"must be 0, or from {_LEAST:g} to {_LARGEST:g} in size, got {numbers[at]:g}"
        raise DataError(f"{place(at)}: column {shown(column)} {rule}; multiply all by one number")
    return numbers


def blank(texts: pa.StringArray) -> BoolArray:
    """Whether each text is empty or white space: bool."""
    nothing = pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))
    return np.asarray(nothing.to_numpy(zero_copy_only=False), dtype=bool)


def digests(texts: pa.StringArray, titles: pa.StringArray | None = None) -> pa.Array:
    """Hash title and text of each row: binary of 16 bytes. Two rows have one hash where both are equal.

    An empty title counts as absent: the hash is that of the text alone.
    """
    titled = [""] * len(texts) if titles is None else titles.to_pylist()
    rows = zip(titled, texts.to_pylist(), strict=True)
    return pa.array(
        [_titled_digest(title, text) if title else _digest(text.encode()) for title, text in rows],
        DIGEST,
    )


def _titled_digest(title: str, text: str) -> bytes:
    # the length says where the title ends, and the seed sets both apart from any text alone
    return _digest(f"{len(title)} {title}{text}".encode(), seed=1)
