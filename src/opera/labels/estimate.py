"""Which pairs look wrong: the rank of each pair's document when the pair is first visited.

At that moment the model has learnt the domain from other pairs and has not seen this one, so the
rank is a held-out test of the label, and the batch has it for free. Where the document is a random
one of its data set, its rank among others of the set is uniform, whatever the model can do:
p-values above ½ give the share of false pairs (Storey 2002), and the density of all of them each
pair's probability to be false, the local false discovery rate (Efron 2001). The other pairs of its
query say more: where they look true, a doubtful one is more often false.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit
from scipy.stats import norm

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.data.pairs import TrainingPairs
from opera.labels.visits import FirstVisits

EDGES = np.concatenate([[0.0], np.geomspace(0.002, 1, 25)])
"""Bins of p-values: fine where true pairs are."""
FEWEST = 300
"""Visits from which a share is estimated; a class of queries with fewer is joined to the next."""
LATER = 2000
"""The share is of the later half of the visits, by a better model, but of this many at least."""
BLOCK, BLOCK_QUERIES = 100, 20
"""Visits, and queries, from which a share is estimated beside like siblings."""
SUSPICIOUS = 0.5
"""A pair that is more probably false than this is listed."""


def false_share(p: FloatArray) -> float:
    """π₀ (Storey 2002, at ½): the false pairs are as many below ½ as above, the true ones below."""
    return min(1.0, float(_above_half(p).mean()))


def _above_half(p: FloatArray) -> NDArray[np.float64]:
    """Twice the indicator of p > ½, and 1 at ½ itself: of mean 1 for uniform ranks."""
    return np.asarray(2.0 * (p > 0.5) + (p == 0.5), dtype=np.float64)


def decreasing_density(p: FloatArray) -> NDArray[np.float64]:
    """The density of p-values ``[m]`` in each bin of :data:`EDGES`, made decreasing (isotonic
    regression): a document that ranks lower is never more probably true.
    """
    width = np.diff(EDGES)
    counts = np.histogram(p, EDGES)[0]
    fitted = isotonic_regression(counts / len(p) / width, weights=width, increasing=False)
    return np.asarray(fitted.x, dtype=np.float64)


def local_false_rate(p: FloatArray, share: float, density: FloatArray) -> NDArray[np.float64]:
    """π₀·f₀/f (Efron 2001) at p-values ``[m]``, where f₀ is the uniform density of false pairs."""
    densities = density[np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(density) - 1)]
    return np.minimum(1, share / np.maximum(densities, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class FalsePairs:
    """What first visits say of all pairs.

    Attributes:
        share: of the pairs that are false, of those that are not pruned.
        low: lower end of its 95% interval, by the standard error over queries.
        high: upper end.
        probability: float32 ``[N]``, that a pair is false; NaN for one not visited, or of a data
            set with too few visits.
        suspicious: int64 ``[m]``, the pairs more probably false than not, the worst first.
    """

    share: float
    low: float
    high: float
    probability: NDArray[np.float32] = field(repr=False)
    suspicious: NDArray[np.int64] = field(repr=False)


def increasing_share(x: FloatArray, p: FloatArray, blocks: int) -> NDArray[np.float64]:
    """π₀ of p-values ``[m]`` at each of ``x`` ``[m]``, made increasing (isotonic regression over
    ``blocks`` as large as each other). It needs no more than that a false pair's p does not follow
    x.
    """
    edges = np.quantile(x, np.linspace(0, 1, max(1, blocks) + 1)[1:-1], method="lower")
    _, block = np.unique(np.searchsorted(edges, x, side="right"), return_inverse=True)
    count = np.bincount(block)
    above = np.bincount(block, _above_half(p)) / count
    fitted = isotonic_regression(above, weights=count).x
    return np.asarray(np.minimum(1, fitted)[block], dtype=np.float64)


def beside_siblings(query: IntArray, p: FloatArray, alone: FloatArray) -> NDArray[np.float64]:
    """The probability of visited pairs ``[m]`` to be false, given the other pairs of their queries.

    The share, which is what is known before the rank, gives way to that of pairs whose siblings
    look as true in the mean: the odds change as the odds of both shares, each of all visits
    (Bayes' rule). It may grow with them, and not fall: that a query's pairs all rank low says that
    it is hard for the model, not that they are false. Pairs without a sibling have a share of their
    own. Each block has :data:`BLOCK_QUERIES` queries or so too: among the pairs of one, those with
    the best siblings are the worst themselves.

    Args:
        query: int ``[m]``.
        p: float ``[m]``, all of one class of queries.
        alone: float ``[m]``, the probability by a pair's own p.
    """
    counts = np.bincount(query)
    siblings = counts[query] - 1
    true = (np.bincount(query, 1 - alone)[query] - (1 - alone)) / np.maximum(1, siblings)
    share = np.full(len(p), false_share(p))
    odds = logit(alone) - _log_odds(share)
    for alike in (siblings == 0, siblings > 0):
        if (visits := int(alike.sum())) >= BLOCK:
            blocks = min(visits // BLOCK, int((counts > 0).sum()) // BLOCK_QUERIES)
            share[alike] = increasing_share(true[alike], p[alike], blocks)
    return np.asarray(expit(odds + _log_odds(share)), dtype=np.float64)


def _log_odds(share: FloatArray) -> NDArray[np.float64]:
    """The logit of a share of some :data:`BLOCK` pairs, which is never quite 0 or 1."""
    return np.asarray(logit(np.clip(share, 1 / BLOCK, 1 - 1 / BLOCK)), dtype=np.float64)


def probability_false(pairs: TrainingPairs, visits: FirstVisits) -> NDArray[np.float32]:
    """The probability of each pair to be false, float32 ``[N]``; 0 while too few are visited.

    Queries with many documents often have more false ones: shares and densities are of queries with
    about as many. A pair that is not visited has its class's share, and a confirmed one 0.
    """
    probability = np.zeros(pairs.n_pairs)
    for members in _classes(pairs, visits):
        visited = members[visits.visited[members]]
        p = visits.p[visited]
        share = _share(visited, visits)
        alone = local_false_rate(p, share, decreasing_density(p))
        probability[members] = share
        probability[visited] = beside_siblings(pairs.pair_query[visited], p, alone)
    return probability.astype(np.float32)


def estimate(pairs: TrainingPairs, visits: FirstVisits, kept: BoolArray) -> FalsePairs | None:
    """The share of false pairs with its interval, and each pair's probability; ``None`` while fewer
    than :data:`FEWEST` pairs are visited.

    Args:
        pairs: the training pairs.
        visits: of them.
        kept: bool ``[N]``, the pairs that can be drawn at all; of others nothing is known.
    """
    classes = _classes(pairs, visits)
    if not classes:
        return None
    confirmed = visits.is_confirmed
    sizes = np.array([np.count_nonzero(kept[members]) for members in classes])
    all_pairs = sizes.sum() + np.count_nonzero(kept & confirmed)
    total, variance = 0.0, 0.0
    for members, part in zip(classes, sizes / all_pairs, strict=True):
        later = _later(members[visits.visited[members]], visits)
        above = _above_half(visits.p[later])
        # A ratio of sums over queries, which a class has with all their pairs.
        residuals = np.bincount(pairs.pair_query[later], above - above.mean())
        total += part * _share(members[visits.visited[members]], visits)
        variance += (part / len(later)) ** 2 * (residuals**2).sum()
    low, high = np.clip(total + np.sqrt(variance) * norm.ppf([0.025, 0.975]), 0, 1)
    judged = np.concatenate([members[visits.visited[members]] for members in classes])
    probability = np.full(pairs.n_pairs, np.nan, np.float32)
    probability[judged] = probability_false(pairs, visits)[judged]
    probability[confirmed & visits.visited] = 0
    listed = np.flatnonzero(probability > SUSPICIOUS)
    listed = listed[np.lexsort((-visits.p[listed], -probability[listed]))]
    return FalsePairs(float(total), float(low), float(high), probability, listed)


def _share(visited: IntArray, visits: FirstVisits) -> float:
    """π₀ of visited pairs of one data set, by the later ones.

    Wrong pairs that were removed mostly ranked low. Without them the wrong pairs that are left are
    more often above the middle than below, so the share gets the excess of the removed ones back.
    """
    number = int(visits.set_of(visited[:1])[0])
    first, end = visits.first_pairs[number : number + 2]
    in_set = int((visits.visited & ~visits.is_confirmed)[first:end].sum())
    share = false_share(visits.p[_later(visited, visits)])
    return float(np.clip(share + visits.removed_excess[number] / in_set, 0, 1))


def _classes(pairs: TrainingPairs, visits: FirstVisits) -> list[NDArray[np.int64]]:
    """Pairs of each data set by ⌊log₂ mq⌋, mq the documents of their query, in classes with
    :data:`FEWEST` visits or more: int64 ``[m]`` each; none of a set while it has too few.
    Confirmed pairs are in none.
    """
    sizes = np.log2(pairs.positives_per_query).astype(np.int64)[pairs.pair_query]
    classes = []
    for start, end in pairwise(visits.first_pairs.tolist()):
        size, is_open = sizes[start:end], ~visits.is_confirmed[start:end]
        visited = visits.visited[start:end] & is_open
        counts = np.bincount(size[visited], minlength=int(size.max()) + 1)
        ends = [-1]
        for last in range(len(counts)):
            if counts[ends[-1] + 1 : last + 1].sum() >= FEWEST:
                ends.append(last)
        ends[-1] = len(counts) - 1 if len(ends) > 1 else -1
        classes += [
            start + np.flatnonzero((size > first) & (size <= last) & is_open)
            for first, last in pairwise(ends)
        ]
    return classes


def _later(ids: IntArray, visits: FirstVisits) -> NDArray[np.int64]:
    """The later half of visited pairs, of :data:`LATER` at least where there are as many."""
    order = ids[np.argsort(-visits.step[ids], kind="stable")]
    return np.sort(order[: max(LATER, len(ids) // 2)])
