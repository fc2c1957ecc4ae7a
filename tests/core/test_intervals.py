"""Intervals of means, and too few queries."""

from __future__ import annotations

import numpy as np
import pytest

from opera.core import intervals
from opera.core.intervals import few_queries, mean_interval, mean_intervals, points


def test_the_interval_is_that_of_the_mean() -> None:
    """For 1,000 values it is the normal one, but for the noise of the resamples.

    An end is a quantile of 10,000 means: its standard error is sqrt(.025·.975/10,000)/f, and the normal density f is
    .058 there. That is .027 standard errors of the mean, .014 of half the width; a tenth is seven times as much.
    """
    values = np.random.default_rng(0).normal(0.1, 1, 1000)
    low, high = mean_interval(values, 0, "test")
    half = 1.96 * values.std() / np.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_same_seed_same_interval() -> None:
    values = np.random.default_rng(0).normal(size=30)
    first = mean_interval(values, 3, "guard.bootstrap.dev")
    assert mean_interval(values, 3, "guard.bootstrap.dev") == first
    assert mean_interval(values, 4, "guard.bootstrap.dev") != first
    assert mean_interval(values, 3, "guard.bootstrap.test") != first


def test_a_single_query_has_an_interval_of_no_width() -> None:
    assert mean_interval(np.array([0.5]), 0, "test") == (0.5, 0.5)


def test_many_queries_are_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=50)
    whole = mean_interval(values, 0, "test")
    monkeypatch.setattr(intervals, "CHUNK_CELLS", 50 * 7)
    assert mean_interval(values, 0, "test") == pytest.approx(whole)


def test_the_interval_of_very_many_values_is_the_normal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It meets the bootstrap's: same tolerance as above."""
    values = np.random.default_rng(0).normal(0.1, 1, 1000)
    drawn = mean_interval(values, 0, "test")
    monkeypatch.setattr(intervals, "MANY_VALUES", 1000)
    assert mean_interval(values, 0, "test") == pytest.approx(drawn, abs=0.1 * 1.96 / np.sqrt(1000))


def test_each_measure_has_its_interval() -> None:
    found = mean_intervals({"nDCG@10": np.zeros(4), "R@5": np.array([0.0, 1.0, 1.0, 0.0])})
    assert found["nDCG@10"] == (0, 0)
    assert list(found["R@5"]) == [0, 1]


def test_few_queries_are_warned_of() -> None:
    assert few_queries(50) is None
    assert (few_queries(49, "dev") or "").startswith("warning: 49 dev queries are few to measure by")
    assert (few_queries(1) or "").startswith("warning: 1 test query is few")


@pytest.mark.parametrize(("value", "text"), [(0.0123, "+1.2"), (-0.0123, "−1.2"), (-0.0001, "+0.0")])
def test_points_are_signed(value: float, text: str) -> None:
    assert points(value) == text
