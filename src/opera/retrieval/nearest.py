"""Exact search: products of queries and corpus, tile by tile, and the best documents so far.

Products are float32. The few documents that a product leaves a chance are scored again, pair by
pair, in float64. So tiles, threads and processes decide how fast a ranking is found, and not what
it is. Models that rank by a distance are rare, so every distance is computed directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from opera.core.arrays import IntArray, normalise
from opera.core.errors import ModelError
from opera.core.processes import everywhere, process_index
from opera.core.progress import counted
from opera.data import TextTable
from opera.encoder.embeddings import Vectors
from opera.encoder.kernels import cached_njit
from opera.retrieval.measures import Ranking

TILE = 16_384
"""Documents that are read at once, and the unit that processes share."""
BLOCK, DEVICE_BLOCK = (256, 2048), (1024, 65_536)
"""Queries and documents of one product: on a CPU its 2 MB of scores stay in a core's cache."""
SUM_ERROR, DEVICE_ERROR = 2.0**-23, 2.0**-9
"""What a float32 product may be off by, of the lengths: per dimension, and by TF32 on a GPU. Twice
the bounds."""

DISTANCES = {"manhattan": 1.0, "euclidean": 2.0}
"""Similarities that are negative distances, and the norm of each."""

Keys = NDArray[np.uint64]
"""Documents of queries, ``[queries, depth]``: a score's bits, in ascending order, above the rank of
the document's id. So the greater key is the better document, ties included."""
HALF, SIGN = np.uint64(32), np.uint32(2**31)
NO_DOCUMENT = 0x007FFFFF_00000000
"""The key of a place that nothing has taken: a score of -inf."""


