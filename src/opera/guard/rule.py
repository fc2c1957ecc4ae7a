"""The rule that chooses the mixing weight λ, and the weight w of keyword search, from dev.

    W(λ) = (1 - λ)·W0 + λ·W1

The more of the expected documents are known from training, the larger λ can be. The rule weighs
this expectation against dev, for neighbouring values λ < λ', by the Bayesian estimate of a mean:

    a(s)  = the λ that was best on average in other data, if the documents of a fraction s of the
            test pairs are known                                                         (anchor)
    m     = -G·(|λ' - a| - |λ - a|), the expected difference of the measure          (prior_mean)
    τ     = T·(λ' - λ), its standard deviation between data sets
    d̄, v  = mean(d), var(d)/n + [N(s)·(λ' - λ)]², on dev; per query, d = y(λ') - y(λ)
    post  = (d̄·τ² + m·v) / (τ² + v)                                              (posterior_mean)

The rule chooses the λ with the highest sum of these differences from 0 to λ. Neighbouring models
rank most queries alike, so the standard error of d̄ is a fraction of the standard error of y. N(s)
covers the difference between dev and test documents: two sets of new documents differ more than two
samples of known ones.

The rule accepts a λ above 0 only if its mean on dev is above the base model's. On a tie, it keeps
the base model.

With ``expected_documents=both`` there are two kinds of queries. The rule adds their sums, and
accepts a λ only if it harms neither kind.

The weight w of keyword search follows the same rule, with w for λ, the final model for the base
model, and its own anchors.

The constants were chosen on four open data sets with a static model, the anchor for transformers
in a separate study. docs/did-it-help.md has the figures, and results for each data set with
constants from the other three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.config.automatic import ModelKind
from opera.core.figures import DIFFERENCE, EQUAL, LEAST_QUERIES, mean_interval
from opera.core.rng import generator
from opera.data import Mixture
from opera.retrieval.evaluation import Evaluation, fusion_of
from opera.retrieval.measures import parse_measures, per_query, ranking_depth
from opera.run_folder.record import GuardedMeasure, KeywordsRecord

COARSE = tuple(n / 4 for n in range(5))
FINE = tuple(n / 8 for n in range(9))
"""The λ to measure on dev: more for a static model, because it encodes fast."""

SEEN = (0.0, 0.25, 0.5, 1.0)
"""Values of s with an anchor; linear in between."""
STATIC_ANCHOR = (0.625, 0.6, 1.0, 1.0)
"""a(s) of a static model. Tokens that do not occur in training keep their embeddings, so new
documents fall behind. For s near 0, the learning rate is lower
(:data:`opera.config.automatic.NEW_DOCUMENTS_RATE`), so the fine-tuned model is closer to the base
model, and λ can be larger (study: docs/did-it-help.md)."""
ADAPTER_ANCHOR = (0.375, 0.6, 1.0, 1.0)
"""a(s) of an adapter."""
TRANSFORMER_ANCHOR = (0.875, 0.9375, 1.0, 1.0)
"""a(s) of a transformer, which generalises better to new documents. For s = 0 it
is between 0.75 and 1, so that dev alone decides between them (study: docs/did-it-help.md)."""
STATIC_KEYWORD_ANCHOR = (0.75, 0.625, 0.5, 0.25)
"""a(s) of w, the weight of keyword search in hybrid search with a static model. The model is
far ahead only on documents that it knows (docs/keyword-search.md)."""
KEYWORD_ANCHOR = (0.5, 0.4375, 0.375, 0.25)
"""a(s) of w for all other models, which are stronger."""
GAIN = 0.1
"""G: expected gain of the measure per unit of λ below the anchor, and loss above it."""
SPREAD = 0.1
"""T: standard deviation of the slope between data sets, per unit of λ."""
NOVELTY = (0.1, 0.02)
"""N(0) and N(.5): standard deviation of the slope between dev and test documents, per unit of λ;
linear in between."""

PerQuery = Mapping[float, NDArray[np.float64]]
"""The measure of each dev query, float64 ``[n]``, by λ or by w."""
Anchors = tuple[float, float, float, float]
"""a(s) for each s of :data:`SEEN`."""


@dataclass(frozen=True)
class QueryKind:
    """Dev queries that represent a kind of expected queries.

    Attributes:
        has_query: bool ``[n]``, whether each dev query is of this kind.
        seen: s, the fraction of such queries' pairs whose document is known from training.
    """

    has_query: NDArray[np.bool_]
    seen: float


def anchors_of(kind: ModelKind) -> Anchors:
    """Return the anchors of λ for a kind of model."""
    return {"static": STATIC_ANCHOR, "adapter": ADAPTER_ANCHOR}.get(kind, TRANSFORMER_ANCHOR)


def choose_weight(
    per_query: PerQuery, kinds: Sequence[QueryKind], anchors: Anchors = STATIC_ANCHOR
) -> float:
    """Choose λ or w, one of the keys of ``per_query``.

    Args:
        per_query: see :data:`PerQuery`.
        kinds: the kinds of queries that dev represents.
        anchors: a(s).
    """
    weights = sorted(per_query)
    expected = np.array([expected_gains(per_query, kind, anchors) for kind in kinds])
    helpful = [
        weight == 0 or helps_on_dev(per_query[weight] - per_query[0.0], kinds) for weight in weights
    ]
    acceptable = np.array(helpful) & (expected >= 0).all(axis=0)
    # Kinds without dev queries may rule out a weight, but not favour one.
    total = expected[[bool(kind.has_query.any()) for kind in kinds]].sum(axis=0)
    return weights[int(np.argmax(np.where(acceptable, total, -np.inf)))]


def cross_fitted(
    per_query: PerQuery, kinds: Sequence[QueryKind], anchors: Anchors, seed: int
) -> NDArray[np.float64]:
    """Measure each half of the dev queries at the λ or w that the other half chooses.

    At the weight that all dev queries choose, their own values would be too high.

    Args:
        per_query: see :data:`PerQuery`.
        kinds: the kinds of queries that dev represents.
        anchors: a(s).
        seed: of the halves.

    Returns:
        float64 ``[n]``.
    """
    values = per_query[0.0].copy()
    half = generator(seed, "guard.halves").permutation(len(values)) % 2 == 0
    for measured in (half, ~half):
        weight = choose_weight(
            per_query,
            [replace(kind, has_query=kind.has_query & ~measured) for kind in kinds],
            anchors,
        )
        values[measured] = per_query[weight][measured]
    return values


def expected_gains(per_query: PerQuery, kind: QueryKind, anchors: Anchors) -> NDArray[np.float64]:
    """Return the expected gain over the weight 0 of each λ or w, in ascending order."""
    weights = sorted(per_query)
    differences = [
        (per_query[high] - per_query[low])[kind.has_query] for low, high in pairwise(weights)
    ]
    means = [difference.mean() if len(difference) else 0.0 for difference in differences]
    variances = [mean_variance(difference) for difference in differences]
    return expected_gains_of_steps(weights, means, variances, kind.seen, anchors)


def expected_gains_of_steps(
    weights: Sequence[float],
    means: Sequence[float],
    variances: Sequence[float],
    seen: float,
    anchors: Anchors,
) -> NDArray[np.float64]:
    """Return the expected gain over the weight 0 of each λ or w.

    Args:
        weights: the values of λ or w, ascending.
        means: the mean difference between each weight and the next on dev.
        variances: of these means.
        seen: s, as in :class:`QueryKind`.
        anchors: a(s).
    """
    best, gains = anchor(seen, anchors), [0.0]
    for (low, high), mean, variance in zip(pairwise(weights), means, variances, strict=True):
        total = variance + (novelty(seen) * (high - low)) ** 2
        prior = prior_mean(low, high, best)
        gains.append(posterior_mean(mean, total, prior, SPREAD * (high - low)))
    return np.cumsum(gains)


def helps_on_dev(gain: NDArray[np.float64], kinds: Sequence[QueryKind]) -> bool:
    """Whether a λ or w gains on dev, and loses on no kind of queries.

    Args:
        gain: over the weight 0, per dev query: float64 ``[n]``.
        kinds: the kinds of queries that dev represents.
    """
    means = [gain[kind.has_query].mean() for kind in kinds if kind.has_query.any()]
    return bool(means and max(means) > EQUAL and min(means) >= -EQUAL)


def anchor(seen: float, anchors: Anchors) -> float:
    """a(s): the λ or w that is expected to be best, without dev."""
    return float(np.interp(seen, SEEN, anchors))


def novelty(seen: float) -> float:
    """N(s): two sets of documents differ more if more of the documents are new."""
    return float(np.interp(seen, (0.0, 0.5), NOVELTY))


def prior_mean(low: float, high: float, best: float) -> float:
    """m: the expected change from λ = ``low`` to λ = ``high`` if the optimum is at ``best``."""
    return -GAIN * (abs(high - best) - abs(low - best))


def posterior_mean(mean: float, variance: float, prior: float, spread: float) -> float:
    """Combine a mean and its variance with a prior mean and standard deviation."""
    if not np.isfinite(variance):
        return prior
    return float((mean * spread**2 + prior * variance) / (spread**2 + variance))


def mean_variance(differences: NDArray[np.float64]) -> float:
    """Return the variance of the mean of differences ``[n]``; infinite for fewer than two."""
    if len(differences) < 2:
        return float("inf")
    return float(differences.var(ddof=1) / len(differences))


def guarded_measure(
    base: NDArray[np.float64],
    final: NDArray[np.float64],
    fine_tuned: NDArray[np.float64] | None = None,
) -> GuardedMeasure:
    """Compare the base, the final and, if measured, the fine-tuned model (λ = 1) by a measure per
    query.
    """
    low, high = mean_interval(final - base, bounds=DIFFERENCE)
    return GuardedMeasure(
        queries=len(base),
        base=float(base.mean()),
        fine_tuned=None if fine_tuned is None else float(fine_tuned.mean()),
        final=float(final.mean()),
        difference=float((final - base).mean()),
        low=low,
        high=high,
    )


def verdict_of(
    mixing_weight: float, dev: GuardedMeasure, n_queries: int
) -> Literal["better", "same", "kept"]:
    """Return ``kept`` for λ = 0; ``better`` if the interval on dev is above 0 and dev has enough
    queries; otherwise ``same``."""
    if mixing_weight == 0:
        return "kept"
    return "better" if dev.low > 0 and n_queries >= LEAST_QUERIES else "same"


KEYWORD_WEIGHTS = tuple(n / 10 for n in range(11))
"""The values of w to try."""


def choose_keyword_weights(
    mixture: Mixture,
    model: Evaluation,
    words: Evaluation,
    kinds: Sequence[QueryKind],
    anchors: Anchors,
    measure: str,
    seed: int = 0,
) -> KeywordsRecord:
    """Choose w for each data set, and record why.

    Args:
        mixture: the dev split, and the documents that it ranks.
        model: the model's results on dev.
        words: the results of keyword search on dev.
        kinds: the kinds of queries that dev represents.
        anchors: a(s) of w.
        measure: the measure that decides.
        seed: of the halves of dev that choose w for each other.
    """
    parsed, keyword_weights = parse_measures(measure), dict[str, float]()
    depth = ranking_depth(parsed)
    alone, hybrid = model.per_query[measure], model.per_query[measure].copy()
    queries_by_set = dev_queries_of_sets(mixture)
    for data_set in mixture.with_relevant("dev"):
        of_set, qrels = queries_by_set[data_set.name], data_set.judged_qrels("dev")
        fusion = fusion_of(data_set, model, words)
        values = {
            tried: per_query(fusion.ranking(tried, depth), qrels, parsed)[measure]
            for tried in KEYWORD_WEIGHTS
        }
        kinds_of_set = [replace(kind, has_query=kind.has_query[of_set]) for kind in kinds]
        keyword_weight = choose_weight(values, kinds_of_set, anchors)
        if keyword_weight > 0:
            hybrid[of_set] = cross_fitted(values, kinds_of_set, anchors, seed)
        keyword_weights[data_set.name] = keyword_weight
    low, high = mean_interval(hybrid - alone, bounds=DIFFERENCE)
    return KeywordsRecord(
        weights=keyword_weights,
        measure=measure,
        queries=len(alone),
        bm25=words.measures[measure],
        final=float(alone.mean()),
        hybrid=float(hybrid.mean()),
        low=low,
        high=high,
    )


def dev_queries_of_sets(mixture: Mixture) -> dict[str, NDArray[np.bool_]]:
    """Mark the dev queries of each data set, by its name."""
    sets = mixture.with_relevant("dev")
    counts = [data_set.judged_qrels("dev").n_queries for data_set in sets]
    set_of_query = np.repeat(np.arange(len(sets)), counts)
    return {data_set.name: set_of_query == set_number for set_number, data_set in enumerate(sets)}
