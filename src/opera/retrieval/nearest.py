"""Exact nearest neighbours by dot product, tile by tile of the corpus, ties broken by document id.

Scores are summed in float64 and rounded to float32, pair by pair. So they are the same whatever the tiles, threads,
processes and the device, which only decide how fast the pairs are found that need a score.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.data import TextTable
from opera.encoder.embeddings import Vectors
from opera.retrieval._top_kernels import keep_best, offer_pairs, scan, scores_and_ranks
from opera.retrieval.measures import Ranking
from opera.retrieval.products import STORED_ERROR, bits_of, device_factors, factors, in_bf16, own_threads

MEMORY = 2**28
"""Bytes that a search may take by default, besides the queries, the results and what reads the corpus."""
UNIT = 4096
"""Rows of a tile that is one process's own."""
QUERY_BLOCK, DOCUMENT_BLOCK = 256, 2048
"""Queries and documents of one product on the CPU: 2 MB of scores, which stay in a core's cache."""
DEVICE_BLOCK = 1024, 65_536
"""The same on a GPU."""
LEAST_SPARE = 32
"""Places for candidates beyond the best ``depth`` of a query, at least."""

Best = NDArray[np.uint64]
"""Keys of the best documents, best first: ``[queries, depth]``; see :mod:`opera.retrieval._top_kernels`."""