class NearestDocuments:
    """The best documents of each query among those seen so far; of equal scores, the greater id.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
        similarity: a ``similarity_fn_name`` of sentence-transformers; embeddings have length 1 for
            the cosine.
    """

    def __init__(
        self,
        query_embeddings: NDArray[np.float32],
        documents: TextTable,
        depth: int,
        device: str = "cpu",
        similarity: str = "cosine",
    ) -> None:
        self._norm = DISTANCES.get(similarity)
        self._queries = np.require(query_embeddings, np.float32, ["C", "W"])
        self._id_rank, self._device = documents.id_rank, device
        self._on_device = torch.from_numpy(self._queries).to(device)
        shape = (len(self._queries), min(depth, len(documents)))
        self._keys = np.full(shape, NO_DOCUMENT, dtype=np.uint64)
        error = (self._queries.shape[1] + 8) * SUM_ERROR + (device != "cpu") * DEVICE_ERROR
        self._off = error * _lengths(self._queries)

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Look through a tile of the corpus from a row on: float32 ``[documents, dimension]``.

        Raises:
            ModelError: if an embedding holds a value that is not finite.
        """
        if not tile.size or not self._keys.size:
            return
        tile = np.require(tile, np.float32, ["C", "W"])
        ranks = self._id_rank[first : first + len(tile)]
        off = (self._off * _lengths(tile).max() + 1e-30).astype(np.float32)
        if not np.isfinite(off).all():
            wrong = "embeddings hold values that are no numbers, or too large"
            raise ModelError(f"search: {wrong}; use another model")
        documents = torch.from_numpy(tile).to(self._on_device.device)
        high, wide = BLOCK if self._device == "cpu" else DEVICE_BLOCK
        if self._norm is not None:
            for start in range(0, len(off), high):
                self._add_distances(slice(start, start + high), documents, ranks, self._norm)
            return
        threads = torch.get_num_threads()
        high = min(high, -(-len(off) // threads))

        def look(start: int) -> None:
            part = slice(start, start + high)
            for at in range(0, len(tile), wide):
                block = slice(at, at + wide)
                products = self._on_device[part] @ documents[block].T
                pairs = self._with_a_chance(part, products, off[part])
                _offer(pairs, self._queries[part], tile[block], ranks[block], self._keys[part])

        # each thread multiplies by itself: OpenMP's team would wait for its slowest each time
        workers = threads if self._device == "cpu" else 1
        try:
            with ThreadPoolExecutor(workers, "", torch.set_num_threads, (1,)) as pool:
                list(pool.map(look, range(0, len(off), high)))
        finally:
            torch.set_num_threads(threads)

    def _add_distances(
        self, part: slice, documents: torch.Tensor, ranks: NDArray[np.int32], norm: float
    ) -> None:
        """Look through documents ``[k, dimension]`` for some of the queries."""
        depth, exact = self._keys.shape[1], "donot_use_mm_for_euclid_dist"
        scores = 0 - torch.cdist(self._on_device[part], documents, norm, compute_mode=exact)
        bits = scores.cpu().numpy().view(np.uint32)
        keys = np.where(bits & SIGN, ~bits, bits | SIGN).astype(np.uint64) << HALF
        every = np.concatenate([self._keys[part], keys | ranks.astype(np.uint64)], axis=1)
        self._keys[part] = np.partition(every, -depth, axis=1)[:, -depth:]

    def _with_a_chance(
        self, part: slice, products: torch.Tensor, off: NDArray[np.float32]
    ) -> NDArray[np.int64]:
        """Number products ``[queries, documents]`` row by row; return those that may be the best.

        They reach the least score that is kept, or the ``depth``-th best product if none is.
        """
        least, depth = _scores(self._keys[part, 0]), self._keys.shape[1]
        bound = least - off
        if depth < products.shape[1] and np.isneginf(least).any():
            best = torch.topk(products, depth, dim=1, sorted=False).values
            bound = np.maximum(bound, best.amin(dim=1).cpu().numpy() - 2 * off)
        if self._device == "cpu":
            return np.flatnonzero(products.numpy() >= bound[:, None])
        reached = products >= torch.from_numpy(bound).to(products.device)[:, None]
        return np.asarray(reached.ravel().nonzero().ravel().cpu().numpy())

    def add_some(self, query: int, rows: IntArray, vectors: NDArray[np.float32]) -> None:
        """Score rows of the corpus ``[k]`` for one query: float32 ``[k, dimension]``."""
        own, pairs = slice(query, query + 1), np.arange(len(rows))
        _offer(pairs, self._queries[own], vectors, self._id_rank[rows], self._keys[own])

    def add_of_other_processes(self) -> None:
        """Take in what the other processes have found in their tiles; all call this together."""
        depth, high = self._keys.shape[1], DEVICE_BLOCK[0]
        for start in range(0, len(self._keys), high):
            keys = self._keys[start : start + high]
            found = np.concatenate(everywhere(partial(np.copy, keys)), axis=1)
            keys[:] = np.sort(found, axis=1)[:, -depth:]

    def ranking(self) -> Ranking:
        """What was found: ``n`` rows, best first; -1 and -inf if there were too few documents."""
        self._keys.sort(axis=1)  # which is a heap, too
        best = self._keys[:, ::-1]
        row_of = np.empty(len(self._id_rank), dtype=np.int32)
        row_of[self._id_rank] = np.arange(len(row_of), dtype=np.int32)
        doc_rows = np.where(best == NO_DOCUMENT, np.int32(-1), row_of[best.astype(np.uint32)])
        return Ranking(doc_rows, _scores(best))


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _scores(keys: Keys) -> NDArray[np.float32]:
    bits = (keys >> HALF).astype(np.uint32)
    return np.asarray(np.where(bits & SIGN, bits ^ SIGN, ~bits).view(np.float32))


@cached_njit(nogil=True, fastmath={"reassoc"})
def _offer(pairs, queries, documents, id_rank, keys):  # type: ignore[no-untyped-def]
    """Score pairs, numbered query by query; keep the best. A row of keys is a heap, least first."""
    for pair in pairs:
        at, doc = pair // len(documents), pair % len(documents)
        score, best = 0.0, keys[at]
        for i in range(queries.shape[1]):
            score += np.float64(queries[at, i]) * np.float64(documents[doc, i])
        bits = np.float32(np.float32(score) + np.float32(0)).view(np.uint32)  # -0 is 0
        key = np.uint64(~bits if bits & SIGN else bits | SIGN) << HALF | np.uint64(id_rank[doc])
        if key <= best[0]:
            continue
        place, child = 0, 1
        while child < len(best):
            if child + 1 < len(best) and best[child + 1] < best[child]:
                child += 1
            if key <= best[child]:
                break
            best[place] = best[child]
            place, child = child, 2 * child + 1
        best[place] = key


def exact_search(
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    documents: TextTable,
    depth: int,
    device: str = "cpu",
    similarity: str = "cosine",
) -> Ranking:
    """Rank all documents for each query and keep the best; this process alone.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        document_embeddings: float32 ``[documents, dimension]``, read in tiles.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
        similarity: as of :class:`NearestDocuments`.
    """
    nearest = NearestDocuments(query_embeddings[:], documents, depth, device, similarity)
    for first, tile in tiles(document_embeddings, slice(0, len(documents)), len(query_embeddings)):
        nearest.add(first, tile)
    return nearest.ranking()


def tiles(
    documents: Vectors, share: slice, n_queries: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Read a range of the corpus: first rows and tiles. A long search reports how far it is."""
    starts = range(share.start, share.stop, TILE)
    hidden = n_queries * len(documents) < 2e9 or process_index() > 0
    for first in counted(starts, "searching", len(starts), "parts", hidden=hidden):
        yield first, documents[first : min(first + TILE, share.stop)]


def first_dimensions(
    embeddings: NDArray[np.float32], size: int, length_1: bool = True
) -> NDArray[np.float32]:
    """Cut embeddings ``[n, dimension]`` to their first ``size`` values, brought to length 1."""
    if size == embeddings.shape[1]:
        return embeddings
    cut = np.array(embeddings[:, :size])
    if length_1:
        normalise(cut)
    return cut
