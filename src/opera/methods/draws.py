"""Sampling functions of several methods: shuffled passes, pools of queries, and documents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods.counts import TopK, bucket_of

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
