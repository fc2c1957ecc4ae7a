"""The inner loops of DP's draws, compiled by numba."""

# Numba reads the types off the arguments; annotations would only be repeated here.

import numpy as np
from numba import njit


@njit(cache=True)
def seen_before(table, query):
    """Look a number up in a hash table whose length is a power of two, putting it in where it is not there."""
    mask = len(table) - 1
    at = ((query * 2654435761) ^ (query >> 15)) & mask
    while table[at] >= 0:
        if table[at] == query:
            return True
        at = (at + 1) & mask
    table[at] = query
    return False


@njit(cache=True)
def draw_pool(rng, drawn, sums, offsets, sign, threshold, top, above, tied, pool_size):
    """Fill ``drawn`` with queries of one pool; :func:`opera.methods.draws.draw_pool` says how."""
    n = len(sums)
    size = 64
    while size < 4 * len(drawn):
        size *= 2
    table, seen = np.full(size, -1, dtype=np.int64), 0
    tied_tops = top - above
    places, others = pool_size - top, n - top
    at = 0
    while at < len(drawn):
        query = rng.integers(0, n)
        if seen_before(table, query):
            continue
        seen += 1
        if 2 * seen > len(table):
            wider = np.full(2 * len(table), -1, dtype=np.int64)
            for known in table:
                if known >= 0:
                    seen_before(wider, known)
            table = wider
        score = np.float32(sign * sums[query] / (offsets[query + 1] - offsets[query]))
        taken = score > threshold
        if score == threshold:
            taken = rng.random() * tied < tied_tops
            tied -= 1
            if taken:
                tied_tops -= 1
        if not taken:
            taken = rng.random() * others < places
            others -= 1
            if taken:
                places -= 1
        if taken:
            drawn[at] = query
            at += 1


@njit(cache=True)
def draw_documents(drawn, uniform, queries, offsets, similarity, high, low, own, threshold, cutoff):
    """Fill ``drawn`` with a document for each query; see :func:`opera.methods.draws.draw_weighted_documents`."""
    for at in range(len(queries)):
        start, stop = offsets[queries[at]], offsets[queries[at] + 1]
        if own:
            ascending = np.sort(similarity[start:stop])
            position = (1 - cutoff) * (stop - start - 1)
            below = int(np.floor(position))
            above = min(below + 1, stop - start - 1)
            first, second = np.float64(ascending[below]), np.float64(ascending[above])
            threshold = first + (position % 1) * (second - first)
        total = 0.0
        for pair in range(start, stop):
            total += high if similarity[pair] > threshold else low
        if total == 0.0:
            drawn[at] = start + min(int(uniform[at] * (stop - start)), stop - start - 1)
            continue
        left, chosen = uniform[at] * total, start
        for pair in range(start, stop):
            weight = high if similarity[pair] > threshold else low
            if weight > 0.0:
                chosen = pair  # the last with a weight, should rounding leave something over
                left -= weight
                if left < 0.0:
                    break
        drawn[at] = chosen
