"""Intervals of means, and too few queries."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from opera.core.figures import mean_interval, mean_intervals, points


@pytest.mark.parametrize("count", [2, 20, 1000])
def test_the_interval_is_that_of_the_paired_t_test(count):
    values = np.random.default_rng(0).normal(0.1, 1, count)
    for level in (0.95, 0.99):
        expected = ttest_1samp(values, 0).confidence_interval(level)
        assert mean_interval(values, level) == pytest.approx((expected.low, expected.high))


def test_intervals_of_measures_stay_between_0_and_1():
    assert mean_intervals({"nDCG@10": np.array([1.0, 0.8, 1.0])})["nDCG@10"][1] == 1


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "+1.2"), (-0.0123, "−1.2"), (-0.0004, "0.0"), (0.0, "0.0"), (-0.001, "−0.1")]
)
def test_points_have_a_sign(value, text):
    assert points(value) == text
