"""The rule that chooses λ: what it expects, what the dev split may change, and what it never does."""

from itertools import pairwise

import numpy as np
import pytest

from opera.config.automatic import ModelKind
from opera.guard.rule import (
    ADAPTER_ANCHOR,
    COARSE,
    FINE,
    STATIC_ANCHOR,
    QueryKind,
    anchor,
    anchors_of,
    choose_weight,
    cross_fitted,
    expected_gains,
    guarded_measure,
    verdict_of,
)


def curve(
    weights: tuple[float, ...], means: list[float], n: int = 400, spread: float = 0.01
) -> dict[float, np.ndarray]:
    """Values per query with these means, which differ between neighbours by little more than their means."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.2, 0.8, n)
    return {weight: level + mean + spread * rng.standard_normal(n) for weight, mean in zip(weights, means, strict=True)}


def one_kind(per_query: dict[float, np.ndarray], seen: float) -> list[QueryKind]:
    return [QueryKind(np.ones(len(per_query[0.0]), dtype=bool), seen)]


def choose(per_query: dict[float, np.ndarray], seen: float, kind: ModelKind = "static") -> float:
    return choose_weight(per_query, one_kind(per_query, seen), anchors_of(kind))


@pytest.mark.parametrize("kind", ["static", "adapter", "small"])
@pytest.mark.parametrize("seen", [0.0, 0.2, 1.0])
def test_a_clear_peak_is_found_from_every_anchor(seen, kind):
    for peak in COARSE:
        means = [-0.8 * abs(weight - peak) for weight in COARSE]
        assert choose(curve(COARSE, means), seen, kind) == peak


def test_expected_gains_are_those_of_the_formula_in_the_docstring():
    per_query = curve(FINE, [0.1, 0.3, 0.2, 0.5, 0.4, 0.4, 0.7, 0.6, 0.5], n=30, spread=0.1)
    gains, step, spread = [0.0], 1 / 8, 0.1 / 8  # T = 0.1
    for low, high in pairwise(FINE):
        differences = per_query[high] - per_query[low]
        variance = differences.var(ddof=1) / 30 + (0.06 * step) ** 2  # N is 0.06 halfway between 0.1 and 0.02
        prior = -0.1 * (abs(high - 0.6) - abs(low - 0.6))  # G = 0.1; the anchor at a quarter is 0.6
        gains.append((differences.mean() * spread**2 + prior * variance) / (spread**2 + variance))
    found = expected_gains(per_query, one_kind(per_query, 0.25)[0], STATIC_ANCHOR)
    np.testing.assert_allclose(found, np.cumsum(gains))


@pytest.mark.parametrize("kind", ["static", "adapter", "small"])
def test_with_little_difference_it_takes_the_anchor(kind):
    flat = {weight: np.full(50, 0.5 + 1e-6 * (weight > 0)) for weight in FINE}
    chosen = [choose(flat, seen, kind) for seen in (0.0, 0.1, 0.3, 0.5, 1.0)]
    assert chosen == sorted(chosen)
    assert chosen[-1] == 1.0
    for weight, seen in zip(chosen, (0.0, 0.1, 0.3, 0.5, 1.0), strict=True):
        assert abs(weight - anchor(seen, anchors_of(kind))) <= 1 / 16


@pytest.mark.parametrize("kind", ["static", "adapter", "small"])
@pytest.mark.parametrize("seen", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 100])
def test_on_a_tie_the_base_model_is_kept(n, seen, kind):
    assert choose({weight: np.ones(n) for weight in FINE}, seen, kind) == 0.0
    before = np.linspace(0.2, 0.8, n)
    swapped = {weight: before if weight == 0 else before[::-1] for weight in FINE}  # some gain what others lose
    assert choose(swapped, seen, kind) == 0.0


def two_kinds(known: list[float], new: list[float]) -> tuple[dict[float, np.ndarray], list[QueryKind]]:
    """Two halves of 200 queries with these means."""
    halves = [curve(FINE, means, 200) for means in (known, new)]
    rows = np.arange(400) < 200
    return {weight: np.concatenate([half[weight] for half in halves]) for weight in FINE}, [
        QueryKind(rows, 1),
        QueryKind(~rows, 0),
    ]


def test_of_two_kinds_neither_is_harmed():
    rises, peaks = [0.3 * weight for weight in FINE], [0.1 * weight - 0.22 * weight**2 for weight in FINE]
    assert choose_weight(*two_kinds(rises, rises)) == 1.0
    assert choose_weight(*two_kinds(rises, peaks)) == 0.375  # new documents end above the base model up to .45
    assert choose_weight(*two_kinds(rises, [-weight for weight in FINE])) == 0.0
    per_query, (known, _) = two_kinds(rises, [-weight for weight in FINE])
    none = QueryKind(np.zeros(400, dtype=bool), 0.0)
    assert choose_weight(per_query, [known]) == 1.0
    # without new documents on dev, the rule expects as much loss above the anchor as gain below it
    assert choose_weight(per_query, [known, none], ADAPTER_ANCHOR) == 2 * ADAPTER_ANCHOR[0]
    flat = {weight: np.full(40, 0.5 + 1e-6 * (weight > 0)) for weight in FINE}
    new, missing = QueryKind(np.ones(40, dtype=bool), 0.0), QueryKind(np.zeros(40, dtype=bool), 1.0)
    assert choose_weight(flat, [missing, new]) == choose_weight(flat, [new]) == STATIC_ANCHOR[0]


def test_the_choice_is_measured_on_queries_that_had_no_part_in_it():
    """Without a true gain the chosen λ looks better than it is; each half at the λ of the other half does not."""
    gains, honest = [], []
    for seed in range(300):
        noise = np.random.default_rng(seed).normal(0, 0.2, (len(FINE), 30))
        per_query = {weight: 0.5 + (weight > 0) * values for weight, values in zip(FINE, noise, strict=True)}
        weight = choose(per_query, 1.0)
        gains.append((per_query[weight] - per_query[0.0]).mean())
        honest.append((cross_fitted(per_query, one_kind(per_query, 1.0), STATIC_ANCHOR, seed) - per_query[0.0]).mean())
    # a mean of 30 values has a standard error of .037, and the mean over 300 runs of .002
    assert np.mean(gains) > 0.008
    assert abs(np.mean(honest)) < 0.008


def test_a_verdict_is_better_only_if_the_whole_interval_is_above_0():
    rng = np.random.default_rng(0)
    base = rng.uniform(size=200)
    better, same = (guarded_measure(base, base + rng.uniform(0, most, 200)) for most in (0.2, 0))
    assert better.low > 0
    assert better.difference == pytest.approx(better.final - better.base)
    unclear = guarded_measure(base, np.where(np.arange(200) % 2, base + 0.12, base - 0.1))
    assert unclear.difference > 0 > unclear.low
    verdicts = [verdict_of(0.5, measure, 200) for measure in (better, same, unclear)]
    assert [*verdicts, verdict_of(0.0, same, 200)] == ["better", "same", "same", "kept"]


@pytest.mark.parametrize(("count", "expected"), [(1, "same"), (19, "same"), (20, "better")])
def test_a_handful_of_queries_is_never_better(count, expected):
    """The interval of a few queries is too narrow: one that gains has an interval without width."""
    zeros = np.zeros(count)
    assert verdict_of(1.0, guarded_measure(zeros, zeros + 0.3), count) == expected
    per_query = {weight: zeros + 0.1 * weight for weight in FINE}
    assert len(cross_fitted(per_query, one_kind(per_query, 0.0), STATIC_ANCHOR, 0)) == count
