"""The draws that methods share: shuffled passes, pools of queries, and one document per query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.rng import generator
from opera.core.streams import Stream
from opera.data.pairs import TrainingPairs
from opera.methods import _draw_kernels
from opera.methods._order_statistics.query_ranking import QueryRanking, TopK

BUILD_FROM = 0.125  # share of a pool to draw from which building the pool is faster than proposing queries


class ShuffledPasses:
    """An endless sequence of passes over ``size`` items, each pass in its own random order.

    Any stretch can be read without those before it, so resuming needs no state.
    """

    def __init__(self, seed: int, name: str, size: int) -> None:
        self.seed, self.name, self.size = seed, name, size
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the items at positions ``start`` to ``start + count`` of the sequence: int64 ``[count]``."""
        taken = []
        while count > 0:
            number, position = divmod(start, self.size)
            if number != self._pass:
                self._pass = number
                self._order = generator(self.seed, self.name, number).permutation(self.size)
            taken.append(self._order[position : position + count])
            start, count = start + len(taken[-1]), count - len(taken[-1])
        return np.concatenate(taken)


def draw_pool(stream: Stream, ranking: QueryRanking, top: TopK, pool_size: int, count: int) -> NDArray[np.int64]:
    """Algorithm 1, SampleQuery: draw from the pool of all top queries and a uniform random part of the others.

    Draws ``count`` queries, in random order, without replacement; after ``pool_size`` draws a new pool begins.

    The pool is never built. Queries are proposed uniformly. Whether one that is not a top query belongs to the pool is
    decided when it is first proposed, with probability (places left in the pool) / (other queries left): sequential
    sampling, which gives a uniform random part. A draw takes about n/n₀ proposals, at most α, whatever n is.

    Args:
        stream: what to draw from.
        ranking: the queries' scores.
        top: the top queries.
        pool_size: n₀, between ``top.count`` and n.
        count: how many queries to draw.

    Returns:
        int64 ``[count]``.
    """
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, pool_size):
        if min(count - start, pool_size) > BUILD_FROM * pool_size:
            drawn[start : start + pool_size] = _draw_whole_pool(stream, ranking, top, pool_size)[: count - start]
            continue
        _draw_kernels.draw_pool(
            stream.state,
            drawn[start : start + pool_size],
            ranking.sums,
            ranking.pairs.query_offsets,
            ranking.sign,
            top.threshold,
            top.count,
            top.above,
            top.tied,
            pool_size,
        )
    return drawn


def _draw_whole_pool(stream: Stream, ranking: QueryRanking, top: TopK, pool_size: int) -> NDArray[np.int64]:
    """Build a pool and return it in random order: faster where much of it is drawn."""
    rng = stream.generator()
    # The top queries: all above the threshold, and a random part of those tied at it.
    probability = top.probabilities(ranking.scores())
    tied = np.flatnonzero((probability > 0) & (probability < 1))
    is_top = probability == 1
    is_top[rng.choice(tied, top.count - int(is_top.sum()), replace=False)] = True
    # A random part of the others fills the pool.
    others = rng.choice(np.flatnonzero(~is_top), pool_size - top.count, replace=False)
    drawn = rng.permutation(np.concatenate([np.flatnonzero(is_top), others]))
    stream.go_on_after(rng)
    return drawn


def draw_by_pairs(stream: Stream, ranking: QueryRanking, top: TopK, pool_size: int, count: int) -> NDArray[np.int64]:
    """Draw ``count`` queries independently, each with probability proportional to m_q times :func:`pool_probabilities`.

    By rejection: propose the query of a uniform pair, and accept it with its probability to be in the pool.

    Returns:
        int64 ``[count]``.
    """
    rng = stream.generator()
    pairs, drawn, missing = ranking.pairs, [np.empty(0, dtype=np.int64)], count
    while missing:
        queries = pairs.pair_query[rng.integers(pairs.n_pairs, size=2 * missing)].astype(np.int64)
        is_top = top.probabilities(ranking.scores(queries))
        in_pool = pool_probabilities(is_top, top.count, pairs.n_queries, pool_size)
        drawn.append(queries[rng.random(len(queries)) < in_pool][:missing])
        missing -= len(drawn[-1])
    stream.go_on_after(rng)
    return np.concatenate(drawn)


def pool_probabilities(top: FloatArray, count: int, n: int, pool_size: int) -> NDArray[np.float64]:
    """Section 2.3: the probability of each query to be in the pool, 1 for a top query and (n₀ - K)/(n - K) for another.

    Args:
        top: float ``[m]``, each query's probability to be a top query.
        count: K, the number of top queries.
        n: the number of queries.
        pool_size: n₀.

    Returns:
        float64 ``[m]``.
    """
    other = (pool_size - count) / (n - count) if n > count else 0.0
    return np.asarray(top + (1 - top) * other, dtype=np.float64)


def draw_documents(rng: np.random.Generator, pairs: TrainingPairs, queries: IntArray) -> NDArray[np.int64]:
    """Draw one positive document per query ``[B]``, uniformly among the query's: pair ids, int64 ``[B]``."""
    starts = pairs.query_offsets[queries]
    return np.asarray(starts + rng.integers(pairs.query_offsets[queries + 1] - starts), dtype=np.int64)


def draw_weighted_documents(
    stream: Stream,
    pairs: TrainingPairs,
    queries: IntArray,
    similarity: NDArray[np.float32],
    high: float,
    low: float,
    threshold: float | None,
    cutoff: float,
) -> NDArray[np.int64]:
    """Algorithm 1, SampleDocument: draw one positive document per query, by the weights of its documents.

    Reads the similarities of the given queries' documents only.

    Args:
        stream: what to draw from.
        pairs: the training pairs.
        queries: int ``[B]``.
        similarity: float32 ``[N]``, **p**.
        high: weight of a document above the threshold.
        low: weight of any other; if all of a query's weights are 0, the draw is uniform.
        threshold: T over all pairs, or ``None`` for each query's own.
        cutoff: v, for each query's own T.

    Returns:
        int64 ``[B]``, pair ids.
    """
    drawn = np.empty(len(queries), dtype=np.int64)
    own = threshold is None
    _draw_kernels.draw_documents(
        stream.state,
        drawn,
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
