"""The rule that chooses λ: what it expects, what the dev split may change, and what it never does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opera.guard.rule import (
    COARSE,
    FINE,
    QueryKind,
    anchor,
    choose_share,
    cross_fitted,
    guarded_measure,
    helps_on_dev,
    mean_variance,
    posterior_mean,
    prior_mean,
    verdict_of,
)


def curve(shares: tuple[float, ...], means: list[float], n: int = 400, spread: float = 0.01) -> dict[float, np.ndarray]:
    """Values per query with these means, which differ between neighbours by little more than their means."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.2, 0.8, n)
    return {share: level + mean + spread * rng.standard_normal(n) for share, mean in zip(shares, means, strict=True)}


def one_kind(per_query: dict[float, np.ndarray], seen: float) -> list[QueryKind]:
    return [QueryKind(np.ones(len(per_query[0.0]), dtype=bool), seen)]


def choose(per_query: dict[float, np.ndarray], seen: float, static: bool = True) -> float:
    return choose_share(per_query, one_kind(per_query, seen), static)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seen", [0.0, 0.2, 1.0])
def test_a_clear_peak_is_found_from_every_anchor(seen: float, static: bool) -> None:
    for peak in COARSE:
        means = [-0.8 * abs(share - peak) for share in COARSE]
        assert choose(curve(COARSE, means), seen, static) == peak


@pytest.mark.parametrize("static", [True, False])
def test_with_little_difference_it_takes_the_anchor(static: bool) -> None:
    flat = {share: np.full(50, 0.5 + 1e-6 * (share > 0)) for share in FINE}
    chosen = [choose(flat, seen, static) for seen in (0.0, 0.1, 0.3, 0.5, 1.0)]
    assert chosen == sorted(chosen)
    assert chosen[-1] == 1.0
    for share, seen in zip(chosen, (0.0, 0.1, 0.3, 0.5, 1.0), strict=True):
        assert abs(share - anchor(seen, static)) <= 1 / 16


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("seen", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 19, 100])
def test_on_a_tie_the_base_model_is_kept(n: int, seen: float, static: bool) -> None:
    assert choose({share: np.ones(n) for share in FINE}, seen, static) == 0.0
    before = np.linspace(0.2, 0.8, n)
    swapped = {share: before if share == 0 else before[::-1] for share in FINE}  # some gain what others lose
    assert choose(swapped, seen, static) == 0.0


@pytest.mark.parametrize("seen", [0.0, 0.5, 1.0])
def test_a_share_below_the_base_model_on_dev_does_not_stand(seen: float) -> None:
    slightly_worse = np.random.default_rng(0).standard_normal(100)
    slightly_worse -= slightly_worse.mean() + 0.05  # well within a standard error of 0.1
    every = QueryKind(np.ones(100, dtype=bool), seen)
    assert not helps_on_dev(slightly_worse, [every])
    assert helps_on_dev(slightly_worse + 0.1, [every])
    halves = [replace(every, rows=rows) for rows in (np.arange(100) < 50, np.arange(100) >= 50)]
    gain = np.repeat([1.0, 0.0], 50)
    assert helps_on_dev(gain, halves), "one kind gains, the other has a tie"
    assert not helps_on_dev(gain - 0.01, halves)
    assert not helps_on_dev(gain[:0], [QueryKind(np.ones(0, dtype=bool), seen)])


def test_the_posterior_lies_between_prior_and_evidence() -> None:
    assert posterior_mean(0.02, 0.0, -0.01, 0.1) == 0.02  # evidence without error
    assert posterior_mean(0.02, float("inf"), -0.01, 0.1) == -0.01  # no evidence
    assert posterior_mean(0.02, 0.01, -0.01, 0.1) == pytest.approx(0.005)  # equal weights
    assert mean_variance(np.array([0.3])) == float("inf")
    for low, high, expected in ((0.0, 0.25, 0.025), (0.5, 0.75, -0.025), (0.25, 0.75, 0)):  # around .5
        assert prior_mean(low, high, 0.5) == pytest.approx(expected)


def two_kinds(known: list[float], new: list[float]) -> tuple[dict[float, np.ndarray], list[QueryKind]]:
    """Two halves of 200 queries with these means."""
    halves = [curve(FINE, means, 200) for means in (known, new)]
    rows = np.arange(400) < 200
    return {share: np.concatenate([half[share] for half in halves]) for share in FINE}, [
        QueryKind(rows, 1),
        QueryKind(~rows, 0),
    ]


def test_of_two_kinds_neither_is_harmed() -> None:
    rises, peaks = [0.3 * share for share in FINE], [0.1 * share - 0.22 * share**2 for share in FINE]
    assert choose_share(*two_kinds(rises, rises)) == 1.0
    assert choose_share(*two_kinds(rises, peaks)) == 0.375  # new documents end above the base model up to .45
    assert choose_share(*two_kinds(rises, [-share for share in FINE])) == 0.0
    per_query, (known, _) = two_kinds(rises, [-share for share in FINE])
    none = QueryKind(np.zeros(400, dtype=bool), 0.0)
    assert choose_share(per_query, [known]) == 1.0
    assert choose_share(per_query, [known, none]) == 0.5  # what is expected of new documents where none are on dev
    flat = {share: np.full(40, 0.5 + 1e-6 * (share > 0)) for share in FINE}
    new, missing = QueryKind(np.ones(40, dtype=bool), 0.0), QueryKind(np.zeros(40, dtype=bool), 1.0)
    assert choose_share(flat, [missing, new]) == choose_share(flat, [new]) == 0.25


def test_the_choice_is_measured_on_queries_that_had_no_part_in_it() -> None:
    """Without a true gain the share chosen looks better than it is; each half at the other's share does not."""
    gains, honest = [], []
    for seed in range(300):
        noise = np.random.default_rng(seed).normal(0, 0.2, (len(FINE), 30))
        per_query = {share: 0.5 + (share > 0) * values for share, values in zip(FINE, noise, strict=True)}
        share = choose(per_query, 1.0)
        gains.append((per_query[share] - per_query[0.0]).mean())
        honest.append((cross_fitted(per_query, one_kind(per_query, 1.0), True, seed) - per_query[0.0]).mean())
    # a mean of 30 values has a standard error of .037, and the mean over 300 runs of .002
    assert np.mean(gains) > 0.008
    assert abs(np.mean(honest)) < 0.008


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


@pytest.mark.parametrize(("count", "expected"), [(1, "same"), (19, "same"), (20, "better")])
def test_a_handful_of_queries_is_never_better(count: int, expected: str) -> None:
    """The interval of a few queries is too narrow: one that gains has an interval without width."""
    zeros = np.zeros(count)
    assert verdict_of(1.0, guarded_measure(zeros, zeros + 0.3, zeros + 0.3), count) == expected
    per_query = {share: zeros + 0.1 * share for share in FINE}
    assert len(cross_fitted(per_query, one_kind(per_query, 0.0), True, 0)) == count
