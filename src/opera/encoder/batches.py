"""Cut texts into batches in length order, within a budget of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray


def token_batches(lengths: IntArray, most_tokens: int, padded: bool) -> list[NDArray[np.int64]]:
    """Cut texts into batches: the longest first, so that memory that does not suffice shows at once.

    Args:
        lengths: int ``[n]``, tokens of each text.
        most_tokens: per batch. A text that has more is a batch of its own.
        padded: whether each text of a batch costs as much as its longest.

    Returns:
        Numbers of texts, int64, one array per batch; texts of one length stand in their order.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    ordered = np.maximum(np.asarray(lengths, dtype=np.int64)[order], 1)
    total = np.concatenate([[0], np.cumsum(ordered)])
    with_tokens = int(np.count_nonzero(lengths))
    batches, start = [], 0
    while start < len(order):
        if padded:
            room = most_tokens // int(ordered[start])
        else:
            room = int(np.searchsorted(total, total[start] + most_tokens, side="right")) - 1 - start
        stop = start + max(1, room)
        if start < with_tokens:
            stop = min(stop, with_tokens)  # a pack has no place for a text without tokens
        batches.append(order[start:stop])
        start = stop
    return batches
