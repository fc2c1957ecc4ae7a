"""Embeddings in memory-mapped shards, read as one array, and exact search through them.

Shards are ranges of rows. They depend only on the number of rows, not on the number of processes.

A search goes block by block. A float32 product selects the documents that may be among the best.
Only these candidates are scored in float64. So blocks, threads and processes affect the speed of a
search but not its result.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray

from opera.core.arrays import IntArray, cached_njit, normalise, slices, use_torch_threads
from opera.core.errors import ModelError
from opera.core.files import unfinished
from opera.core.processes import everywhere, process_index
from opera.core.progress import with_progress
from opera.data import TextTable
from opera.retrieval.measures import Ranking

SUFFIX = ".npy"

Vectors: TypeAlias = "NDArray[np.float32] | Embeddings | Any"
"""Rows in memory or on disk, indexed by row numbers and slices; of dense models, vectors."""

MOST_ROWS = 16_384
"""Most rows of a shard, so that a killed process repeats little."""
LEAST_ROWS = 512
"""Fewest rows of a shard, so that batches are full."""
SHARDS = 32
"""Shards of a table between these limits, so that several processes can share the work."""


@dataclass(frozen=True)
class Shards:
    """The shards of a table.

    Attributes:
        count: rows of the table.
        size: rows of a shard, except the last; a power of two, so that shards divide tiles of
            65,536 rows.
    """

    count: int
    size: int

    @classmethod
    def of(cls, count: int, most_rows: int = MOST_ROWS) -> Shards:
        """Return the shards of a table with ``count`` rows, each with at most ``most_rows``."""
        size = 1 << max(0, -(-count // SHARDS) - 1).bit_length()
        return cls(count, min(max(size, LEAST_ROWS), most_rows))

    def __len__(self) -> int:
        return max(1, -(-self.count // self.size))

    def names(self, suffix: str = SUFFIX) -> list[str]:
        """Return the file names, in order."""
        return [f"{number:06d}{suffix}" for number in range(len(self))]

    def rows(self, number: int) -> slice:
        """Return the rows of a shard."""
        return slice(number * self.size, min((number + 1) * self.size, self.count))

    def by_shard(self, rows: IntArray) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Group rows by shard: its number, the indices in ``rows``, and the rows in the shard."""
        numbers, within = np.divmod(np.asarray(rows, dtype=np.int64), self.size)
        order = np.argsort(numbers, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []
        return [(int(numbers[group[0]]), group, within[group]) for group in groups]


class Embeddings:
    """Vectors of a table's rows, memory-mapped from the shards of a folder.

    ``embeddings[rows]`` takes a slice or row numbers in any order, and reads only these rows.

    Attributes:
        shape: rows and dimension.
        shards: the ranges of rows.
    """

    def __init__(self, folder: Path, shards: Shards) -> None:
        self._parts = [np.load(folder / name, mmap_mode="c") for name in shards.names()]
        self.shards, self.shape = shards, (shards.count, int(self._parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, rows: slice | IntArray) -> NDArray[np.float32]:
        if isinstance(rows, slice) and rows.step is None:
            return self._range(*rows.indices(len(self))[:2])
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        vectors = np.empty((numbers.size, self.shape[1]), dtype=np.float32)
        for shard, indices, local_rows in self.shards.by_shard(numbers.ravel()):
            vectors[indices] = self._parts[shard][local_rows]
            _release(self._parts[shard])
        return vectors.reshape(*numbers.shape, self.shape[1])

    def within_shards(self, rows: slice) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the part of each shard that has some of the rows, with its first row, not copied.

        Callers must not change a part, nor use it after the next one.
        """
        size = self.shards.size
        for number in range(rows.start // size, -(-rows.stop // size)):
            shard, part = self.shards.rows(number), self._parts[number]
            first = max(rows.start, shard.start)
            yield first, part[first - shard.start : rows.stop - shard.start]
            _release(part)

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        vectors = np.empty((max(0, stop - start), self.shape[1]), dtype=np.float32)
        size = self.shards.size
        for number in range(start // size, -(-stop // size)):
            rows = self.shards.rows(number)
            first, last = max(start, rows.start), min(stop, rows.stop)
            part = self._parts[number][first - rows.start : last - rows.start]
            vectors[first - start : last - start] = part
            _release(self._parts[number])
        return vectors


def _release(part: NDArray[np.float32]) -> None:
    """Free the memory pages of a shard; the system's file cache keeps them."""
    if isinstance(part.base, mmap.mmap):
        part.base.madvise(mmap.MADV_DONTNEED)


def write_shard(path: Path, vectors: NDArray[np.float32]) -> None:
    """Write a shard; its file gets its final name when it is complete."""
    temporary = unfinished(path)
    with temporary.open("wb") as file:
        np.lib.format.write_array(file, vectors, allow_pickle=False)
    temporary.replace(path)


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
        self._depth = min(depth, len(documents))
        self._best = np.full((queries, self._depth), NO_DOCUMENT)

    def add(self, first: int, tile: Any) -> None:
        """Search a tile of the corpus from row ``first`` on."""
        raise NotImplementedError

    def add_scores(self, first: int, queries: slice, scores: NDArray[np.float32]) -> None:
        """Keep the best of some queries' scores ``[queries, rows]`` from row ``first`` on."""
        best, of_rows = self._best[queries], torch.from_numpy(scores)
        ranks, of_documents = self._ranks(first, len(of_rows[0])), self._best_scores(of_rows, first)
        exact = np.zeros(len(best), dtype=np.float32)
        rows, columns = _reaching(scores, self._bounds(best, of_documents, exact))
        _keep_scored(best, scores, ranks, rows, columns, self._doc_rows is not None)

    def _ranks(self, first: int, count: int) -> IntArray:
        """Return the ranks of the document ids of ``count`` rows."""
        rows = slice(first, first + count)
        return self._id_rank[rows if self._doc_rows is None else self._doc_rows[rows]]

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
        best: NDArray[np.complex128],
        of_documents: torch.Tensor,
        errors: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the score that a document needs to be among the best of each query.

        ``of_documents`` are the best scores of the documents in the block, within ``errors``.
        """
        least = best[:, 0].real.astype(np.float32)  # -inf below k documents so far
        bounds = least - errors
        if self._depth < of_documents.shape[1] and np.isneginf(least).any():
            worst = torch.topk(of_documents, self._depth, dim=1).values[:, -1].cpu().numpy()
            bounds = np.maximum(bounds, worst - 2 * errors)
        return bounds

    def merge_processes(self) -> None:
        """Merge the best documents of all processes' tiles; all processes must call this."""
        for queries in slices(self.n_queries, QUERIES):
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
        self._query_lengths = torch.linalg.vector_norm(self._on_device, dim=1).cpu().numpy()

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Search a tile of the embeddings, float32 ``[rows, dimension]``, from row ``first`` on.

        Raises:
            ModelError: if an embedding holds a value that is not finite.
        """
        if not tile.size or not self._best.size:
            return
        use_torch_threads()
        tile = np.require(tile, np.float32, ["C", "W"])
        ranks = self._ranks(first, len(tile))
        has_passages = self._doc_rows is not None
        documents = torch.from_numpy(tile).to(self._on_device.device)
        errors = self._errors(documents)
        for queries in slices(len(self._queries), QUERIES):
            for block in slices(len(tile), DOCUMENTS if self._device == "cpu" else GPU_DOCUMENTS):
                scores = self._scores(self._on_device[queries], documents[block])
                of_documents = self._best_scores(scores, first + block.start)
                candidates = self._candidates(
                    self._best[queries], scores, of_documents, errors[queries]
                )
                vectors = self._queries[queries], tile[block]
                best = self._best[queries]
                _keep(best, *vectors, ranks[block], *candidates, self._norm, has_passages)

    def _errors(self, documents: torch.Tensor) -> NDArray[np.float32]:
        """Return each query's largest possible error of a float32 score with these documents."""
        dimension = documents.shape[1]
        relative = (dimension + 8) * SUM_ERROR + (self._device != "cpu") * DEVICE_ERROR
        longest = np.float32(torch.linalg.vector_norm(documents, dim=1).amax().item())
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
        if self._norm:
            return -torch.cdist(
                queries, documents, self._norm, compute_mode="donot_use_mm_for_euclid_dist"
            )
        return queries @ documents.T

    def _candidates(
        self,
        best: NDArray[np.complex128],
        scores: torch.Tensor,
        of_documents: torch.Tensor,
        errors: NDArray[np.float32],
    ) -> tuple[IntArray, IntArray]:
        """Return rows and columns of the scores ``[queries, rows]`` that may be the best."""
        bounds = self._bounds(best, of_documents, errors)
        if self._device == "cpu":
            return _reaching(scores.numpy(), bounds)
        reached = scores >= torch.from_numpy(bounds).to(scores.device)[:, None]
        rows, columns = (indices.cpu().numpy() for indices in reached.nonzero(as_tuple=True))
        return rows, columns


def _best_of_each(candidates: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Replace all but the best candidate of each document in a row by :data:`NO_DOCUMENT`."""
    order = np.lexsort((candidates.real, candidates.imag), axis=1)
    by_document = np.take_along_axis(candidates, order, axis=1)
    repeats = by_document.imag[:, 1:] == by_document.imag[:, :-1]
    by_document[:, :-1][repeats] = NO_DOCUMENT
    return by_document


@cached_njit(parallel=True, nogil=True)
def _reaching(scores, bounds):  # type: ignore[no-untyped-def]
    """Return the rows and columns of the scores ``[rows, columns]`` that reach the bound of their
    row, in order.
    """
    starts = np.zeros(len(scores) + 1, np.int64)
    for row in prange(len(scores)):
        count, bound = 0, bounds[row]
        for column in range(scores.shape[1]):
            count += scores[row, column] >= bound
        starts[row + 1] = count
    starts = np.cumsum(starts)
    rows, columns = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
    for row in prange(len(scores)):
        place, column = starts[row], 0
        while place < starts[row + 1]:
            if scores[row, column] >= bounds[row]:
                rows[place], columns[place] = row, column
                place += 1
            column += 1
    return rows, columns


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


@cached_njit(parallel=True, nogil=True, fastmath={"reassoc"})
def _keep(best, queries, documents, ranks, rows, columns, norm, has_passages):  # type: ignore[no-untyped-def]
    """Score pairs in float64, and keep the best documents of each query.

    Args:
        best: complex128 ``[queries, depth]``, changed in place: a heap per query.
        queries: float32 ``[queries, dimension]``.
        documents: float32 ``[documents, dimension]``.
        ranks: the ranks of the documents' ids.
        rows: each pair's query, ascending.
        columns: each pair's document.
        norm: of :data:`DISTANCES`; 0 for the product.
        has_passages: whether several columns may belong to one document, which is kept once.
    """
    starts = np.searchsorted(rows, np.arange(len(best) + 1))
    for row in prange(len(best)):
        for pair in range(starts[row], starts[row + 1]):
            document = columns[pair]
            score = _score(queries[row], documents[document], norm)
            _insert(best[row], complex(score, ranks[document]), has_passages)


@cached_njit(parallel=True, nogil=True)
def _keep_scored(best, scores, ranks, rows, columns, has_passages):  # type: ignore[no-untyped-def]
    """Keep the best documents of each query; as :func:`_keep`, with exact scores float32
    ``[queries, documents]``.
    """
    starts = np.searchsorted(rows, np.arange(len(best) + 1))
    for row in prange(len(best)):
        for pair in range(starts[row], starts[row + 1]):
            document = columns[pair]
            candidate = complex(scores[row, document], ranks[document])
            _insert(best[row], candidate, has_passages)


def exact_search(nearest: BestDocuments, embeddings: Vectors) -> Ranking:
    """Search all embeddings ``[rows, dimension]`` in this process alone."""
    for first, tile in tiles(embeddings, slice(0, len(embeddings)), nearest.n_queries):
        nearest.add(first, tile)
    return nearest.ranking()


def tiles(
    documents: Vectors, share: slice, n_queries: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each tile of a range of the corpus with its first row. A long search shows progress.

    A tile of a large table on disk is part of a shard, and is not copied.
    """
    size = max(1, TILE_BYTES // row_bytes(documents))
    starts = range(share.start, share.stop, size)
    hidden = n_queries * len(documents) < 2e9 or process_index() > 0
    for first in with_progress(starts, "searching", len(starts), "parts", hidden=hidden):
        rows = slice(first, min(first + size, share.stop))
        if isinstance(documents, Embeddings) and documents.shards.size >= DOCUMENTS:
            yield from documents.within_shards(rows)
        else:
            yield first, documents[rows]


def row_bytes(documents: Vectors) -> int:
    """Return the mean size of a row in memory."""
    values = getattr(documents, "items_per_row", 0) or documents.shape[1]
    return max(1, int(4 * values))


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
