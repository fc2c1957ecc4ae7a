"""The rule that chooses λ, the share of the fine-tuned weights, from dev.

    W(λ) = (1 - λ)·W0 + λ·W1

The more of tomorrow's documents training has seen, the more of it can be kept. What the dev split
says about two neighbouring shares λ < λ' is weighed against that expectation, as in any Bayesian
estimate of a mean:

    a(s)  = the share that was best on average in other data, for documents seen in s of the test
            pairs                                                                        (anchor)
    m     = -G·(|λ' - a| - |λ - a|), the expected difference of the measure          (prior_mean)
    τ     = T·(λ' - λ), its standard deviation between data sets
    d̄, v  = mean(d), var(d)/n + [N(s)·(λ' - λ)]², on dev; per query, d = y(λ') - y(λ)
    post  = (d̄·τ² + m·v) / (τ² + v)                                              (posterior_mean)

λ is where the sum of these differences, from λ = 0 upward, is highest. Neighbouring shares rank
most queries alike, so the standard error of d̄ is a fraction of that of y. N(s) stands for the
difference between dev and test documents where both are new: two sets of new documents differ more
than two samples of known ones.

Whatever is expected, a share stands only if its mean on dev is above the base model's: on a tie the
base model is kept.

With ``expected_documents=both`` there are two kinds of future queries. The rule adds their sums and
accepts a λ only if it harms neither.

The constants were chosen in worlds of four open data sets, with a static model but for the
transformer's anchor. docs/did-it-help.md has the figures, and what the rule does on each
data set with constants that the others chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.intervals import DIFFERENCE, EQUAL, LEAST_QUERIES, mean_interval
from opera.core.rng import generator
from opera.runs.record import GuardedMeasure

COARSE = tuple(n / 4 for n in range(5))
FINE = tuple(n / 8 for n in range(9))

SEEN = (0.0, 0.25, 0.5)
"""Shares of test pairs with a document that training names, for which the anchor is given; linear
in between."""
STATIC_ANCHOR = (0.25, 0.6, 1.0)
"""a(s) of a static model: tokens that training does not meet stay where they are, so new documents
fall behind. Adapters have it too: in six trainings with new documents the best share was .2 on
average (docs/adapters.md)."""
TRANSFORMER_ANCHOR = (0.875, 0.9375, 1.0)
"""a(s) of a transformer, which carries over more to new documents: midway between the last two
shares tried, so that dev alone decides between these (study: docs/did-it-help.md)."""
GAIN = 0.1
"""G: what the measure is expected to gain per unit of λ towards the anchor, and to lose beyond
it."""
SPREAD = 0.1
"""T: standard deviation of the slope between data sets, per unit of λ."""
NOVELTY = (0.1, 0.02)
"""N(0) and N(.5): standard deviation of the slope between dev and test documents, per unit of λ;
linear in between."""

Verdict = Literal["better", "same", "kept"]
PerQuery = Mapping[float, NDArray[np.float64]]
"""The measure of each dev query, float64 ``[n]``, by share."""


@dataclass(frozen=True)
class Kind:
    """Dev queries that stand for one kind of tomorrow's.

    Attributes:
        rows: bool ``[n]``, which of the dev queries they are.
        seen: s, the share of such queries' pairs whose document training names, 0 to 1.
    """

    rows: NDArray[np.bool_]
    seen: float


def mixing_weights_to_try(static: bool) -> tuple[float, ...]:
    """Return the shares to measure on dev: finer for a static model, which encodes in no time."""
    return FINE if static else COARSE


def choose_mixing_weight(per_query: PerQuery, kinds: Sequence[Kind], static: bool = True) -> float:
    """Choose λ, one of the keys of ``per_query``.

    Args:
        per_query: see :data:`PerQuery`.
        kinds: what the dev queries stand for.
        static: whether the model is a static embedding table, or an adapter.
    """
    mixing_weights = sorted(per_query)
    expected = np.array([expected_gains(per_query, kind, static) for kind in kinds])
    standing = [
        mixing_weight == 0 or stands(per_query[mixing_weight] - per_query[0.0], kinds)
        for mixing_weight in mixing_weights
    ]
    harmless = np.array(standing) & (expected >= 0).all(axis=0)
    # Kinds without dev queries may limit λ, not favour one.
    measured = [bool(kind.rows.any()) for kind in kinds]
    return mixing_weights[
        int(np.argmax(np.where(harmless, expected[measured].sum(axis=0), -np.inf)))
    ]


def cross_fitted(
    per_query: PerQuery, kinds: Sequence[Kind], static: bool, seed: int
) -> NDArray[np.float64]:
    """Measure the choosing itself: each half of the dev queries at the λ that the other half
    chooses.

    The values at the λ that all queries choose are too high, since its choice took advantage of
    what chance favours.

    Args:
        per_query: see :data:`PerQuery`.
        kinds: what the dev queries stand for.
        static: see :func:`choose_share`.
        seed: of the halves.

    Returns:
        float64 ``[n]``.
    """
    values = per_query[0.0].copy()
    half = generator(seed, "guard.halves").permutation(len(values)) % 2 == 0
    for part in (half, ~half):
        mixing_weight = choose_mixing_weight(
            per_query, [replace(kind, rows=kind.rows & ~part) for kind in kinds], static
        )
        values[part] = per_query[mixing_weight][part]
    return values


def expected_gains(per_query: PerQuery, kind: Kind, static: bool) -> NDArray[np.float64]:
    """What each share, ascending, is expected to gain over the base model for one kind of
    queries."""
    best, steps = anchor(kind.seen, static), []
    for low, high in pairwise(sorted(per_query)):
        difference = (per_query[high] - per_query[low])[kind.rows]
        variance = mean_variance(difference) + (novelty(kind.seen) * (high - low)) ** 2
        mean = difference.mean() if len(difference) else 0.0
        steps.append(
            posterior_mean(mean, variance, prior_mean(low, high, best), SPREAD * (high - low))
        )
    return np.cumsum([0.0, *steps])


def stands(gain: NDArray[np.float64], kinds: Sequence[Kind]) -> bool:
    """Whether a share gains on dev, and loses on no kind of its queries.

    Args:
        gain: over the base model, per dev query: float64 ``[n]``.
        kinds: what the dev queries stand for.
    """
    means = [gain[kind.rows].mean() for kind in kinds if kind.rows.any()]
    return bool(means and max(means) > EQUAL and min(means) >= -EQUAL)


def anchor(seen: float, static: bool) -> float:
    """a(s): the share that is best before looking at dev."""
    return float(np.interp(seen, SEEN, STATIC_ANCHOR if static else TRANSFORMER_ANCHOR))


def novelty(seen: float) -> float:
    """N(s): the newer the documents, the more two sets of them differ."""
    return float(np.interp(seen, (SEEN[0], SEEN[-1]), NOVELTY))


def prior_mean(low: float, high: float, best: float) -> float:
    """m: what the measure is expected to gain from share ``low`` to ``high`` where ``best`` is the
    best share."""
    return -GAIN * (abs(high - best) - abs(low - best))


def posterior_mean(mean: float, variance: float, prior: float, spread: float) -> float:
    """Weigh a mean and its variance against a prior mean and standard deviation."""
    if not np.isfinite(variance):
        return prior
    return float((mean * spread**2 + prior * variance) / (spread**2 + variance))


def mean_variance(differences: NDArray[np.float64]) -> float:
    """Variance of the mean of differences, float64 ``[n]``; infinite for a single query, which says
    nothing."""
    return (
        float(differences.var(ddof=1) / len(differences)) if len(differences) > 1 else float("inf")
    )


def guarded_measure(
    base: NDArray[np.float64], fine_tuned: NDArray[np.float64], final: NDArray[np.float64]
) -> GuardedMeasure:
    """Compare a measure per query, each float64 ``[n]``: untrained, fine-tuned (λ = 1) and handed
    over."""
    low, high = mean_interval(final - base, bounds=DIFFERENCE)
    return GuardedMeasure(
        queries=len(base),
        base=float(base.mean()),
        fine_tuned=float(fine_tuned.mean()),
        final=float(final.mean()),
        difference=float((final - base).mean()),
        low=low,
        high=high,
    )


def verdict_of(mixing_weight: float, dev: GuardedMeasure, queries: int) -> Verdict:
    """``kept`` for λ = 0; ``better`` where the interval on dev lies above 0, with queries enough;
    else ``same``."""
    if mixing_weight == 0:
        return "kept"
    return "better" if dev.low > 0 and queries >= LEAST_QUERIES else "same"
