"""Rank each pair's document in its batch, and select the documents to compare it with."""

from __future__ import annotations

import torch
from torch import Tensor

from opera.core.arrays import BoolArray

LEAST_RANKED = 1 / 8
"""Smallest fraction of a batch to rank a document among; a rank among one or two says little."""


def p_values(similarity: Tensor, excluded: Tensor | None, first: int = 0) -> Tensor:
    """Rank each pair's document among the other documents of the batch, scaled to (0, 1).

    If a of b other documents score higher, the result is (a + ½)/(b + 1). An equal score counts
    half. For a random document, the result is uniform.

    Args:
        similarity: float ``[m, M]``; row i's positive is column ``first`` + i.
        excluded: bool ``[m, M]``, the documents to exclude, such as known positives.
        first: column of the first row's positive.

    Returns:
        float32 ``[m]``; NaN if no document is left to compare with.
    """
    rows = torch.arange(len(similarity), device=similarity.device)
    others = torch.ones_like(similarity, dtype=torch.bool) if excluded is None else ~excluded
    others[rows, first + rows] = False
    gap = similarity - similarity[rows, first + rows][:, None]
    above = (0.5 * (torch.sign(gap) + 1) * others).sum(1)
    count = others.sum(1)
    return torch.where(count > 0, (above + 0.5) / (count + 1), torch.nan)


def not_comparable(known: BoolArray, trained: BoolArray) -> BoolArray:
    """Mark the positives that a pair's document must not be ranked among: bool ``[m, m]``.

    Two kinds are marked: the known positives of the query, and, if the pair's document was a
    positive in an earlier step, the documents that were not (and the reverse). Training as a
    positive changes a document's scores, so the two kinds cannot be compared. If fewer than
    :data:`LEAST_RANKED` of the batch remain, all are marked.

    Args:
        known: bool ``[m, m]``, the known positives.
        trained: bool ``[m]``, whether each pair's document was a positive in an earlier step.
    """
    marked: BoolArray = known | (trained[:, None] != trained)
    marked[(~marked).sum(1) < LEAST_RANKED * len(trained)] = True
    return marked
