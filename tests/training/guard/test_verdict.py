"""The verdict."""

from __future__ import annotations

import numpy as np
import pytest

from opera.training.guard.verdict import guarded_measure, verdict_of


def test_the_three_verdicts() -> None:
    rng = np.random.default_rng(0)
    before = rng.uniform(size=200)
    better = guarded_measure(before, before, before + rng.uniform(0, 0.2, 200))
    same = guarded_measure(before, before, before)
    assert better.low > 0
    assert verdict_of(0.5, better, 200) == "better"
    assert verdict_of(0.5, same, 200) == "same"
    assert verdict_of(0.0, same, 200) == "kept"
    assert better.difference == pytest.approx(better.after - better.before)


def test_a_handful_of_queries_is_never_better() -> None:
    """The interval of a few queries is too narrow: one that gains has an interval without width."""
    for count, expected in ((1, "same"), (19, "same"), (20, "better")):
        zeros = np.zeros(count)
        assert verdict_of(1.0, guarded_measure(zeros, zeros + 0.3, zeros + 0.3), count) == expected
