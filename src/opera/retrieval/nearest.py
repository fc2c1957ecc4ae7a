"""Exact search through embeddings, block by block.

A float32 product selects the documents that may be among the best. Only these candidates are scored
in float64. So blocks, threads and processes affect the speed of a search but not its result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from opera.core.arrays import IntArray, cached_njit, slices
from opera.core.errors import ModelError
from opera.core.processes import everywhere
from opera.core.processor import processor_defaults
from opera.data import TextTable
from opera.retrieval.measures import Ranking
from opera.retrieval.vectors import Vectors, tiles

QUERIES, DOCUMENTS = 256, 1024
"""Queries and documents of a product on a CPU: the scores fit into the cache of a core."""
GPU_QUERIES, GPU_DOCUMENTS = 1024, 65_536
"""Queries and documents of a product on a GPU."""
QUERIES_PER_MERGE = 1024
"""Queries whose best documents processes exchange at once."""
LEAST_QUERIES = 32
"""Fewest queries of a thread."""
COLUMNS = 64
"""Scores that a search compares with a bound before it looks at each."""
SUM_ERROR, DEVICE_ERROR = 2.0**-23, 2.0**-9
"""Largest error of a float32 score, relative to the lengths of both vectors: per dimension, and for
TF32 on a GPU. Both are twice the theoretical bound."""

DISTANCES = {"manhattan": 1, "euclidean": 2}
"""Similarities that are negative distances, with their norms."""
EXACT = -1
"""In place of a norm: the scores are exact."""

NO_DOCUMENT = complex(-np.inf, -1)


class BestDocuments:
    """The best documents of each query so far; for equal scores, the greater document id wins.

    A candidate is a complex number: its real part is the score, its imaginary part the rank of the
    document's id. NumPy sorts complex numbers by the real part first.

    Args:
        queries: the number of queries.
        documents: the corpus, for its ids.
        depth: number of documents to keep per query.
        doc_rows: int64 ``[passages]``, the document of each row, which is ranked by its best
            passage; ``None`` if row i belongs to document i.
    """

    def __init__(
        self,
        queries: int,
        documents: TextTable,
        depth: int,
        doc_rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.n_queries, self._id_rank, self._doc_rows = queries, documents.id_rank, doc_rows
        self._has_passages = doc_rows is not None
        self._depth = min(depth, len(documents))
        self._best = np.full((queries, self._depth), NO_DOCUMENT)

    def add(self, first: int, tile: Any) -> None:
        """Search a tile of the corpus from row ``first`` on."""
        raise NotImplementedError

    def add_scores(self, first: int, queries: slice, scores: NDArray[np.float32]) -> None:
        """Keep the best of some queries' exact scores ``[queries, rows]`` from row ``first`` on."""
        best, ranks = self._best[queries], self._ranks(first, scores.shape[1])
        no_errors, no_vectors = np.zeros(len(best), np.float32), np.empty((0, 0), np.float32)

        def keep(part: slice) -> None:
            of_part = best[part], scores[part], no_errors[part]
            _keep(*of_part, ranks, no_vectors, no_vectors, EXACT, self._has_passages)

        _in_threads(keep, len(best))

    def _ranks(self, first: int, count: int) -> IntArray:
        """Return the ranks of the document ids of ``count`` rows."""
        rows = slice(first, first + count)
        return self._id_rank[rows if self._doc_rows is None else self._doc_rows[rows]]

    def merge_processes(self) -> None:
        """Merge the best documents of all processes' tiles; all processes must call this."""
        for queries in slices(self.n_queries, QUERIES_PER_MERGE):
            part = self._best[queries]
            candidates = np.concatenate(everywhere(partial(np.copy, part)), axis=1)
            if self._doc_rows is not None:  # processes may share the passages of a document
                candidates = _best_of_each(candidates)
            least = candidates.shape[1] - self._depth
            part[:] = np.partition(candidates, least, axis=1)[:, least:]

    def ranking(self) -> Ranking:
        """Return ``n`` rows, best first; -1 and -inf if there are too few documents."""
        best = np.sort(self._best, axis=1)[:, ::-1]
        row_of = np.full(len(self._id_rank) + 1, -1, dtype=np.int32)  # NO_DOCUMENT is the last
        row_of[self._id_rank] = np.arange(len(self._id_rank), dtype=np.int32)
        return Ranking(row_of[best.imag.astype(np.int64)], best.real.astype(np.float32))


