"""The inner loops of exact search, compiled by numba; :class:`.nearest.NearestDocuments` owns the arrays.

A candidate is one uint64, its *key*: the score in the upper half, as bits in ascending order, and below it the rank of
the document's id. So the greater key is the better document, ties included.
"""

# Numba infers the types from the arguments; annotations would only repeat them.

import numpy as np
from numba import njit

WIDTH = 64  # scores that are compared with the lowest one at a time
SIGN = np.uint32(0x80000000)
HALF = np.uint64(32)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def exact_score(query, document):
    """Dot product of float32 vectors, summed in float64: products are exact, and the order is the machine's alone."""
    total = 0.0
    for i in range(len(query)):
        total += np.float64(query[i]) * np.float64(document[i])
    return np.float32(total)


@njit(cache=True, nogil=True)
def key_of(score, id_rank):
    """The key of a document; -0 is 0."""
    bits = np.float32(score + np.float32(0)).view(np.uint32)
    ordered = ~bits if bits & SIGN else bits | SIGN
    return np.uint64(ordered) << HALF | np.uint64(id_rank)


@njit(cache=True, nogil=True)
def score_of(key):
    """The score in a key."""
    ordered = np.uint32(key >> HALF)
    bits = ordered ^ SIGN if ordered & SIGN else ~ordered
    return np.uint32(bits).view(np.float32)


@njit(cache=True, nogil=True)
def scores_and_ranks(keys, scores, ranks):
    """Take keys ``[n, depth]`` apart."""
    for row in range(keys.shape[0]):
        for at in range(keys.shape[1]):
            scores[row, at] = score_of(keys[row, at])
            ranks[row, at] = np.int32(keys[row, at] & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def keep_best(keys, count, depth):
    """Bring the ``depth`` greatest of the first ``count`` keys to the front, the least of them last of these.

    Quickselect. Scores do as well as keys.
    """
    low, high, last = 0, count - 1, depth - 1
    while low < high:
        first, middle, end = keys[low], keys[(low + high) // 2], keys[high]
        pivot = max(min(first, middle), min(max(first, middle), end))
        left, right = low, high
        while left <= right:
            while keys[left] > pivot:
                left += 1
            while keys[right] < pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                left += 1
                right -= 1
        if last <= right:
            high = right
        elif last >= left:
            low = left
        else:
            break


@njit(cache=True, nogil=True)
def offer(key, row, at, keys, counts, lowest, depth):
    """Keep a candidate; where the row of keys is full, keep the best ``depth`` and raise the lowest score."""
    if key < keys[at, depth - 1] and lowest[at] > -np.inf:
        return
    row[counts[at]] = key
    counts[at] += 1
    if counts[at] == len(row):
        shorten(row, at, counts, lowest, depth)


@njit(cache=True, nogil=True)
def shorten(row, at, counts, lowest, depth):
    """Keep the best ``depth`` candidates of a query, and raise its lowest score."""
    keep_best(row, counts[at], depth)
    counts[at] = depth
    lowest[at] = score_of(row[depth - 1])


@njit(cache=True, nogil=True)
def threshold(lowest, slack, relative):
    """The lowest approximate score of a document that may reach an exact one; :mod:`.products` says what errors are."""
    if lowest == -np.inf:
        return lowest
    bound = lowest - slack
    return np.float32(bound - abs(bound) * relative)


@njit(cache=True, nogil=True)
def count_reaching(row, shift, bound):
    """How many scores are at least ``bound``; numba makes vector instructions of this loop."""
    count = np.uint32(0)
    for at in range(len(row)):
        count += np.uint32(np.uint32(np.uint32(row[at]) << shift).view(np.float32) >= bound)
    return count


@njit(cache=True, nogil=True)
def first_threshold(row, shift, slack, relative, depth, scores):
    """The same from the ``depth``-th best approximate score of a block, which as many exact ones nearly reach."""
    for at in range(len(row)):
        scores[at] = np.uint32(np.uint32(row[at]) << shift).view(np.float32)
    keep_best(scores, len(row), depth)
    return threshold(threshold(scores[depth - 1], slack, np.float32(2) * relative), slack, relative)


@njit(cache=True, nogil=True)
def scan(products, shift, slack, relative, queries, tile, id_rank, keys, counts, lowest, depth):
    """Look through a block of approximate scores, and score the few documents again that may be among the best.

    ``products`` are the bits of float32 numbers (uint32, shift 0) or of bf16 ones (uint16, shift 16).
    """
    n_queries, n_docs = products.shape
    scores = np.empty(n_docs, dtype=np.float32)
    for at in range(n_queries):
        row, kept = products[at], keys[at]
        first = lowest[at] == -np.inf and n_docs > depth
        bound = threshold(lowest[at], slack[at], relative)
        if first:
            bound = first_threshold(row, shift, slack[at], relative, depth, scores)
        for start in range(0, n_docs, WIDTH):
            stop = min(n_docs, start + WIDTH)
            if count_reaching(row[start:stop], shift, bound) == 0:
                continue
            for doc in range(start, stop):
                if np.uint32(np.uint32(row[doc]) << shift).view(np.float32) >= bound:
                    key = key_of(exact_score(queries[at], tile[doc]), id_rank[doc])
                    offer(key, kept, at, keys, counts, lowest, depth)
            bound = max(bound, threshold(lowest[at], slack[at], relative))
        if first and counts[at] >= depth:
            shorten(kept, at, counts, lowest, depth)


@njit(cache=True, nogil=True)
def offer_pairs(query_at, doc_at, queries, tile, id_rank, keys, counts, lowest, depth):
    """Score pairs of a query and a document, which another device has found, and offer each."""
    for pair in range(len(query_at)):
        at, doc = query_at[pair], doc_at[pair]
        offer(key_of(exact_score(queries[at], tile[doc]), id_rank[doc]), keys[at], at, keys, counts, lowest, depth)


@njit(cache=True, nogil=True)
def candidate_keys(query, vectors, id_rank):
    """Score a query's candidates ``[k, dimension]``: uint64 ``[k]``."""
    keys = np.empty(len(vectors), dtype=np.uint64)
    for at in range(len(vectors)):
        keys[at] = key_of(exact_score(query, vectors[at]), id_rank[at])
    return keys


@njit(cache=True, nogil=True)
def round_to_bf16(rows, rounded, lengths, errors):
    """Round float32 rows to bf16, to the nearest and ties to even: its bits, each row's length, and that of its error.

    Lengths are summed in float64, so that they hold as bounds.
    """
    for at in range(rows.shape[0]):
        length = error = 0.0
        for i in range(rows.shape[1]):
            value = rows[at, i]
            bits = np.float32(value).view(np.uint32)
            half = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            rounded[at, i] = half
            off = np.float64(value) - np.float64(np.uint32(half << np.uint32(16)).view(np.float32))
            length += np.float64(value) * np.float64(value)
            error += off * off
        lengths[at], errors[at] = np.sqrt(length), np.sqrt(error)
