"""Exact search: the best documents of each query, block by block.

A float32 product selects the documents that may be among the best. Only these candidates are scored
in float64. So blocks, threads and processes affect the speed of a search but not its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from opera.core.arrays import IntArray, normalise, slices
from opera.core.compiled import cached_njit
from opera.core.errors import ModelError
from opera.core.processes import everywhere, process_index
from opera.core.progress import with_progress
from opera.data import TextTable
from opera.retrieval.measures import Ranking
from opera.retrieval.vectors import Vectors

TILE_BYTES = 2**26
"""Size of the embeddings that are read at once."""
QUERIES, DOCUMENTS, GPU_DOCUMENTS = 1024, 2048, 65_536
"""Queries and documents per product. On a CPU the scores fit into its caches."""
SUM_ERROR, DEVICE_ERROR = 2.0**-23, 2.0**-9
"""Largest error of a float32 score, relative to the lengths of both vectors: per dimension, and for
TF32 on a GPU. Both are twice the theoretical bound."""

DISTANCES = {"manhattan": 1, "euclidean": 2}
"""Similarities that are negative distances, with their norms."""

NO_DOCUMENT = complex(-np.inf, -1)


class NearestDocuments:
    """The best documents of each query so far; for equal scores, the greater document id wins.

    A candidate is a complex number: its real part is the score, its imaginary part the rank of the
    document's id. NumPy sorts complex numbers by the real part first.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        documents: the corpus, for its ids.
        depth: number of documents to keep per query.
        device: the device that multiplies.
        similarity: a ``similarity_fn_name`` of sentence-transformers; for the cosine, embeddings
            must have length 1.
    """

    def __init__(
        self,
        query_embeddings: NDArray[np.float32],
        documents: TextTable,
        depth: int,
        device: str = "cpu",
        similarity: str = "cosine",
    ) -> None:
        self._norm = DISTANCES.get(similarity, 0)
        self._queries = np.require(query_embeddings, np.float32, ["C", "W"])
        self._on_device = torch.from_numpy(self._queries).to(device)
        self._id_rank, self._device = documents.id_rank, device
        self._depth = min(depth, len(documents))
        self._best = np.full((len(self._queries), self._depth), NO_DOCUMENT)
        self._query_lengths = _lengths(self._queries)

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Search a tile of the corpus, float32 ``[documents, dimension]``, from row ``first`` on.

        Raises:
            ModelError: if an embedding holds a value that is not finite.
        """
        if not tile.size or not self._best.size:
            return
        tile = np.require(tile, np.float32, ["C", "W"])
        ranks, errors = self._id_rank[first : first + len(tile)], self._errors(tile)
        documents = torch.from_numpy(tile).to(self._on_device.device)
        for queries in slices(len(self._queries), QUERIES):
            for block in slices(len(tile), DOCUMENTS if self._device == "cpu" else GPU_DOCUMENTS):
                scores = self._scores(self._on_device[queries], documents[block])
                candidates = self._candidates(queries, scores, errors[queries])
                self._keep(queries, *candidates, tile[block], ranks[block])

    def _errors(self, tile: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return each query's largest possible error of a float32 score with this tile."""
        dimension = tile.shape[1]
        relative = (dimension + 8) * SUM_ERROR + (self._device != "cpu") * DEVICE_ERROR
        longest = _lengths(tile).max()
        with np.errstate(over="ignore", invalid="ignore"):
            size = self._query_lengths * longest
            if self._norm:
                size = (self._query_lengths + longest) * np.float32(dimension**0.5)
            errors = np.asarray(relative * size + 1e-30, dtype=np.float32)
        if not np.isfinite(errors).all():
            raise ModelError(
                "search: embeddings hold NaN, infinite or too large values; use another model"
            )
        return errors

    def _scores(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        if not self._norm:
            return queries @ documents.T
        return -torch.cdist(
            queries, documents, self._norm, compute_mode="donot_use_mm_for_euclid_dist"
        )

    def _candidates(
        self, queries: slice, scores: torch.Tensor, errors: NDArray[np.float32]
    ) -> tuple[IntArray, IntArray]:
        """Return the indices of the scores ``[queries, documents]`` that may be among the best."""
        least = self._best.real[queries, 0].astype(np.float32)  # -inf below k documents so far
        depth, width = self._depth, scores.shape[1]
        on_cpu, bound = self._device == "cpu", least - errors
        if depth < width and np.isneginf(least).any():
            if on_cpu:
                worst = np.partition(scores.numpy(), width - depth, axis=1)[:, width - depth]
            else:
                worst = torch.topk(scores, depth, dim=1).values[:, -1].cpu().numpy()
            bound = np.maximum(bound, worst - 2 * errors)
        if on_cpu:
            return np.divmod(np.flatnonzero(scores.numpy() >= bound[:, None]), width)
        reached = scores >= torch.from_numpy(bound).to(scores.device)[:, None]
        query, document = reached.nonzero().T.cpu().numpy()
        return query, document

    def _keep(
        self,
        queries: slice,
        query: IntArray,
        document: IntArray,
        vectors: NDArray[np.float32],
        ranks: NDArray[np.int32],
    ) -> None:
        """Score pairs in float64, and keep the best documents of each query.

        Args:
            queries: the rows of a block of queries.
            query: each pair's query, as its index in the block, ascending.
            document: each pair's index into ``vectors``.
            vectors: embeddings of documents.
            ranks: the ranks of the documents' ids.
        """
        if not len(query):
            return
        counts = np.bincount(query, minlength=len(self._queries[queries]))
        column = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
        candidates = np.full((len(counts), counts.max()), NO_DOCUMENT)
        scores = np.empty(len(query), dtype=np.float32)
        _score(self._queries[queries], vectors, query, document, self._norm, scores)
        candidates.real[query, column], candidates.imag[query, column] = scores, ranks[document]
        self._best[queries] = _best(self._depth, self._best[queries], candidates)

    def merge_processes(self) -> None:
        """Merge the best documents of all processes' tiles; all processes must call this."""
        for queries in slices(len(self._queries), QUERIES):
            part = self._best[queries]
            part[:] = _best(self._depth, *everywhere(partial(np.copy, part)))

    def ranking(self) -> Ranking:
        """Return ``n`` rows, best first; -1 and -inf if there are too few documents."""
        best = np.sort(self._best, axis=1)[:, ::-1]
        row_of = np.full(len(self._id_rank) + 1, -1, dtype=np.int32)  # NO_DOCUMENT is the last
        row_of[self._id_rank] = np.arange(len(self._id_rank), dtype=np.int32)
        return Ranking(row_of[best.imag.astype(np.int64)], best.real.astype(np.float32))


def _best(depth: int, *candidates: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the ``depth`` best candidates of each row; the lowest comes first."""
    together = np.concatenate(candidates, axis=1)
    least = together.shape[1] - depth
    return np.asarray(np.partition(together, least, axis=1)[:, least:])


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


@cached_njit(nogil=True, fastmath={"reassoc"})
def _score(queries, documents, query, document, norm, scores):  # type: ignore[no-untyped-def]
    """Score pairs in float64, and round to float32."""
    for pair in range(len(query)):
        q, d, total = queries[query[pair]], documents[document[pair]], 0.0
        if norm == 0:
            for i in range(len(q)):
                total += np.float64(q[i]) * np.float64(d[i])
        elif norm == 1:
            for i in range(len(q)):
                total -= abs(np.float64(q[i]) - np.float64(d[i]))
        else:
            for i in range(len(q)):
                total += (np.float64(q[i]) - np.float64(d[i])) ** 2
            total = -np.sqrt(total)
        scores[pair] = np.float32(total) + np.float32(0)  # turns -0 into 0


def exact_search(
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    documents: TextTable,
    depth: int,
    device: str = "cpu",
    similarity: str = "cosine",
) -> Ranking:
    """Rank all documents for each query in this process alone, and return the best.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        document_embeddings: float32 ``[documents, dimension]``, read in tiles.
        documents: the corpus, for its ids.
        depth: number of documents to keep per query.
        device: the device that multiplies.
        similarity: as for :class:`NearestDocuments`.
    """
    nearest = NearestDocuments(query_embeddings[:], documents, depth, device, similarity)
    for first, tile in tiles(document_embeddings, slice(0, len(documents)), len(query_embeddings)):
        nearest.add(first, tile)
    return nearest.ranking()


def tiles(
    documents: Vectors, share: slice, n_queries: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each tile of a range of the corpus with its first row. A long search shows progress."""
    size = max(1, TILE_BYTES // (4 * documents.shape[1]))
    starts = range(share.start, share.stop, size)
    hidden = n_queries * len(documents) < 2e9 or process_index() > 0
    for first in with_progress(starts, "searching", len(starts), "parts", hidden=hidden):
        yield first, documents[first : min(first + size, share.stop)]


def first_dimensions(
    embeddings: NDArray[np.float32], size: int, length_1: bool = True
) -> NDArray[np.float32]:
    """Cut embeddings ``[n, dimension]`` to their first ``size`` values, scaled to length 1."""
    if size == embeddings.shape[1]:
        return embeddings
    cut = np.array(embeddings[:, :size])
    if length_1:
        normalise(cut)
    return cut
