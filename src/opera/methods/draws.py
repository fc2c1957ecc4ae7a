"""The draws that methods share: shuffled passes, pools of queries, and one document per query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opera.methods.pairs import BoolArray, FloatArray, IntArray, Pairs
from opera.rng import generator


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


def draw_pool(rng: np.random.Generator, is_top: BoolArray, pool_size: int, count: int) -> NDArray[np.int64]:
    """Algorithm 1, SampleQuery: ``count`` queries, without replacement, in random order, from a pool that holds
    every top query and a uniform random part of the others.

    The pool itself is never built: of ``count`` draws from it, a hypergeometric number falls on tops, and within
    tops and others each draw is uniform (paper.md, "What one sampler update costs"). Past ``pool_size`` draws a new
    pool begins.

    Args:
        rng: the generator to draw from.
        is_top: bool ``[n]``, with at most ``pool_size`` true.
        pool_size: n₀, between 1 and n.
        count: how many queries to draw.

    Returns:
        int64 ``[count]``.
    """
    tops, others = np.flatnonzero(is_top), np.flatnonzero(~is_top)
    drawn = []
    while count > 0:
        size = min(count, pool_size)
        from_tops = int(rng.hypergeometric(len(tops), pool_size - len(tops), size))
        part = np.concatenate(
            [
                rng.choice(tops, from_tops, replace=False, shuffle=False),
                rng.choice(others, size - from_tops, replace=False, shuffle=False),
            ]
        )
        drawn.append(rng.permutation(part))
        count -= size
    return np.concatenate(drawn)


def draw_by_pairs(
    rng: np.random.Generator, pairs: Pairs, is_top: BoolArray, pool_size: int, count: int
) -> NDArray[np.int64]:
    """``count`` independent queries, each with a chance in proportion to its pairs times its chance of being in the
    pool of :func:`draw_pool`: 1 for a top query, (n₀ - K)/(n - K) for another of K tops.

    By rejection: the query of a uniform pair is taken if it is a top query, else with its pool's chance.

    Returns:
        int64 ``[count]``.
    """
    n, top = len(is_top), int(is_top.sum())
    chance = (pool_size - top) / (n - top) if n > top else 1.0
    drawn, missing = [], count
    while missing:
        queries = pairs.pair_query[rng.integers(pairs.n_pairs, size=2 * missing)]
        taken = queries[is_top[queries] | (rng.random(len(queries)) < chance)][:missing]
        drawn.append(taken)
        missing -= len(taken)
    return np.concatenate(drawn).astype(np.int64)


def draw_documents(
    rng: np.random.Generator,
    pairs: Pairs,
    queries: IntArray,
    weight: Callable[[NDArray[np.int64]], FloatArray] | None = None,
) -> NDArray[np.int64]:
    """Draw one positive document for each query.

    Args:
        rng: the generator to draw from.
        pairs: the training pairs.
        queries: int ``[B]``.
        weight: gives the relative chances of pairs ``[M]`` among their query's, float ``[M]``; ``None`` is uniform,
            and so is a query whose weights are all zero.

    Returns:
        int64 ``[B]``, the pair drawn for each query.
    """
    starts, counts = pairs.query_offsets[queries], pairs.positives_per_query[queries]
    if weight is None:
        return np.asarray(starts + rng.integers(counts), dtype=np.int64)
    # An exponential race: of independent Exp(1)/w, the smallest is pair i with probability w_i / Σw.
    segment_starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    pair_ids = np.repeat(starts - segment_starts, counts) + np.arange(counts.sum())
    chances = np.asarray(weight(pair_ids), dtype=np.float64)
    nothing = np.add.reduceat(chances, segment_starts) == 0
    chances[np.repeat(nothing, counts)] = 1.0
    with np.errstate(divide="ignore"):
        arrival = rng.standard_exponential(len(pair_ids)) / chances
    first = np.minimum.reduceat(arrival, segment_starts)
    winners = np.flatnonzero(arrival == np.repeat(first, counts))
    return np.asarray(pair_ids[winners[np.searchsorted(winners, segment_starts)]], dtype=np.int64)
