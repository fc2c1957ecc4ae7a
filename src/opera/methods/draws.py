"""The draws that methods share: shuffled passes, pools of queries, and one document per query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods.counts import TopK, bucket_of

# share of the queries of a kind to draw from which looking at all is faster than proposing
SEARCH_FROM = 0.125


class ShuffledPasses:
    """An endless sequence of passes over ``size`` items, each pass in its own random order.

    Any stretch can be read without those before it, so resuming needs no state.
    """

    def __init__(self, seed: int, name: str, size: int) -> None:
        self.seed, self.name, self.size = seed, name, size
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the items at positions ``start`` to ``start + count`` of the sequence: int64
        ``[count]``.
        """
        taken = []
        while count > 0:
            number, position = divmod(start, self.size)
            if number != self._pass:
                self._pass = number
                self._order = generator(self.seed, self.name, number).permutation(self.size)
            taken.append(self._order[position : position + count])
            start, count = start + len(taken[-1]), count - len(taken[-1])
        return np.concatenate(taken)


def draw_pool(
    rng: np.random.Generator,
    score: Callable[[IntArray], FloatArray],
    n: int,
    top: TopK,
    pool_size: int,
    count: int,
) -> NDArray[np.int64]:
    """Algorithm 1, SampleQuery: draw from the pool of all top queries and a uniform random part of
    the others.

    Draws ``count`` queries, in random order, without replacement; after ``pool_size`` draws a new
    pool begins. The pool is not built: how many of a draw lie above the top's last bucket, in it
    and below it has a hypergeometric distribution, and the queries of each kind are a uniform
    random part of all of that kind.

    Args:
        rng: what to draw from.
        score: returns the scores of queries ``[m]``.
        n: the number of queries.
        top: the top queries.
        pool_size: n₀, between ``top.count`` and n.
        count: how many queries to draw.

    Returns:
        int64 ``[count]``.
    """

    def side(queries: IntArray) -> IntArray:
        return np.sign(bucket_of(score(queries)) - top.bucket)

    pools = [np.empty(0, dtype=np.int64)]
    for start in range(0, count, pool_size):
        size = min(count - start, pool_size)
        # Top queries and others in the draw; then how many of both are in the bucket that the
        # border cuts.
        tops = rng.hypergeometric(top.count, pool_size - top.count, size)
        tied_tops = rng.hypergeometric(top.count - top.above, top.above, tops)
        tied_left, below = top.above + top.tied - top.count, n - top.above - top.tied
        tied_others = rng.hypergeometric(tied_left, below, size - tops)
        drawn = [
            _draw_some(rng, lambda ids: side(ids) == 1, n, top.above, tops - tied_tops),
            _draw_some(rng, lambda ids: side(ids) == 0, n, top.tied, tied_tops + tied_others),
            _draw_some(rng, lambda ids: side(ids) == -1, n, below, size - tops - tied_others),
        ]
        pools.append(rng.permutation(np.concatenate(drawn)))
    return np.concatenate(pools)


def _draw_some(
    rng: np.random.Generator,
    is_kind: Callable[[IntArray], BoolArray],
    n: int,
    available: int,
    count: int,
) -> NDArray[np.int64]:
    """Draw ``count`` different queries of one kind, of which ``available`` of the n are: int64
    ``[count]``.
    """
    if count > SEARCH_FROM * available:
        every = np.arange(n)
        return rng.choice(every[is_kind(every)], count, replace=False)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        proposed = rng.integers(n, size=2 * n * count // available)
        drawn = np.concatenate([drawn, proposed[is_kind(proposed)]])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return drawn[:count]


def draw_documents(
    rng: np.random.Generator, pairs: TrainingPairs, queries: IntArray
) -> NDArray[np.int64]:
    """Draw one positive document per query ``[B]``, uniformly among the query's: pair ids, int64
    ``[B]``.
    """
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
    """Algorithm 1, SampleDocument: draw one positive document per query, by the weights of its
    documents.

    Args:
        rng: what to draw from.
        pairs: the training pairs.
        queries: int ``[B]``.
        weigh: returns the weights of pairs ``[M]``; where all of a query's are 0, its draw is
            uniform.

    Returns:
        int64 ``[B]``, pair ids.
    """
    distinct, which = np.unique(queries, return_inverse=True)
    pair_ids, offsets = pairs.of_queries(distinct)
    weight = np.asarray(weigh(pair_ids), dtype=np.float64)
    weight[np.repeat(np.add.reduceat(weight, offsets[:-1]) == 0, np.diff(offsets))] = 1
    # Invert the cumulative sum, each query's part of it by a uniform number of its own.
    ends = np.concatenate([[0], np.cumsum(weight)])[offsets]
    target = ends[which] + rng.random(len(which)) * (ends[which + 1] - ends[which])
    place = np.searchsorted(np.cumsum(weight), target, side="right")
    place = np.clip(place, offsets[which], offsets[which + 1] - 1)  # rounding may pass the end
    return np.asarray(pair_ids[place])
