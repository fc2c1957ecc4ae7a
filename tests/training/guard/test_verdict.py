"""The verdict and its interval."""

from __future__ import annotations

import numpy as np
import pytest

from opera.training.guard import verdict
from opera.training.guard.verdict import bootstrap_interval, guarded_measure, verdict_of


def test_the_interval_is_that_of_the_mean() -> None:
    """For 1,000 values it is the normal one, but for the noise of the resamples.

    An end is a quantile of 10,000 means: its standard error is sqrt(.025·.975/10,000)/f, and the normal density f is
    .058 there. That is .027 standard errors of the mean, .014 of half the width; a tenth is seven times as much.
    """
    values = np.random.default_rng(0).normal(0.1, 1, 1000)
    low, high = bootstrap_interval(values, 0, "test")
    half = 1.96 * values.std() / np.sqrt(1000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_same_seed_same_interval() -> None:
    values = np.random.default_rng(0).normal(size=30)
    first = bootstrap_interval(values, 3, "guard.bootstrap.dev")
    assert bootstrap_interval(values, 3, "guard.bootstrap.dev") == first
    assert bootstrap_interval(values, 4, "guard.bootstrap.dev") != first
    assert bootstrap_interval(values, 3, "guard.bootstrap.test") != first


def test_a_single_query_has_an_interval_of_no_width() -> None:
    assert bootstrap_interval(np.array([0.5]), 0, "test") == (0.5, 0.5)


def test_the_three_verdicts() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(size=200)
    better = guarded_measure(before, before, before + rng.uniform(0, 0.2, 200), 0, "dev")
    same = guarded_measure(before, before, before, 0, "dev")
    assert better.low > 0
    assert verdict_of(0.5, better, 200) == "better"
    assert verdict_of(0.5, same, 200) == "same"
    assert verdict_of(0.0, same, 200) == "kept"
    assert better.difference == pytest.approx(better.after - better.before)


def test_a_handful_of_queries_is_never_better() -> None:
    """The interval of a few queries is too narrow: one that gains has an interval without width."""
    for count, expected in ((1, "same"), (5, "same"), (6, "better")):
        zeros = np.zeros(count)
        assert verdict_of(1.0, guarded_measure(zeros, zeros + 0.3, zeros + 0.3, 0, "dev"), count) == expected


def test_many_queries_are_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=50)
    whole = bootstrap_interval(values, 0, "test")
    monkeypatch.setattr(verdict, "CHUNK_CELLS", 50 * 7)
    assert bootstrap_interval(values, 0, "test") == pytest.approx(whole)
