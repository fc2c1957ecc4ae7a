"""The draws that methods share: shuffled passes, pools of queries, and one document per query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import _draw_kernels
from opera.methods._order_statistics.query_ranking import Front, QueryRanking

BUILT_ABOVE = 0.125  # share of a pool from which it is built to be drawn from


class ShuffledPasses:
    """An endless row of passes over ``size`` items, each pass in its own random order.

    Any stretch can be read without the ones before it, so nothing has to be saved to resume.
    """

    def __init__(self, seed: int, name: str, size: int) -> None:
        self.seed, self.name, self.size = seed, name, size
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the items at positions ``start`` to ``start + count`` of the row: int64 ``[count]``."""
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
    rng: np.random.Generator, ranking: QueryRanking, front: Front, pool_size: int, count: int
) -> NDArray[np.int64]:
    """Algorithm 1, SampleQuery: ``count`` queries, without replacement, in random order, from a pool that holds
    every top query and a uniform random part of the others.

    The pool is never built: queries are proposed uniformly, and whether one that is no top query belongs to the pool
    is decided when it is first proposed, with the chance that is left: places left over others left. That is a
    uniform random part, told one by one. A draw takes n/n₀ proposals, at most α, whatever n is. Past ``pool_size``
    draws a new pool begins.

    Args:
        rng: the generator to draw from.
        ranking: the queries' scores.
        front: the top queries.
        pool_size: n₀, between ``front.count`` and n.
        count: how many queries to draw.

    Returns:
        int64 ``[count]``.
    """
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, pool_size):
        if min(count - start, pool_size) > BUILT_ABOVE * pool_size:
            drawn[start : start + pool_size] = _draw_built_pool(rng, ranking, front, pool_size)[: count - start]
            continue
        _draw_kernels.draw_pool(
            rng,
            drawn[start : start + pool_size],
            ranking.sums,
            ranking.pairs.query_offsets,
            ranking.sign,
            front.threshold,
            front.count,
            front.above,
            front.tied,
            pool_size,
        )
    return drawn


def _draw_built_pool(
    rng: np.random.Generator, ranking: QueryRanking, front: Front, pool_size: int
) -> NDArray[np.int64]:
    """A whole pool in random order: where most of it is drawn, building it is quicker than proposing."""
    chances = front.chances(ranking.scores())
    tied = np.flatnonzero((chances > 0) & (chances < 1))
    is_top = chances == 1
    is_top[rng.choice(tied, front.count - int(is_top.sum()), replace=False)] = True
    others = rng.choice(np.flatnonzero(~is_top), pool_size - front.count, replace=False)
    return rng.permutation(np.concatenate([np.flatnonzero(is_top), others]))


def draw_by_pairs(
    rng: np.random.Generator, ranking: QueryRanking, front: Front, pool_size: int, count: int
) -> NDArray[np.int64]:
    """``count`` independent queries, each with a chance in proportion to its pairs times its chance of being in the
    pool of :func:`draw_pool`: 1 for a top query, (n₀ - K)/(n - K) for another of K tops.

    By rejection: the query of a uniform pair is taken with the chance of its being in the pool.

    Returns:
        int64 ``[count]``.
    """
    pairs, drawn, missing = ranking.pairs, [np.empty(0, dtype=np.int64)], count
    while missing:
        queries = pairs.pair_query[rng.integers(pairs.n_pairs, size=2 * missing)].astype(np.int64)
        chances = pool_chances(front.chances(ranking.scores(queries)), front.count, pairs.n_queries, pool_size)
        drawn.append(queries[rng.random(len(queries)) < chances][:missing])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def pool_chances(top: FloatArray, count: int, n: int, pool_size: int) -> NDArray[np.float64]:
    """The chance of queries to be in the pool, float64, from their chances ``top`` to be among its K = ``count`` tops:
    1 for a top query, (n₀ - K)/(n - K) for another."""
    other = (pool_size - count) / (n - count) if n > count else 0.0
    return np.asarray(top + (1 - top) * other, dtype=np.float64)


def draw_documents(rng: np.random.Generator, pairs: TrainingPairs, queries: IntArray) -> NDArray[np.int64]:
    """Draw one positive document for each query ``[B]``, each of its own alike: the pairs drawn, int64 ``[B]``."""
    starts = pairs.query_offsets[queries]
    return np.asarray(starts + rng.integers(pairs.query_offsets[queries + 1] - starts), dtype=np.int64)


def draw_weighted_documents(
    rng: np.random.Generator,
    pairs: TrainingPairs,
    queries: IntArray,
    similarity: NDArray[np.float32],
    high: float,
    low: float,
    threshold: float | None,
    cutoff: float,
) -> NDArray[np.int64]:
    """Algorithm 1, SampleDocument: draw one positive document for each query, by the weights of its documents.

    Looks at the documents of the drawn queries alone.

    Args:
        rng: the generator to draw from.
        pairs: the training pairs.
        queries: int ``[B]``.
        similarity: float32 ``[N]``, **p**.
        high: weight of a document above the threshold.
        low: weight of another; a query whose weights are all 0 draws uniformly.
        threshold: T over all pairs, or ``None`` for each query's own.
        cutoff: v, for each query's own T.

    Returns:
        int64 ``[B]``, the pair drawn for each query.
    """
    drawn = np.empty(len(queries), dtype=np.int64)
    own = threshold is None
    _draw_kernels.draw_documents(
        drawn,
        rng.random(len(queries)),
        np.asarray(queries, dtype=np.int64),
        pairs.query_offsets,
        similarity,
        float(high),
        float(low),
        own,
        0.0 if threshold is None else float(threshold),
        float(cutoff),
    )
    return drawn