class NearestDocuments:
    """The best documents of each query among those seen so far.

    Equal scores are ordered by descending document id, as in trec_eval. Nothing but candidates is kept: 16 bytes per
    query and rank.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
    """

    def __init__(
        self, query_embeddings: NDArray[np.float32], documents: TextTable, depth: int, device: str = "cpu"
    ) -> None:
        self.depth, self.device, self._id_rank = min(depth, len(documents)), device, documents.id_rank
        self._queries = np.array(query_embeddings, dtype=np.float32, order="C")
        n = len(self._queries)
        self._bf16 = device == "cpu" and in_bf16(n)
        self._keys = np.zeros((n, capacity(self.depth)), dtype=np.uint64)
        self._counts, self._lowest = np.zeros(n, np.int64), np.full(n, -np.inf, np.float32)
        queries = self._queries
        self._factors = factors(queries, self._bf16) if device == "cpu" else device_factors(queries, device)

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Look through a tile of the corpus: float32 ``[documents, dimension]``, from row ``first`` on."""
        if not len(tile) or not len(self._queries) or not self.depth:
            return
        tile = np.require(tile, np.float32, ["C", "W"])
        id_rank = self._id_rank[first : first + len(tile)]
        if self.device != "cpu":
            self._add_on_device(tile, id_rank)
        else:
            self._add_on_cpu(tile, id_rank)

    def add_of_other_processes(self) -> None:
        """Take in what the other processes have found in their tiles; all call this together."""
        for part in self._blocks(QUERY_BLOCK * 16):
            found = everywhere(partial(self._best, part))
            if len(found) > 1:
                merged = np.concatenate(found, axis=1)
                merged.sort(axis=1)
                kept = merged[:, ::-1][:, : self.depth]
                self._keys[part, : self.depth] = kept
                self._counts[part] = np.count_nonzero(kept, axis=1)

    def ranking(self) -> Ranking:
        """What was found: ``n`` rows and as many columns as ``depth``, or documents seen if they are fewer."""
        depth = min(self.depth, int(self._counts.max(initial=0))) if len(self._counts) else self.depth
        scores, ranks = np.empty((len(self._keys), depth), np.float32), np.empty((len(self._keys), depth), np.int32)
        for part in self._blocks(QUERY_BLOCK * 16):
            scores_and_ranks(self._best(part)[:, :depth], scores[part], ranks[part])
        row_of = np.empty(len(self._id_rank), dtype=np.int32)
        row_of[self._id_rank] = np.arange(len(row_of), dtype=np.int32)
        return Ranking(row_of[ranks], scores)

    def _best(self, part: slice) -> Best:
        """The best keys of some queries, best first, 0 where there are fewer documents: ``[queries, depth]``."""
        keys, counts = self._keys[part], self._counts[part]
        for row, count in zip(keys, counts.tolist(), strict=True):
            if count > self.depth:
                keep_best(row, count, self.depth)
            row[min(count, self.depth) :] = 0
        counts[:] = np.minimum(counts, self.depth)
        return np.ascontiguousarray(np.sort(keys[:, : self.depth], axis=1)[:, ::-1])

    def _add_on_cpu(self, tile: NDArray[np.float32], id_rank: NDArray[np.int32]) -> None:
        with own_threads() as run:
            documents = factors(tile, self._bf16, run)
            slack, queries = self._factors.slack(documents), self._factors.rows
            relative = np.float32(STORED_ERROR[documents.rows.dtype])

            def look(part: slice) -> None:
                wide = min(DOCUMENT_BLOCK, len(tile))
                room = torch.empty((part.stop - part.start) * wide, dtype=documents.rows.dtype)
                for start in range(0, len(tile), wide):
                    block = documents.rows[start : start + wide]
                    products = room[: (part.stop - part.start) * len(block)].view(-1, len(block))
                    torch.mm(queries[part], block.T, out=products)
                    bits, shift = bits_of(products)
                    place = slice(start, start + wide)
                    scan(bits, shift, slack[part], relative, *self._state(part, tile[place], id_rank[place]))

            threads = torch.get_num_threads()
            for _ in run(look, self._blocks(min(QUERY_BLOCK, -(-len(queries) // threads)))):
                pass

    def _add_on_device(self, tile: NDArray[np.float32], id_rank: NDArray[np.int32]) -> None:
        n_queries, n_docs = DEVICE_BLOCK
        relative = STORED_ERROR[torch.float32]
        for start in range(0, len(tile), n_docs):
            place = slice(start, start + n_docs)
            documents = device_factors(tile[place], self.device)
            slack = self._factors.slack(documents)
            for part in self._blocks(n_queries):
                products = self._factors.rows[part] @ documents.rows.T
                # A document may be among the best if its product reaches the lowest score kept, or the depth-th best
                # product of this block, but for what products may be off.
                off = torch.from_numpy(slack[part]).to(self.device)
                bound = torch.from_numpy(self._lowest[part]).to(self.device) - off
                if products.shape[1] > self.depth:
                    least = torch.topk(products, self.depth, dim=1, sorted=False).values.amin(dim=1)
                    bound = torch.maximum(bound, least - 2 * off)
                bound = bound - bound.abs().nan_to_num(posinf=0.0) * (2 * relative)
                pairs = torch.nonzero(products >= bound[:, None]).to("cpu", torch.int32).numpy()
                found = np.ascontiguousarray(pairs.T)
                offer_pairs(found[0], found[1], *self._state(part, tile[place], id_rank[place]))

    def _state(self, part: slice, tile: NDArray[np.float32], id_rank: NDArray[np.int32]) -> tuple[object, ...]:
        """What the kernels read and write, in their order."""
        kept = (self._keys[part], self._counts[part], self._lowest[part], self.depth)
        return self._queries[part], tile, id_rank, *kept

    def _blocks(self, size: int) -> list[slice]:
        n = len(self._queries)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def capacity(depth: int) -> int:
    """Places for candidates of a query: when they are full, the best ``depth`` stay."""
    return depth + max(depth, LEAST_SPARE)


def tile_rows(dimension: int, memory: int) -> int:
    """Rows of a tile that take a quarter of the memory in float32 and bf16: whole units, at most 16."""
    return UNIT * min(16, max(1, memory // 4 // (6 * dimension * UNIT)))


def query_parts(count: int, dimension: int, depth: int, memory: int) -> list[slice]:
    """Cut queries into parts of which each fits into half of the memory; the corpus is read once for each."""
    each = 8 * capacity(depth) + 4 * depth + 6 * dimension + 64
    size = max(1, memory // 2 // each)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)] or [slice(0, 0)]


def own_tiles(documents: int, size: int = UNIT) -> range:
    """Where the tiles of a corpus start that this process looks through; the range stops where the last one ends."""
    share = own_share(documents, UNIT)
    return range(share.start, share.stop, size)


def tile_of(document_embeddings: Vectors, first: int, starts: range) -> NDArray[np.float32]:
    """Copy the tile that starts at a row, so that pages of a memory-mapped file need not stay in memory."""
    return np.array(document_embeddings[first : min(first + starts.step, starts.stop)], dtype=np.float32)


def exact_search(
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    documents: TextTable,
    depth: int,
    device: str = "cpu",
    memory: int = MEMORY,
) -> Ranking:
    """Rank all documents for each query by dot product and keep the best; see :class:`NearestDocuments`.

    Args:
        query_embeddings: float32 ``[n, dimension]``.
        document_embeddings: float32 ``[documents, dimension]``; read in tiles, so it may be memory-mapped.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
        memory: bytes to take at most, besides queries, corpus and ranking. Many queries are searched in parts.

    Returns:
        A ranking of ``n`` rows and ``min(depth, documents)`` columns.
    """
    count, dimension = query_embeddings.shape
    depth = min(depth, len(documents))
    starts = range(0, len(document_embeddings), tile_rows(dimension, memory))

    whole = empty_ranking(count, depth)
    for part in query_parts(count, dimension, depth, memory):
        nearest = NearestDocuments(query_embeddings[part], documents, depth, device)
        for first in with_bar(starts, count * len(documents)):
            nearest.add(first, tile_of(document_embeddings, first, starts))
        fill(whole, part, nearest.ranking())
    return whole


def empty_ranking(count: int, depth: int) -> Ranking:
    """A ranking to be filled part by part: ``[count, depth]``."""
    return Ranking(np.empty((count, depth), np.int32), np.empty((count, depth), np.float32))


def fill(whole: Ranking, part: slice, found: Ranking) -> None:
    """Write the ranking of a part of the queries into that of all."""
    whole.doc_rows[part], whole.scores[part] = found.doc_rows, found.scores


def with_bar(starts: range, products: int) -> Iterable[int]:
    """Show the progress of a search, unless it takes a few seconds only."""
    return counted(starts, "searching", len(starts), "parts", hidden=products < 2e9 or process_index() > 0)
