"""The inner loops of DP's draws, compiled by numba."""

# Numba infers the types from the arguments; annotations would only repeat them.

import numpy as np
from numba import njit

from opera.core.streams import below, uniform

EMPTY = -1  # a free slot of the hash table
MULTIPLIER = 2654435761  # Knuth's multiplicative hash: 2³² over the golden ratio


@njit(cache=True)
def seen_before(table, query):
    """Whether a query is in a hash table whose length is a power of two; insert it if not."""
    mask = len(table) - 1
    slot = ((query * MULTIPLIER) ^ (query >> 15)) & mask
    while table[slot] != EMPTY:
        if table[slot] == query:
            return True
        slot = (slot + 1) & mask  # linear probing
    table[slot] = query
    return False


@njit(cache=True)
def draw_pool(stream, drawn, sums, offsets, sign, threshold, top, above, tied, pool_size):
    """Fill ``drawn`` with queries of one pool, as :func:`opera.methods.draws.draw_pool` describes.

    ``stream`` is the state of an :class:`opera.core.streams.Stream`; ``top``, ``above``, ``tied`` and ``threshold``
    are those of the :class:`.query_ranking.TopK`.
    """
    n = len(sums)
    # The queries proposed so far, in a hash table at most half full.
    size = 64
    while size < 4 * len(drawn):
        size *= 2
    table, seen = np.full(size, EMPTY, dtype=np.int64), 0
    # What is left to give away: places among the tops for tied queries, places in the pool for the others.
    tied_places = top - above
    places, others = pool_size - top, n - top
    at = 0
    while at < len(drawn):
        # Propose a query uniformly, and skip it if it was proposed before: that case is settled.
        query = below(n, stream)
        if seen_before(table, query):
            continue
        seen += 1
        if 2 * seen > len(table):
            wider = np.full(2 * len(table), EMPTY, dtype=np.int64)
            for known in table:
                if known != EMPTY:
                    seen_before(wider, known)
            table = wider
        # A query above the threshold is a top query, and all of these are in the pool.
        score = np.float32(sign * sums[query] / (offsets[query + 1] - offsets[query]))
        taken = score > threshold
        # One at the threshold is a top query with the probability that is left: tied places over tied queries.
        if score == threshold:
            taken = uniform(stream) * tied < tied_places
            tied -= 1
            if taken:
                tied_places -= 1
        # Any other is in the pool with the probability that is left: places over others.
        if not taken:
            taken = uniform(stream) * others < places
            others -= 1
            if taken:
                places -= 1
        if taken:
            drawn[at] = query
            at += 1


@njit(cache=True)
def draw_documents(stream, drawn, queries, offsets, similarity, high, low, own, threshold, cutoff):
    """Fill ``drawn`` with a pair of each query, as :func:`opera.methods.draws.draw_weighted_documents` describes.

    ``stream`` is the state of an :class:`opera.core.streams.Stream`, of which each query takes a uniform number. With
    ``own``, each query's threshold is its own quantile.
    """
    for at in range(len(queries)):
        share = uniform(stream)
        start, stop = offsets[queries[at]], offsets[queries[at] + 1]
        # T of this query alone: the (1 - v) quantile of its similarities, linearly interpolated.
        if own:
            ascending = np.sort(similarity[start:stop])
            position = (1 - cutoff) * (stop - start - 1)
            below = int(np.floor(position))
            above = min(below + 1, stop - start - 1)
            first, second = np.float64(ascending[below]), np.float64(ascending[above])
            threshold = first + (position % 1) * (second - first)
        # The sum of the weights; if it is 0, all documents are equally likely.
        total = 0.0
        for pair in range(start, stop):
            total += high if similarity[pair] > threshold else low
        if total == 0.0:
            drawn[at] = start + min(int(share * (stop - start)), stop - start - 1)
            continue
        # Invert the cumulative sum: subtract weights until the random share of the total is used up.
        left, chosen = share * total, start
        for pair in range(start, stop):
            weight = high if similarity[pair] > threshold else low
            if weight > 0.0:
                chosen = pair  # the last one with a weight, should rounding leave something over
                left -= weight
                if left < 0.0:
                    break
        drawn[at] = chosen
