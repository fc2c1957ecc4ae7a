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
from numpy.typing import NDArray

from opera.core.arrays import IntArray, cached_njit, normalise, slices
from opera.core.errors import ModelError
from opera.core.files import unfinished
from opera.core.processes import everywhere, process_index
from opera.core.progress import with_progress
from opera.data import TextTable
from opera.retrieval.measures import Ranking

SUFFIX = ".npy"

Vectors: TypeAlias = "NDArray[np.float32] | Embeddings"
"""Vectors in memory or on disk, indexed by row numbers and slices."""

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
    def of(cls, count: int) -> Shards:
        """Return the shards of a table with ``count`` rows."""
        size = 1 << max(0, -(-count // SHARDS) - 1).bit_length()
        return cls(count, min(max(size, LEAST_ROWS), MOST_ROWS))

    def __len__(self) -> int:
        return max(1, -(-self.count // self.size))

    def names(self) -> list[str]:
        """Return the file names, in order."""
        return [f"{number:06d}{SUFFIX}" for number in range(len(self))]

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
    """

    def __init__(self, folder: Path, shards: Shards) -> None:
        self._parts = [np.load(folder / name, mmap_mode="r") for name in shards.names()]
        self._shards, self.shape = shards, (shards.count, int(self._parts[0].shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, rows: slice | IntArray) -> NDArray[np.float32]:
        if isinstance(rows, slice) and rows.step is None:
            return self._range(*rows.indices(len(self))[:2])
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        vectors = np.empty((numbers.size, self.shape[1]), dtype=np.float32)
        for shard, indices, local_rows in self._shards.by_shard(numbers.ravel()):
            vectors[indices] = self._parts[shard][local_rows]
            _release(self._parts[shard])
        return vectors.reshape(*numbers.shape, self.shape[1])

    def _range(self, start: int, stop: int) -> NDArray[np.float32]:
        vectors = np.empty((max(0, stop - start), self.shape[1]), dtype=np.float32)
        size = self._shards.size
        for number in range(start // size, -(-stop // size)):
            rows = self._shards.rows(number)
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

MOST_CANDIDATES = 2**21
"""Bounds the candidates that are scored at once. A query of zeros scores all documents the same, so
all are candidates."""

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
                may_be_best = self._may_be_best(queries, scores, errors[queries])
                for rows, query, document in self._pairs_in_blocks(may_be_best):
                    some_queries = slice(queries.start + rows.start, queries.start + rows.stop)
                    self._keep(some_queries, query, document, tile[block], ranks[block])

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

    def _may_be_best(
        self, queries: slice, scores: torch.Tensor, errors: NDArray[np.float32]
    ) -> torch.Tensor:
        """Mark the scores ``[queries, documents]`` that may be among the best."""
        least = self._best.real[queries, 0].astype(np.float32)  # -inf below k documents so far
        depth, width, bound = self._depth, scores.shape[1], least - errors
        if depth < width and np.isneginf(least).any():
            if self._device == "cpu":
                worst = np.partition(scores.numpy(), width - depth, axis=1)[:, width - depth]
            else:
                worst = torch.topk(scores, depth, dim=1).values[:, -1].cpu().numpy()
            bound = np.maximum(bound, worst - 2 * errors)
        return scores >= torch.from_numpy(bound).to(scores.device)[:, None]

    def _pairs_in_blocks(
        self, marked: torch.Tensor
    ) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield blocks of rows of ``marked``, ``[queries, documents]``, and the indices of their
        marked values. A block has at most :data:`MOST_CANDIDATES` values, padding included."""
        count, width = marked.shape
        if count * width > MOST_CANDIDATES:
            longest = int(torch.count_nonzero(marked, dim=1).max())
            count = max(1, MOST_CANDIDATES // max(1, longest))
        for rows in slices(len(marked), count):
            if self._device == "cpu":  # NumPy is faster here
                query, document = np.divmod(np.flatnonzero(marked[rows].numpy()), width)
            else:
                query, document = marked[rows].nonzero().T.cpu().numpy()
            yield rows, query, document

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
