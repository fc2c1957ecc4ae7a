"""Functions on arrays, compared with NumPy's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from opera.core.arrays import distinct_numbers, is_among

FEW_NUMBERS = st.integers(-5, 5) | st.integers(-(2**60), 2**60)
NUMBERS = arrays.arrays(np.int64, st.integers(0, 40), elements=FEW_NUMBERS)
TABLES = arrays.arrays(np.int64, st.tuples(st.integers(0, 5), st.integers(0, 5)), elements=FEW_NUMBERS)


@given(NUMBERS | TABLES)
def test_distinct_numbers_are_those_of_numpy(values):
    assert np.array_equal(distinct_numbers(values), np.unique(values))
    assert distinct_numbers(values).dtype == values.dtype


@given(NUMBERS | TABLES, NUMBERS)
def test_numbers_are_among_keys_as_numpy_says(values, keys):
    assert np.array_equal(is_among(values, keys), np.isin(values, keys))
