"""Values of a column as texts, ids or numbers; what is wrong is collected by rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.terminal import shown
from opera.data.checks import CONTROL
from opera.data.tables.problems import Place, Problems
from opera.data.texts import blank

EMPTY = "must not be empty; fill it or remove the row"
NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_LEAST, _LARGEST = 1e-37, 1e28
"""Sizes of numbers that are not 0: they are kept in 32 bits, and so is the sum of 2^31 of them."""


@dataclass
class Column:
    """A column of some rows.

    Attributes:
        values: an Arrow array.
        name: of the column.
        place: says where a row stands.
        problems: gets what is wrong.
        row: of each value, where they stood in lists: int64.
    """

    values: pa.Array
    name: str
    place: Place
    problems: Problems
    row: NDArray[np.int64] | None = None

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each value: int64."""
        return np.arange(len(self.values)) if self.row is None else self.row

    def refuse(self, wrong: BoolArray, rule: str, value: Callable[[int], object] = str) -> None:
        """Collect the values that break a rule; ``value`` is what the message shows of one."""
        at = np.flatnonzero(wrong)
        problem = f"column {shown(self.name)} {rule}"
        self.problems.add(self.rows[at], self.place, problem, lambda: value(int(at[0])))

    def opened(self) -> Column:
        """The values of all lists; the same column where it holds none."""
        if not is_list(self.values.type):
            return self
        # Arrow's own indices of the rows also count what lies behind a null, unlike list_flatten
        row = np.repeat(self.rows, self.lengths())
        return replace(self, values=pc.list_flatten(self.values), row=row)

    def lengths(self) -> NDArray[np.int64]:
        """How many values each list holds, none if it is null: int64."""
        lengths = pc.fill_null(pc.list_value_length(self.values), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)

    def part(self, name: str) -> Column:
        """A field of values that have several."""
        values = pc.struct_field(self.values, name)
        return replace(self, values=values, name=f"{self.name}.{name}")

    def aligned(self, texts: Column) -> NDArray[np.float64]:
        """A number, or NaN, for each text in the lists of another column: float64."""
        counts, wanted = self.lengths(), texts.lengths()
        wrong = (counts > 0) & (counts != wanted)
        rule = f"must hold one number for each text of {shown(texts.name)}, got {{}}"
        self.refuse(wrong, rule, lambda at: f"{counts[at]} for {wanted[at]}")
        found = np.full(wanted.sum(), np.nan)
        numbers = self.opened().numbers(optional=True)
        if not wrong.any():
            found[np.repeat(counts > 0, wanted)] = numbers
        return found

    def texts(self) -> pa.StringArray:
        """The values as texts: numbers are their digits, and nothing is an empty text."""
        values = _decoded(self.values)
        kind, valid = values.type, np.asarray(pc.invert(values.is_null(nan_is_null=True)))
        wrong = np.zeros(len(values), dtype=bool)
        if pa.types.is_floating(kind):
            numbers = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)
            # from here on two numbers may have been rounded to one
            end = 2 ** (np.finfo(kind.to_pandas_dtype()).nmant + 1)
            rule, large = "must be a text or a whole number, got {}", np.abs(numbers) >= end
            wrong = valid & (large | (numbers != np.floor(numbers)))
            apart = f"{kind} keeps whole numbers apart below {end:,} only"
            self.refuse(
                large, f"{rule}; {apart}: store them as int64 or as texts", lambda at: numbers[at]
            )
            self.refuse(wrong & ~large, rule, lambda at: numbers[at])
            fine = valid & ~wrong
            values = pa.array(np.where(fine, numbers, 0).astype(np.int64), mask=~fine)
        elif not (pa.types.is_integer(kind) or pa.types.is_null(kind) or _is_text(kind)):
            wrong = valid
            self.refuse(wrong, f"must hold texts or whole numbers, but holds {kind}")
            values = pa.nulls(len(values))
        texts = pc.fill_null(values.cast(pa.string()), "")
        # what is refused is not refused again for being empty
        return pc.if_else(pa.array(wrong), "?", texts) if wrong.any() else texts

    def ids(self, *, optional: bool = False) -> pa.StringArray:
        """The values as ids: texts that are not empty and stand in one column of a line.

        Nothing stays null if it is ``optional``.
        """
        ids, null = self.texts(), self.values.is_null()
        empty = blank(ids) & ~np.asarray(null) if optional else blank(ids)
        self.refuse(empty, "must not be empty")
        control = pc.match_substring_regex(ids, CONTROL.pattern).to_numpy(zero_copy_only=False)
        rule = "must not hold a tab, a line break or another control character, got {}"
        self.refuse(np.asarray(control), rule, lambda at: shown(ids[at].as_py()))
        return pc.if_else(null, None, ids) if optional else ids

    def numbers(self, *, optional: bool = False) -> NDArray[np.float64]:
        """The values as numbers that 32 bits hold: float64; nothing is NaN if ``optional``."""
        values = _decoded(self.values)
        kind, null = values.type, np.asarray(values.is_null())
        fits = np.ones(len(values), dtype=bool)
        if _is_text(kind):
            values = values.cast(pa.string())  # no search knows string views
            matches = pc.fill_null(pc.match_substring_regex(values, NUMBER), True)
            fits = np.asarray(matches.to_numpy(zero_copy_only=False))
            self.refuse(~fits, "must be a number, got {}", lambda at: shown(values[at].as_py()))
            plain = pc.utf8_ltrim(pc.utf8_trim_whitespace(values), "+")
            values = plain if fits.all() else pc.if_else(pa.array(fits), plain, None)
        elif not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            self.refuse(fits, f"must hold numbers, but holds {kind}")
            return np.full(len(values), np.nan)
        cast = values.cast(pa.float64(), safe=False)
        numbers = np.asarray(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
        sizes = np.abs(numbers)
        fine = (sizes <= _LARGEST) & ((sizes >= _LEAST) | (sizes == 0))
        finite = np.isfinite(numbers)
        self.refuse(null & (not optional), "is missing")
        self.refuse(
            fits & ~null & ~finite, "must be a finite number, got {}", lambda at: numbers[at]
        )
        size = f"must be 0, or from {_LEAST:g} to {_LARGEST:g} in size, got {{}}"
        self.refuse(
            finite & ~fine, f"{size}; multiply all by one number", lambda at: f"{numbers[at]:g}"
        )
        return np.where(fine, numbers, np.nan)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )
