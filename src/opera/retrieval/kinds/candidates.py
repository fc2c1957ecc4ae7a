"""MaxSim in a large corpus: only for candidates, which the mean vectors of documents find.

MaxSim compares each token of a query with each token of a document. The product of two mean vectors
is the mean over all these pairs of tokens, and needs no tokens.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray, slices
from opera.core.processes import everywhere
from opera.core.terminal import log
from opera.data import TextTable
from opera.retrieval.kinds.rows import NearestRows, TokenRows
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import NO_DOCUMENT, QUERIES_PER_MERGE, BestDocuments

EXACT_DOCUMENTS = 20_000
"""A search in a corpus of this size or smaller compares all documents."""
CANDIDATES = 1_000
"""Documents per query that a search in a larger corpus compares, or its depth if that is more."""
PRODUCTS = 2**21
"""Most products of means, with the candidates so far, to hold at once."""
TOP, MEASURED_QUERIES = 10, 20
"""Best documents, and queries, of which the fraction among the candidates is measured."""


def nearest_tokens(
    queries: TokenRows, documents: TextTable, depth: int, doc_rows: Any = None
) -> BestDocuments:
    """Return a search by MaxSim: of all documents, or of candidates if there are many documents.

    The arguments are those of :class:`BestDocuments`, except for the vectors of the queries.
    Passages are always compared with each query.
    """
    if doc_rows is not None or len(documents) <= EXACT_DOCUMENTS:
        return NearestRows(queries, documents, depth, doc_rows)
    _log_candidates(len(documents))
    return NearestCandidates(queries, documents, depth)


@cache
def _log_candidates(n_documents: int) -> None:
    log.info(
        "note: %s documents: MaxSim compares each query with %s of them, found by mean vectors",
        *(f"{n_documents:,}", f"{CANDIDATES:,}"),
    )


class NearestCandidates(BestDocuments):
    """The best documents of each query by MaxSim, among the documents with the best mean vectors.

    A document gets its MaxSim when its tile comes, if it is among the candidates so far. So a
    search reads the corpus once.

    Attributes:
        n_candidates: the number of candidates of each query.
    """

    def __init__(self, queries: TokenRows, documents: TextTable, depth: int) -> None:
        super().__init__(len(queries), documents, depth)
        self._queries, self._means = queries, queries.means.astype(np.float64)
        self.n_candidates = min(len(documents), max(CANDIDATES, depth))
        shape = len(queries), self.n_candidates
        self._candidates = np.full(
            shape, NO_DOCUMENT
        )  # the product of the means, and the id's rank
        self._scores = np.full(shape, -np.inf, dtype=np.float32)

    def add(self, first: int, tile: TokenRows) -> None:
        """Search a tile of the corpus from row ``first`` on."""
        if not len(tile) or not self._candidates.size:
            return
        ranks, means = self._ranks(first, len(tile)), tile.means.T.astype(np.float64)
        for queries in slices(self.n_queries, max(1, PRODUCTS // (self.n_candidates + len(tile)))):
            products = (self._means[queries] @ means).astype(np.float32)
            scores = np.zeros(products.shape, dtype=np.float32)
            kept = self._keep(
                queries,
                np.concatenate([self._candidates[queries], products + 1j * ranks], axis=1),
                np.concatenate([self._scores[queries], scores], axis=1),
            )
            for query, rows in enumerate(kept - self.n_candidates, start=queries.start):
                if (is_new := rows >= 0).any():
                    vectors = self._queries[query : query + 1]
                    self._scores[query, is_new] = tile[rows[is_new]].products(vectors)[0]

    def _keep(
        self,
        queries: slice,
        candidates: NDArray[np.complex128],
        scores: NDArray[np.float32],
    ) -> IntArray:
        """Keep the best candidates ``[queries, more]``; return their columns."""
        n_more = candidates.shape[1] - self.n_candidates
        columns = np.argpartition(candidates, n_more, axis=1)[:, n_more:]
        self._candidates[queries] = np.take_along_axis(candidates, columns, axis=1)
        self._scores[queries] = np.take_along_axis(scores, columns, axis=1)
        return columns

    def merge_processes(self) -> None:
        """Merge the candidates of all processes' tiles; all processes must call this."""
        for queries in slices(self.n_queries, QUERIES_PER_MERGE):
            parts = self._candidates[queries], self._scores[queries]
            self._keep(
                queries,
                *(np.concatenate(everywhere(partial(np.copy, p)), axis=1) for p in parts),
            )

    def ranking(self) -> Ranking:
        """Return the best candidates by MaxSim, best first."""
        by_score = self._scores + 1j * self._candidates.imag
        n_more = self.n_candidates - self._depth
        self._best = np.partition(by_score, n_more, axis=1)[:, n_more:]
        return super().ranking()
