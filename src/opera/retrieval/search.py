"""Exact search: products of queries and corpus, tile by tile, and the best documents so far.

Products are float32. The few documents that a product leaves a chance are scored again, pair by
pair, in float64. So tiles, threads and processes decide how fast a ranking is found, and not what
it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from opera.config.search_index import SearchIndex
from opera.core.arrays import IntArray
from opera.core.errors import ModelError
from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import SEARCH_MEMORY, Encoder, rows_digest
from opera.retrieval.measures import Ranking

UNIT = 4096
"""Rows of a tile that is one process's own."""
BLOCK, DEVICE_BLOCK = (256, 2048), (1024, 65_536)
"""Queries and documents of one product: on a CPU its 2 MB of scores stay in a core's cache."""
SUM_ERROR, DEVICE_ERROR = 2.0**-23, 2.0**-9
"""What a float32 product may be off by, of the lengths: per dimension, and by TF32 on a GPU. Twice
the bounds."""
RANKING_FILE = "ranking.npz"

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
    """

    def __init__(
        self,
        query_embeddings: NDArray[np.float32],
        documents: TextTable,
        depth: int,
        device: str = "cpu",
    ) -> None:
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
        """What was found: ``n`` rows, best first; -inf if there were too few documents."""
        self._keys.sort(axis=1)  # which is a heap, too
        best = self._keys[:, ::-1]
        row_of = np.empty(len(self._id_rank), dtype=np.int32)
        row_of[self._id_rank] = np.arange(len(row_of), dtype=np.int32)
        return Ranking(row_of[best.astype(np.uint32)], _scores(best))


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _scores(keys: Keys) -> NDArray[np.float32]:
    bits = (keys >> HALF).astype(np.uint32)
    return np.asarray(np.where(bits & SIGN, bits ^ SIGN, ~bits).view(np.float32))


@njit(cache=True, nogil=True, fastmath={"reassoc"})
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
    memory: int = SEARCH_MEMORY,
) -> Ranking:
    """Rank all documents for each query by dot product and keep the best; this process alone.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        document_embeddings: float32 ``[documents, dimension]``, read in tiles.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
        memory: bytes to take besides queries, corpus and ranking; many queries are cut in parts.
    """
    count, dimension = query_embeddings.shape
    tiles = partial(_tiles, document_embeddings, slice(0, len(documents)), count, memory)
    found = _search(query_embeddings, tiles, documents, depth, [dimension], device, memory)
    return found[dimension]


def rank_by_size(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    sizes: Sequence[int],
    corpus_text: CorpusText = "title_text",
) -> dict[int, Ranking]:
    """Rank the corpus by the first dimensions of its embeddings, each number of them by itself.

    Each process looks through its own rows, and all call this. Embeddings that are not kept are
    searched as they are computed, so that all queries are searched at once.
    """
    queries, memory = encoder.encode_queries(data, query_rows), encoder.search_memory
    if encoder.use_cache:
        documents, own = encoder.encode_corpus(data, corpus_text), own_share(len(data.corpus), UNIT)
        tiles = partial(_tiles, documents, own, len(queries), memory)
    else:
        tiles, memory = partial(encoder.document_parts, data, corpus_text), sys.maxsize
    return _search(queries, tiles, data.corpus, depth, sizes, encoder.device, memory, together=True)


def _search(
    queries: Vectors,
    tiles: Callable[[], Iterable[tuple[int, NDArray[np.float32]]]],
    documents: TextTable,
    depth: int,
    sizes: Sequence[int],
    device: str,
    memory: int,
    *,
    together: bool = False,
) -> dict[int, Ranking]:
    """Go through the tiles once for each part of the queries that fits into half of the memory."""
    depth = min(depth, len(documents))
    whole = {size: Ranking.empty(len(queries), depth) for size in sizes}
    high = max(1, memory // 2 // (24 * depth * len(sizes) + 4 * sum(sizes) + 64))
    for start in range(0, len(queries), high):
        part = slice(start, min(start + high, len(queries)))
        found = {
            size: NearestDocuments(first_dimensions(queries[part], size), documents, depth, device)
            for size in sizes
        }

        def look(found: Mapping[int, NearestDocuments] = found) -> None:
            for first, tile in tiles():
                for size, nearest in found.items():
                    nearest.add(first, first_dimensions(tile, size))

        everywhere(look) if together else look()
        for size, nearest in found.items():
            if together:
                nearest.add_of_other_processes()
            whole[size].put(part, nearest.ranking())
    return whole


def _tiles(
    documents: Vectors, share: slice, queries: int, memory: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Read a range of the corpus, a quarter of the memory at once and at most 16 units."""
    size = UNIT * min(16, max(1, memory // 4 // (4 * documents.shape[1] * UNIT)))
    starts = range(share.start, share.stop, size)
    hidden = queries * len(documents) < 2e9 or process_index() > 0
    for first in counted(starts, "searching", len(starts), "parts", hidden=hidden):
        yield first, documents[first : min(first + size, share.stop)]


def first_dimensions(embeddings: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Cut unit embeddings ``[n, dimension]`` to their first ``size`` values, of length 1."""
    if size == embeddings.shape[1]:
        return embeddings
    cut = embeddings[:, :size]
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.asarray(cut / np.maximum(lengths, 1e-12), dtype=np.float32)


def search_corpus(
    encoder: Encoder,
    data: RetrievalData,
    query_rows: IntArray,
    depth: int,
    corpus_text: CorpusText = "title_text",
    index: SearchIndex = "exact",
) -> Ranking:
    """Rank the corpus for some of the data's own queries; all processes call this.

    An exact ranking is cached on disk, if embeddings are; of an approximate index, the index is.
    """
    if index != "exact":
        from opera.retrieval.approximate import ApproximateIndex

        depth = min(depth, len(data.corpus))
        return ApproximateIndex(index, encoder, data, corpus_text).rank(query_rows, depth)

    def rank() -> Ranking:
        size = encoder.dimension
        return rank_by_size(encoder, data, query_rows, depth, [size], corpus_text)[size]

    def write(folder: Path) -> None:
        ranking = rank()
        if process_index() == 0:
            np.savez(folder / RANKING_FILE, doc_rows=ranking.doc_rows, scores=ranking.scores)

    if not encoder.use_cache:
        return rank()
    key = (data.fingerprint, corpus_text, str(depth), rows_digest(query_rows))
    with np.load(encoder.cached("rankings", *key, write=write) / RANKING_FILE) as arrays:
        return Ranking(arrays["doc_rows"], arrays["scores"])
