"""Sampling functions of several methods: shuffled passes, pools of queries, and documents.

DP's thresholds are order statistics of many numbers, found by counts in buckets. A step changes
only a few numbers, so counts are faster than sorting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs

LEVEL = 1024
BUCKETS = LEVEL * LEVEL
"""Counts have two levels: a search reads 1,024 groups, then the 1,024 buckets of one group."""


def bucket_of(values: FloatArray) -> NDArray[np.int64]:
    """Return the bucket of each number: int64, from 0 to ``BUCKETS - 1``, rising with the number.

    Buckets divide x/(1 + |x|) evenly, so numbers need no bounds. A bucket is 2e-6 wide at 0, and
    8e-6 at ±1.
    """
    x = np.asarray(values, dtype=np.float64)
    position = (x / (1 + np.abs(x)) + 1) / 2
    return np.asarray(np.minimum(position * BUCKETS, BUCKETS - 1).astype(np.int64))


def upper_edge(bucket: int) -> float:
    """Return the upper edge of a bucket."""
    y = 2 * (bucket + 1) / BUCKETS - 1
    return y / (1 - abs(y)) if y < 1 else np.inf


@dataclass(frozen=True)
class TopK:
    """The K highest of n numbers: all above a bucket, and a random part of the numbers in it.

    Attributes:
        count: K.
        bucket: the bucket of the K-th highest number; ``BUCKETS`` if K is 0.
        above: how many numbers are in higher buckets.
        tied: how many numbers are in this bucket.
    """

    count: int
    bucket: int
    above: int
    tied: int

    def probabilities(self, values: FloatArray) -> NDArray[np.float64]:
        """The probability of each number to be among the K: float64 ``[m]``."""
        bucket = bucket_of(values)
        of_tied = (self.count - self.above) / self.tied if self.tied else 0.0
        return np.where(bucket > self.bucket, 1.0, np.where(bucket == self.bucket, of_tied, 0.0))


NOTHING = TopK(0, BUCKETS, 0, 0)
"""The top 0."""


class Counts:
    """The number of values in each bucket. It takes 4 MB for any n.

    Args:
        values: float ``[n]``, finite.
    """

    def __init__(self, values: FloatArray) -> None:
        self._fine = np.bincount(bucket_of(values), minlength=BUCKETS).astype(np.int32)
        self._coarse = self._fine.reshape(LEVEL, LEVEL).sum(axis=1)
        self.size = len(values)

    def move(self, old: FloatArray, new: FloatArray) -> None:
        """Replace counted numbers ``old`` by ``new``, both ``[m]``."""
        for values, change in ((old, -1), (new, 1)):
            bucket = bucket_of(values)
            np.add.at(self._fine, bucket, change)
            np.add.at(self._coarse, bucket // LEVEL, change)

    def top_k(self, count: int) -> TopK:
        """Find the ``count`` highest numbers."""
        if count <= 0:
            return NOTHING
        bucket, below = self.locate(self.size - count)
        tied = int(self._fine[bucket])
        return TopK(count, bucket, self.size - below - tied, tied)

    def locate(self, rank: int) -> tuple[int, int]:
        """Return the bucket of the number at ``rank`` (0 is the lowest number), and the count of
        all lower buckets.
        """
        group, below = _first_beyond(self._coarse, rank)
        buckets = self._fine[group * LEVEL : (group + 1) * LEVEL]
        number, within = _first_beyond(buckets, rank - below)
        return group * LEVEL + number, below + within


def _first_beyond(counts: IntArray, rank: int) -> tuple[int, int]:
    """Return the index where the running total first exceeds ``rank``, and the total before it."""
    total = np.cumsum(counts)
    index = int(np.searchsorted(total, rank, side="right"))
    return index, int(total[index] - counts[index])


SEARCH_FROM = 0.125
"""From this fraction of the available queries on, a search is faster than rejection sampling."""


class ShuffledPasses:
    """An endless sequence of passes over ``size`` items, each in a new random order.

    Any part can be read without earlier parts, so checkpoints store no state.
    """

    def __init__(self, seed: int, name: str, size: int) -> None:
        self.seed, self.name, self.size = seed, name, size
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return ``count`` items of the sequence from position ``start`` on: int64 ``[count]``."""
        parts = []
        while count > 0:
            number, position = divmod(start, self.size)
            if number != self._pass:
                self._pass = number
                self._order = generator(self.seed, self.name, number).permutation(self.size)
            parts.append(self._order[position : position + count])
            start, count = start + len(parts[-1]), count - len(parts[-1])
        return np.concatenate(parts)


