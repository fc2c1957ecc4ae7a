"""Hybrid search: fuse the scores of a model and of keyword search.

Each part contributes its 100 best documents. Their scores are scaled for each query:

    z(d) = (score(d) - score of the 100th) / (score of the first - score of the 100th)

A document outside a part's 100 has z = 0 there. The fused score is (1 - w)·z of the model + w·z of
keyword search. OpenSearch calls this min_max normalisation with an arithmetic mean. It differs for
queries that match fewer than 100 documents: there OpenSearch scales from the lowest match, and
OPERA from 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.data import TextTable
from opera.retrieval.measures import Ranking

POOL = 100
"""Documents of each part."""


class Fusion:
    """The pooled documents of two rankings, to be fused with any weight.

    Args:
        model: the model's ranking.
        keywords: the ranking of keyword search for the same queries.
        corpus: for the ids, which break ties.
    """

    def __init__(self, model: Ranking, keywords: Ranking, corpus: TextTable) -> None:
        parts = [scaled(model), scaled(keywords)]
        doc_rows = np.concatenate([part.doc_rows for part in parts], axis=1)
        scores = np.zeros((2, *doc_rows.shape))
        width = parts[0].doc_rows.shape[1]
        scores[0, :, :width], scores[1, :, width:] = (part.scores for part in parts)
        order = np.argsort(doc_rows, axis=1, kind="stable")
        self._doc_rows = np.take_along_axis(doc_rows, order, axis=1)
        self._scores = np.take_along_axis(scores, order[None], axis=2)
        # a document of both parts stands in two neighbouring columns
        twice = self._doc_rows[:, 1:] == self._doc_rows[:, :-1]
        self._scores[:, :, :-1] += np.where(twice, self._scores[:, :, 1:], 0)
        self._doc_rows[:, 1:][twice] = -1
        self._id_rank = corpus.id_rank

    def ranking(self, weight: float, depth: int = POOL) -> Ranking:
        """Fuse with the weight of keyword search; for equal scores, the greater id wins."""
        fused = (1 - weight) * self._scores[0] + weight * self._scores[1]
        scores = np.where(self._doc_rows < 0, -np.inf, fused).astype(np.float32)
        order = np.lexsort((self._id_rank[self._doc_rows], scores), axis=1)[:, : -depth - 1 : -1]
        rows, scores = (np.take_along_axis(a, order, axis=1) for a in (self._doc_rows, scores))
        return Ranking(rows, scores)


def scaled(ranking: Ranking) -> Ranking:
    """Keep :data:`POOL` documents, and scale their scores to z; 0 for a missing document.

    If a query has fewer documents, the score that becomes 0 is 0, or its lowest score if that is
    lower.
    """
    scores: NDArray[np.float64] = ranking.scores[:, :POOL].astype(np.float64)
    missing = ~np.isfinite(scores)
    scores[missing] = 0
    scores = np.where(missing, scores.min(axis=1, keepdims=True), scores)
    low, high = scores[:, -1:], scores[:, :1]
    spread = high - low
    z = np.divide(scores - low, spread, out=np.ones_like(scores), where=spread > 0)
    return Ranking(ranking.doc_rows[:, :POOL], np.where(missing, 0, z).astype(np.float32))