class NearestDocuments(BestDocuments):
    """The best documents of each query by their embeddings.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        documents, depth, doc_rows: as for :class:`BestDocuments`.
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
        doc_rows: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(len(query_embeddings), documents, depth, doc_rows)
        self._norm, self._device = DISTANCES.get(similarity, 0), device
        self._queries = np.require(query_embeddings, np.float32, ["C", "W"])
        self._on_device = torch.from_numpy(self._queries).to(device)
        self._numpy_multiplies = self._norm == 0 and processor_defaults().product_library == "numpy"
        self._query_lengths = torch.linalg.vector_norm(self._on_device, dim=1).cpu().numpy()

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Search a tile of the embeddings, float32 ``[rows, dimension]``, from row ``first`` on.

        Raises:
            ModelError: if an embedding holds a value that is not finite.
        """
        if not tile.size or not self._best.size:
            return
        tile = np.require(tile, np.float32, ["C", "W"])
        ranks = self._ranks(first, len(tile))
        if self._device != "cpu":
            self._add_on_gpu(first, tile, ranks)
            return
        # torch's threads would wait in a loop, and slow down the search
        errors = self._errors(np.sqrt(np.einsum("ij,ij->i", tile, tile).max()))
        add_to_part = partial(self._add_to_part, tile, ranks, errors)
        _in_threads(add_to_part, self.n_queries, torch_multiplies=not self._numpy_multiplies)

    def _add_on_gpu(self, first: int, tile: NDArray[np.float32], ranks: IntArray) -> None:
        """Search a tile: the device multiplies and selects, and the CPU scores the candidates."""
        documents = torch.from_numpy(tile).to(self._on_device.device)
        longest = torch.linalg.vector_norm(documents, dim=1).amax().item()
        errors = self._errors(np.float32(longest))
        for queries in slices(self.n_queries, GPU_QUERIES):
            for block in slices(len(tile), GPU_DOCUMENTS):
                scores = self._scores(self._on_device[queries], documents[block])
                best = self._best[queries]
                bounds = self._bounds(first + block.start, best, scores, errors[queries])
                reached = scores >= torch.from_numpy(bounds).to(scores.device)[:, None]
                rows, columns = (
                    indices.cpu().numpy() for indices in reached.nonzero(as_tuple=True)
                )
                self._keep_pairs(queries, tile[block], ranks[block], rows, columns)

    def _keep_pairs(
        self,
        queries: slice,
        tile: NDArray[np.float32],
        ranks: IntArray,
        rows: IntArray,
        columns: IntArray,
    ) -> None:
        """Score the candidates of some queries: the rows of the queries, ascending, and columns."""
        best, vectors = self._best[queries], self._queries[queries]

        def keep(part: slice) -> None:
            pairs = slice(*np.searchsorted(rows, [part.start, part.stop]))
            candidates = rows[pairs], columns[pairs]
            _keep_pairs(best, vectors, tile, ranks, *candidates, self._norm, self._has_passages)

        _in_threads(keep, len(best))

    def _add_to_part(
        self,
        tile: NDArray[np.float32],
        ranks: IntArray,
        errors: NDArray[np.float32],
        part: slice,
    ) -> None:
        """Search a tile for a part of the queries, in one thread."""
        buffer = np.empty(QUERIES * DOCUMENTS, dtype=np.float32)
        for block in slices(len(tile), DOCUMENTS):
            for start in range(part.start, part.stop, QUERIES):
                queries = slice(start, min(start + QUERIES, part.stop))
                vectors = self._queries[queries]
                shape = len(vectors), block.stop - block.start
                scores = buffer[: shape[0] * shape[1]].reshape(shape)
                self._score(vectors, tile[block], scores)
                of_queries = self._best[queries], scores, errors[queries]
                of_documents = ranks[block], vectors, tile[block]
                _keep(*of_queries, *of_documents, self._norm, self._has_passages)

    def _errors(self, longest: np.float32) -> NDArray[np.float32]:
        """Return each query's largest possible error of a float32 score with documents of at most
        this length.
        """
        dimension = self._queries.shape[1]
        relative = (dimension + 8) * SUM_ERROR + (self._device != "cpu") * DEVICE_ERROR
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

    def _score(
        self,
        queries: NDArray[np.float32],
        documents: NDArray[np.float32],
        scores: NDArray[np.float32],
    ) -> None:
        """Compute the scores ``[queries, documents]`` on a CPU, within the error of float32."""
        if self._numpy_multiplies and self.n_queries > 1:  # torch multiplies one query faster
            np.matmul(queries, documents.T, out=scores)
            return
        tensors = torch.from_numpy(queries), torch.from_numpy(documents)
        torch.from_numpy(scores).copy_(self._scores(*tensors))

    def _scores(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        if self._norm:
            return -torch.cdist(
                queries, documents, self._norm, compute_mode="donot_use_mm_for_euclid_dist"
            )
        return queries @ documents.T

    def _best_scores(self, scores: torch.Tensor, first: int) -> torch.Tensor:
        """Return the best score of each document ``[queries, documents]`` in a block of rows from
        ``first`` on.
        """
        if self._doc_rows is None:
            return scores
        documents = torch.from_numpy(self._doc_rows[first : first + scores.shape[1]])
        positions = (documents - documents[0]).to(scores.device).expand(len(scores), -1)
        shape = len(scores), int(documents[-1] - documents[0]) + 1
        lowest = torch.full(shape, -torch.inf, device=scores.device)
        return lowest.scatter_reduce(1, positions, scores, "amax")

    def _bounds(
        self,
        first: int,
        best: NDArray[np.complex128],
        scores: torch.Tensor,
        errors: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the score that a row needs to be among the best of each query.

        ``scores`` are those of a block of rows from ``first`` on, within ``errors``.
        """
        least = best[:, 0].real.astype(np.float32)  # -inf below k documents so far
        bounds, of_documents = least - errors, self._best_scores(scores, first)
        if self._depth < of_documents.shape[1] and np.isneginf(least).any():
            worst = torch.topk(of_documents, self._depth, dim=1).values[:, -1].cpu().numpy()
            bounds = np.maximum(bounds, worst - 2 * errors)
        return bounds


def _best_of_each(candidates: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Replace all but the best candidate of each document in a row by :data:`NO_DOCUMENT`."""
    order = np.lexsort((candidates.real, candidates.imag), axis=1)
    by_document = np.take_along_axis(candidates, order, axis=1)
    repeats = by_document.imag[:, 1:] == by_document.imag[:, :-1]
    by_document[:, :-1][repeats] = NO_DOCUMENT
    return by_document


_limits_threads = Lock()
"""Searches in several threads take turns, because a limit holds for all threads of the process."""


def _in_threads(
    work: Callable[[slice], None], n_queries: int, *, torch_multiplies: bool = False
) -> None:
    """Let each of torch's threads work on a part of the queries; a library uses one thread there.

    A few queries stay in this thread, where libraries use all threads.
    """
    if n_queries < 2 * LEAST_QUERIES:
        work(slice(0, n_queries))
        return
    with _limits_threads:
        threads = torch.get_num_threads()
        n_parts = min(threads, n_queries // LEAST_QUERIES)
        ends = np.linspace(0, n_queries, n_parts + 1).astype(int).tolist()
        prepare = partial(torch.set_num_threads, 1) if torch_multiplies else None
        try:
            with (
                _thread_pools().limit(limits=1, user_api="blas"),
                ThreadPoolExecutor(n_parts, initializer=prepare) as pool,
            ):
                list(pool.map(work, map(slice, ends[:-1], ends[1:])))
        finally:
            if torch_multiplies:
                torch.set_num_threads(threads)  # new threads copy the last setting of any thread


@cache
def _thread_pools() -> ThreadpoolController:
    """Return what limits the threads of other libraries, such as NumPy's BLAS."""
    return ThreadpoolController()


@cached_njit(inline="always", fastmath={"reassoc"})
def _score(query, document, norm):  # type: ignore[no-untyped-def]
    """Score a pair in float64, and round to float32."""
    total = 0.0
    if norm == 0:
        for i in range(len(query)):
            total += np.float64(query[i]) * np.float64(document[i])
    elif norm == 1:
        for i in range(len(query)):
            total -= abs(np.float64(query[i]) - np.float64(document[i]))
    else:
        for i in range(len(query)):
            total += (np.float64(query[i]) - np.float64(document[i])) ** 2
        total = -np.sqrt(total)
    return np.float32(total) + np.float32(0)  # turns -0 into 0


@cached_njit(inline="always")
def _is_less(one, other):  # type: ignore[no-untyped-def]
    return one.real < other.real or (one.real == other.real and one.imag < other.imag)


@cached_njit(inline="always")
def _insert(heap, candidate, has_passages):  # type: ignore[no-untyped-def]
    """Put a candidate into a heap, whose first candidate is the lowest, if it is better than that.

    With ``has_passages``, a document is kept once.
    """
    size, hole, accepted = len(heap), 0, _is_less(heap[0], candidate)
    if accepted and has_passages:
        for position in range(size):
            if heap[position].imag == candidate.imag:
                hole = position
        accepted = heap[hole].imag != candidate.imag or _is_less(heap[hole], candidate)
    if accepted:
        child = 2 * hole + 1
        while child < size:
            if child + 1 < size and _is_less(heap[child + 1], heap[child]):
                child += 1
            if not _is_less(heap[child], candidate):
                break
            heap[hole] = heap[child]
            hole, child = child, 2 * child + 1
        heap[hole] = candidate


@cached_njit(nogil=True, fastmath={"reassoc"})
def _keep(best, scores, errors, ranks, queries, documents, norm, has_passages):  # type: ignore[no-untyped-def]
    """Keep the best documents of each query. Score those in float64 that may be among the best.

    Args:
        best: complex128 ``[queries, depth]``, changed in place: a heap per query.
        scores: float32 ``[queries, documents]``.
        errors: float32 ``[queries]``, the largest error of a score.
        ranks: the ranks of the documents' ids.
        queries: float32 ``[queries, dimension]``.
        documents: float32 ``[documents, dimension]``.
        norm: of :data:`DISTANCES`; 0 for the product; :data:`EXACT` to take the scores as they are.
        has_passages: whether several columns may belong to one document, which is kept once.
    """
    for row in range(len(scores)):
        bound = np.float32(best[row, 0].real) - errors[row]
        for start in range(0, scores.shape[1], COLUMNS):
            end = min(start + COLUMNS, scores.shape[1])
            count = 0
            for column in range(start, end):  # the processor compares several at a time
                count += scores[row, column] >= bound
            if count == 0:
                continue
            for column in range(start, end):
                score = scores[row, column]
                if score >= bound:
                    if norm != EXACT:
                        score = _score(queries[row], documents[column], norm)
                    _insert(best[row], complex(score, ranks[column]), has_passages)
                    bound = np.float32(best[row, 0].real) - errors[row]


@cached_njit(nogil=True, fastmath={"reassoc"})
def _keep_pairs(best, queries, documents, ranks, rows, columns, norm, has_passages):  # type: ignore[no-untyped-def]
    """Score pairs in float64, and keep the best documents of each query; as :func:`_keep`.

    ``rows`` are the pairs' queries, and ``columns`` their documents.
    """
    for row, column in zip(rows, columns):  # noqa: B905  numba knows no strict
        score = _score(queries[row], documents[column], norm)
        _insert(best[row], complex(score, ranks[column]), has_passages)


def exact_search(nearest: BestDocuments, embeddings: Vectors) -> Ranking:
    """Search all embeddings ``[rows, dimension]`` in this process alone."""
    for first, tile in tiles(embeddings, slice(0, len(embeddings)), nearest.n_queries):
        nearest.add(first, tile)
    return nearest.ranking()