def draw_pool(
    rng: np.random.Generator,
    score: Callable[[IntArray], FloatArray],
    n: int,
    top: TopK,
    pool_size: int,
    count: int,
) -> NDArray[np.int64]:
    """Algorithm 1, SampleQuery: sample from the pool of all top queries and random other queries.

    Samples ``count`` queries without replacement, in random order. After ``pool_size`` queries a
    new pool begins. The pool is never built: the numbers of sampled queries above, in and below the
    top's last bucket follow hypergeometric distributions, and within these kinds queries are
    uniform.

    Args:
        rng: the random generator.
        score: returns the scores of queries ``[m]``.
        n: the number of queries.
        top: the top queries.
        pool_size: n₀, between ``top.count`` and n.
        count: how many queries to sample.

    Returns:
        int64 ``[count]``.
    """

    def side(queries: IntArray) -> IntArray:
        return np.sign(bucket_of(score(queries)) - top.bucket)

    pools = [np.empty(0, dtype=np.int64)]
    for start in range(0, count, pool_size):
        size = min(count - start, pool_size)
        # Sampled top queries; then how many top and other queries are in the border's bucket.
        tops = rng.hypergeometric(top.count, pool_size - top.count, size)
        tied_tops = rng.hypergeometric(top.count - top.above, top.above, tops)
        tied_left, below = top.above + top.tied - top.count, n - top.above - top.tied
        tied_others = rng.hypergeometric(tied_left, below, size - tops)
        parts = [
            _draw_some(rng, lambda ids: side(ids) == 1, n, top.above, tops - tied_tops),
            _draw_some(rng, lambda ids: side(ids) == 0, n, top.tied, tied_tops + tied_others),
            _draw_some(rng, lambda ids: side(ids) == -1, n, below, size - tops - tied_others),
        ]
        pools.append(rng.permutation(np.concatenate(parts)))
    return np.concatenate(pools)


def _draw_some(
    rng: np.random.Generator,
    is_kind: Callable[[IntArray], BoolArray],
    n: int,
    available: int,
    count: int,
) -> NDArray[np.int64]:
    """Sample ``count`` different queries from the ``available`` queries of one kind."""
    if count > SEARCH_FROM * available:
        queries = np.arange(n)
        return rng.choice(queries[is_kind(queries)], count, replace=False)
    sampled = np.empty(0, dtype=np.int64)
    while len(sampled) < count:
        proposed = rng.integers(n, size=2 * n * count // available)
        sampled = np.concatenate([sampled, proposed[is_kind(proposed)]])
        sampled = sampled[np.sort(np.unique(sampled, return_index=True)[1])]
    return sampled[:count]


def draw_documents(
    rng: np.random.Generator, pairs: TrainingPairs, queries: IntArray
) -> NDArray[np.int64]:
    """Sample a positive document of each query ``[B]``, uniformly: pair ids, int64 ``[B]``."""
    starts = pairs.query_offsets[queries]
    return np.asarray(
        starts + rng.integers(pairs.query_offsets[queries + 1] - starts), dtype=np.int64
    )


def draw_weighted_documents(
    rng: np.random.Generator,
    pairs: TrainingPairs,
    queries: IntArray,
    weigh: Callable[[IntArray], FloatArray],
) -> NDArray[np.int64]:
    """Algorithm 1, SampleDocument: sample a positive document of each query by weight.

    Args:
        rng: the random generator.
        pairs: the training pairs.
        queries: int ``[B]``.
        weigh: returns the weights of pairs ``[M]``; if a query has only zeros, its documents are
            uniform.

    Returns:
        int64 ``[B]``, pair ids.
    """
    distinct, index = np.unique(queries, return_inverse=True)
    pair_ids, offsets = pairs.of_queries(distinct)
    weight = np.asarray(weigh(pair_ids), dtype=np.float64)
    weight[np.repeat(np.add.reduceat(weight, offsets[:-1]) == 0, np.diff(offsets))] = 1
    # Invert the cumulative sum within each query.
    ends = np.concatenate([[0], np.cumsum(weight)])[offsets]
    target = ends[index] + rng.random(len(index)) * (ends[index + 1] - ends[index])
    position = np.searchsorted(np.cumsum(weight), target, side="right")
    # Rounding may pass the end.
    position = np.clip(position, offsets[index], offsets[index + 1] - 1)
    return np.asarray(pair_ids[position])
