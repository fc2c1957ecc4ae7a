"""Estimate which pairs are wrong from the rank of each document when its pair is first visited.

At that moment the model has learnt the domain from other pairs, but it has never seen this pair.
So the rank is a held-out test of the label, and the batch gives it for free. A document that was
labelled at random has a uniform rank among the documents of its data set, for any model. So the
ranks are p-values. Those above ½ give the noise rate (Storey 2002). Their density gives the
probability of each pair to be wrong, the local false discovery rate (Efron 2001). The other pairs
of the query help: if they look correct, a doubtful pair is more often wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit, stdtrit

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.figures import LEVEL, fraction_interval
from opera.data.pairs import TrainingPairs


@dataclass
class FirstVisits:
    """The result of the first visit of each pair.

    Attributes:
        p: float32 ``[N]``, (a + ½)/(b + 1) where a of b other documents of the batch and the data
            set rank above the pair's, uniform for a random one; NaN before the first visit.
        step: int32 ``[N]``, the step of the first visit; -1 before it.
        first_pairs: int ``[sets + 1]``, the first pair of each data set, and the end of the last
            one. Each data set has its own estimate.
        confirmed: bool ``[N]``, the pairs that a reviewer decided to be correct.
        removed_excess: for each data set, how many more of the pairs that decisions removed have a
            p above ½ than below. The p of all wrong pairs is uniform only if these pairs count too.
        copies: int ``[N]``, equal for pairs with the same texts, which share their first visit;
            ``None`` if no pair is repeated.
    """

    p: NDArray[np.float32]
    step: NDArray[np.int32]
    first_pairs: IntArray
    confirmed: BoolArray
    removed_excess: list[int]
    copies: IntArray | None = None

    @classmethod
    def none(
        cls,
        n_pairs: int,
        first_pairs: IntArray | None = None,
        confirmed: BoolArray | None = None,
        removed_excess: list[int] | None = None,
        copies: IntArray | None = None,
    ) -> FirstVisits:
        """No pair visited yet. By default there is one data set without decisions."""
        first_pairs_of_sets = np.array([0, n_pairs]) if first_pairs is None else first_pairs
        return cls(
            np.full(n_pairs, np.nan, np.float32),
            np.full(n_pairs, -1, np.int32),
            first_pairs_of_sets,
            np.zeros(n_pairs, dtype=bool) if confirmed is None else confirmed,
            removed_excess or [0] * (len(first_pairs_of_sets) - 1),
            copies,
        )

    @property
    def visited(self) -> BoolArray:
        """Which pairs are visited: bool ``[N]``."""
        return ~np.isnan(self.p)

    def set_of(self, pair_ids: IntArray) -> NDArray[np.int64]:
        """The number of each pair's data set, int64 in the shape of ``pair_ids``."""
        return np.asarray(np.searchsorted(self.first_pairs, pair_ids, side="right") - 1)

    def of_data_set(self, set_number: int) -> FirstVisits:
        """A view of one data set's pairs. It shares its arrays with this object."""
        pairs_of_set = slice(*self.first_pairs[set_number : set_number + 2])
        p, step = self.p[pairs_of_set], self.step[pairs_of_set]
        confirmed, excess = self.confirmed[pairs_of_set], self.removed_excess[set_number]
        return FirstVisits(p, step, np.array([0, len(p)]), confirmed, [excess])

    def record(self, step: int, pair_ids: IntArray, p: FloatArray) -> None:
        """Record the p of the new pairs among the pairs ``[B]`` of a step."""
        is_new = np.isnan(self.p[pair_ids]) & ~np.isnan(p)
        pair_ids, p = pair_ids[is_new], p[is_new]
        new_pairs, positions = np.unique(pair_ids, return_index=True)  # the first of repeated pairs
        if self.copies is not None:
            copy_numbers, positions = np.unique(self.copies[pair_ids], return_index=True)
            new_pairs = np.flatnonzero(np.isin(self.copies, copy_numbers))
            positions = positions[np.searchsorted(copy_numbers, self.copies[new_pairs])]
        self.p[new_pairs], self.step[new_pairs] = p[positions], step

    def take_over(self, keys: IntArray, earlier: FirstVisits, earlier_keys: IntArray) -> None:
        """Copy the visits of the same pairs from an earlier training.

        Args:
            keys: int ``[N]``, one key per pair, such as those of ``text_keys``.
            earlier: the visits of the earlier training.
            earlier_keys: its keys.
        """
        distinct_keys, earlier_pairs = np.unique(earlier_keys, return_index=True)
        positions = np.minimum(np.searchsorted(distinct_keys, keys), len(distinct_keys) - 1)
        pairs = np.flatnonzero(distinct_keys[positions] == keys)  # a copy has the key of its pair
        same_pairs = earlier_pairs[positions[pairs]]
        self.p[pairs], self.step[pairs] = earlier.p[same_pairs], earlier.step[same_pairs]

    def state_dict(self) -> dict[str, Any]:
        """Return the state that resuming needs."""
        return {"p": self.p.copy(), "step": self.step.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in place."""
        self.p[:], self.step[:] = state["p"], state["step"]


def calibrated(
    p: FloatArray, random: FloatArray, labels: IntArray, sets: IntArray
) -> NDArray[np.float32]:
    """Rank p-values among those of random documents, so that they are uniform for a wrong label.

    A wrong label falls on a document as often as other labels do. So a random document counts as
    often as it has labels.

    Args:
        p: float ``[B]``, of the pairs of a batch.
        random: float ``[B, c]``, of the random negatives of the same queries; NaN for none.
        labels: int ``[B, c]``, how many training pairs have each of these documents.
        sets: int ``[B]``, the data set of each pair. Ranks are those within a data set.

    Returns:
        float32 ``[B]``; NaN without a random document that has a label.
    """
    result = np.full(len(p), np.nan, dtype=np.float32)
    for number in np.unique(sets):
        members = np.flatnonzero((sets == number) & ~np.isnan(p))
        counts = (sets == number)[:, None] & ~np.isnan(random) & (labels > 0)
        order = np.argsort(random[counts])
        sample, weights = random[counts][order], labels[counts][order]
        if len(sample):
            below = np.cumsum([0.0, *(weights / weights.mean())])
            sides = [below[np.searchsorted(sample, p[members], side)] for side in ("left", "right")]
            result[members] = (np.mean(sides, axis=0) + 0.5) / (len(sample) + 1)
    return result


EDGES = np.concatenate([[0.0], np.geomspace(0.002, 1, 25)])
"""Bins of p-values. They are narrow near 0, where the correct pairs are."""
FEWEST = 300
"""A class of queries needs so many visits; smaller classes join the next one."""
LATER = 2000
"""The noise rate uses the later half of the visits, from a better model, but at least so many."""
PAIRS_PER_BLOCK, QUERIES_PER_BLOCK = 100, 20
"""Visits, and queries, in a block of pairs whose siblings look alike."""
SUSPICIOUS = 0.5
"""The list holds the pairs whose probability to be wrong is higher."""


def noise_rate(p: FloatArray) -> float:
    """π₀ (Storey 2002, at ½): half of the wrong pairs lie above ½, and no correct pair does."""
    return min(1.0, float(_above_half(p).mean()))


def noise_interval(
    rate: float, classes: Sequence[tuple[float, FloatArray, IntArray]]
) -> tuple[float, float]:
    """The 95% interval of a noise rate, by Korn and Graubard (1998).

    The rate is twice the fraction of pairs with p > ½, so the interval is twice that of a fraction:
    the exact one for as many independent pairs as have the same variance over queries, fewer if
    there are few queries. If no pair has p > ½, its upper end is still above 0.

    Args:
        rate: the noise rate.
        classes: for each class, its fraction of the pairs, and the p and the query index, float and
            int ``[m]``, of the pairs that its rate is estimated from.
    """
    weight = np.concatenate([np.full(len(p), fraction / len(p)) for fraction, p, _ in classes])
    residual = np.concatenate([_above_half(p) / 2 - noise_rate(p) / 2 for _, p, _ in classes])
    total, query_indices = (
        weight.sum(),
        np.concatenate([query_indices for _, _, query_indices in classes]),
    )
    sums = np.bincount(np.unique(query_indices, return_inverse=True)[1], weight * residual) / total
    degrees, fraction = max(1, len(sums) - 1), rate / total / 2
    variance = (sums**2).sum() * (1 + 1 / degrees)
    independent = fraction * (1 - fraction) / variance if variance > 0 else np.inf
    normal, student = stdtrit([np.inf, degrees], (1 + LEVEL) / 2)
    size = min(total**2 / (weight**2).sum(), independent) * (normal / student) ** 2
    low, high = fraction_interval(fraction * size, size)
    return 2 * total * low, min(total, 2 * total * high)


def _above_half(p: FloatArray) -> NDArray[np.float64]:
    """Twice the indicator of p > ½, and 1 for p = ½. Its mean is 1 for uniform ranks."""
    return np.asarray(2.0 * (p > 0.5) + (p == 0.5), dtype=np.float64)


def decreasing_density(p: FloatArray) -> NDArray[np.float64]:
    """The density of p-values ``[m]`` in each bin of :data:`EDGES`, decreasing by isotonic
    regression: a document that ranks lower is never more likely to be correct.
    """
    width = np.diff(EDGES)
    counts = np.histogram(p, EDGES)[0]
    fitted = isotonic_regression(counts / len(p) / width, weights=width, increasing=False)
    return np.asarray(fitted.x, dtype=np.float64)


def local_false_rate(p: FloatArray, rate: float, density: FloatArray) -> NDArray[np.float64]:
    """π₀·f₀/f (Efron 2001) at p-values ``[m]``, where f₀ is the uniform density of wrong pairs."""
    densities = density[np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(density) - 1)]
    return np.minimum(1, rate / np.maximum(densities, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class NoisyLabels:
    """What the first visits say about all pairs.

    Attributes:
        noise_rate: fraction of the pairs that are wrong, among those that are not pruned.
        low: lower end of its 95% interval.
        high: upper end.
        probability_wrong: float32 ``[N]``; NaN for a pair that was not visited, or whose data set
            has too few visits.
        suspicious: int64 ``[m]``, the pairs that are more likely wrong than correct, worst first.
    """

    noise_rate: float
    low: float
    high: float
    probability_wrong: NDArray[np.float32] = field(repr=False)
    suspicious: NDArray[np.int64] = field(repr=False)


def increasing_rate(x: FloatArray, p: FloatArray, blocks: int) -> NDArray[np.float64]:
    """π₀ of p-values ``[m]`` as an increasing function of ``x`` ``[m]``: isotonic regression over
    ``blocks`` of equal size. It assumes only that the p of a wrong pair does not depend on x.
    """
    edges = np.quantile(x, np.linspace(0, 1, max(1, blocks) + 1)[1:-1], method="lower")
    _, block = np.unique(np.searchsorted(edges, x, side="right"), return_inverse=True)
    count = np.bincount(block)
    above = np.bincount(block, _above_half(p)) / count
    fitted = isotonic_regression(above, weights=count).x
    return np.asarray(np.minimum(1, fitted)[block], dtype=np.float64)


def beside_siblings(
    query_indices: IntArray, p: FloatArray, alone: FloatArray
) -> NDArray[np.float64]:
    """The probability of visited pairs ``[m]`` to be wrong, given the other pairs of their queries.

    ``alone`` assumes the noise rate π of all pairs as the prior. Here the prior is π(s), the noise
    rate of the pairs whose siblings (the other pairs of the query) look correct as often, s:

        odds = odds of ``alone`` · (π(s) / (1 − π(s))) / (π / (1 − π))

    π(s) increases with s. If all pairs of a query rank low, the query is hard for the model, so its
    pairs are not more likely to be wrong. Pairs without siblings have a separate rate. π(s) is
    constant over blocks of about :data:`QUERIES_PER_BLOCK` queries, because within one query the
    pairs with the best siblings are the worst pairs.

    Args:
        query_indices: int ``[m]``.
        p: float ``[m]``, all of one class of queries.
        alone: float ``[m]``, the probability from the pair's p alone.
    """
    counts = np.bincount(query_indices)
    siblings = counts[query_indices] - 1
    correct = (np.bincount(query_indices, 1 - alone)[query_indices] - (1 - alone)) / np.maximum(
        1, siblings
    )
    prior = np.full(len(p), noise_rate(p))
    odds = logit(alone) - _log_odds(prior)
    for alike in (siblings == 0, siblings > 0):
        if (visits := int(alike.sum())) >= PAIRS_PER_BLOCK:
            blocks = min(visits // PAIRS_PER_BLOCK, int((counts > 0).sum()) // QUERIES_PER_BLOCK)
            prior[alike] = increasing_rate(correct[alike], p[alike], blocks)
    return np.asarray(expit(odds + _log_odds(prior)), dtype=np.float64)


def _log_odds(rate: FloatArray) -> NDArray[np.float64]:
    """The logit of a rate among :data:`PAIRS_PER_BLOCK` pairs, clipped so that it stays finite."""
    return np.asarray(
        logit(np.clip(rate, 1 / PAIRS_PER_BLOCK, 1 - 1 / PAIRS_PER_BLOCK)), dtype=np.float64
    )


def probability_wrong(pairs: TrainingPairs, visits: FirstVisits) -> NDArray[np.float32]:
    """The probability of each pair to be wrong, float32 ``[N]``; 0 while too few are visited.

    Queries with many documents often have more wrong ones, so rates and densities are those of
    queries with about as many documents. A pair that was not visited has the rate of its class. A
    confirmed pair has 0.
    """
    probability = np.zeros(pairs.n_pairs)
    for members in _classes(pairs, visits):
        visited = members[visits.visited[members]]
        p = visits.p[visited]
        rate = _class_rate(visited, visits)
        alone = local_false_rate(p, rate, decreasing_density(p))
        probability[members] = rate
        probability[visited] = beside_siblings(pairs.pair_query[visited], p, alone)
    return probability.astype(np.float32)


def estimate(pairs: TrainingPairs, visits: FirstVisits, kept: BoolArray) -> NoisyLabels | None:
    """Estimate the noise rate with its interval, and each pair's probability to be wrong.

    ``None`` while fewer than :data:`FEWEST` pairs are visited.

    Args:
        pairs: the training pairs.
        visits: their first visits.
        kept: bool ``[N]``, the pairs that the method does not prune.
    """
    classes = _classes(pairs, visits)
    if not classes:
        return None
    sizes = np.array([np.count_nonzero(kept[members]) for members in classes])
    all_pairs = sizes.sum() + np.count_nonzero(kept & visits.confirmed)
    rate, samples = 0.0, []
    for members, fraction in zip(classes, sizes / all_pairs, strict=True):
        visited = members[visits.visited[members]]
        later = _later(visited, visits)
        rate += fraction * _class_rate(visited, visits)
        samples.append((fraction, visits.p[later], pairs.pair_query[later]))
    low, high = noise_interval(rate, samples)
    judged = np.concatenate([members[visits.visited[members]] for members in classes])
    probability = np.full(pairs.n_pairs, np.nan, np.float32)
    probability[judged] = probability_wrong(pairs, visits)[judged]
    probability[visits.confirmed & visits.visited] = 0
    listed = np.flatnonzero(probability > SUSPICIOUS)
    listed = listed[np.lexsort((-visits.p[listed], -probability[listed]))]
    return NoisyLabels(float(rate), float(low), float(high), probability, listed)


def _class_rate(visited: IntArray, visits: FirstVisits) -> float:
    """π₀ of visited pairs of one class, from the later visits.

    Decisions remove mostly wrong pairs with a low rank. Without them, the ranks of the remaining
    wrong pairs are no longer uniform. So the rate counts the excess of the removed pairs again.
    """
    set_number = int(visits.set_of(visited[:1])[0])
    pairs_of_set = slice(*visits.first_pairs[set_number : set_number + 2])
    in_set = int((visits.visited & ~visits.confirmed)[pairs_of_set].sum())
    rate = noise_rate(visits.p[_later(visited, visits)])
    return float(np.clip(rate + visits.removed_excess[set_number] / in_set, 0, 1))


def _classes(pairs: TrainingPairs, visits: FirstVisits) -> list[NDArray[np.int64]]:
    """Group the pairs of each data set by ⌊log₂ mq⌋, where mq counts the documents of their query.

    Every class, int64 ``[m]``, has at least :data:`FEWEST` visits. A data set with fewer visits has
    no class. Confirmed pairs belong to none.
    """
    sizes = np.log2(pairs.positives_per_query).astype(np.int64)[pairs.pair_query]
    classes = []
    for start, end in pairwise(visits.first_pairs.tolist()):
        size, is_open = sizes[start:end], ~visits.confirmed[start:end]
        visited = visits.visited[start:end] & is_open
        counts = np.bincount(size[visited], minlength=int(size.max()) + 1)
        ends = [-1]
        for last in range(len(counts)):
            if counts[ends[-1] + 1 : last + 1].sum() >= FEWEST:
                ends.append(last)
        ends[-1] = len(counts) - 1 if len(ends) > 1 else -1
        classes += [
            start + np.flatnonzero((size > below) & (size <= largest) & is_open)
            for below, largest in pairwise(ends)
        ]
    return classes


def _later(pair_ids: IntArray, visits: FirstVisits) -> NDArray[np.int64]:
    """The later half of the visited pairs, or the last :data:`LATER` if that is more."""
    order = pair_ids[np.argsort(-visits.step[pair_ids], kind="stable")]
    return np.sort(order[: max(LATER, len(pair_ids) // 2)])
