"""Equation 6, n₀ and r of Algorithm 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.methods.schedules import cosine_schedule, top_ratio, virtual_dataset_size


def test_cosine_runs_from_start_to_end() -> None:
    assert cosine_schedule(2, 5, 0, 100) == 2
    assert cosine_schedule(2, 5, 100, 100) == 5
    assert cosine_schedule(2, 5, 50, 100) == pytest.approx(3.5)


def test_ratio_runs_from_a_quarter_to_053_forward_and_back() -> None:
    n = 100_000
    pool = virtual_dataset_size(n, 2, 0.25)
    assert pool == 62_500
    assert top_ratio(2, pool, n) == pytest.approx(0.25)
    assert top_ratio(5, pool, n) == pytest.approx(0.53125)


@given(st.floats(1.01, 10), st.floats(1.0, 5), st.floats(0.01, 0.99))
def test_top_and_rest_inclusion_differ_by_alpha(low: float, factor: float, ratio: float) -> None:
    n, alpha = 1.0, low * factor
    pool = n * (1 - ratio) / low + ratio * n
    r = top_ratio(alpha, pool, 1)
    assert 0 < r < 1
    assert (pool - r) / (1 - r) == pytest.approx(1 / alpha)
