"""Intervals of means, and too few queries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from opera.core.intervals import few_queries, mean_interval, points


@pytest.mark.parametrize("count", [2, 20, 1000])
def test_the_interval_is_that_of_the_paired_t_test(count: int) -> None:
    values = np.random.default_rng(0).normal(0.1, 1, count)
    for level in (0.95, 0.99):
        expected = ttest_1samp(values, 0).confidence_interval(level)
        assert mean_interval(values, level) == pytest.approx((expected.low, expected.high))


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_interval(np.full(9, 0.3)) == (pytest.approx(0.3),) * 2


def test_few_queries_are_warned_of() -> None:
    assert few_queries(50) is None
    assert (few_queries(49, "dev") or "").startswith("warning: 49 dev queries are few to measure by")
    assert (few_queries(1) or "").startswith("warning: 1 test query is few")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "+1.2"), (-0.0123, "−1.2"), (-0.0004, "0.0"), (0.0, "0.0"), (-0.001, "−0.1")]
)
def test_points_are_signed(value: float, text: str) -> None:
    assert points(value) == text
