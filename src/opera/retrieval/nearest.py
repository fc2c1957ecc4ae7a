"""Exact nearest neighbours by dot product, tile by tile of the corpus, ties broken by document id."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from opera.core.processes import everywhere, own_share, process_index
from opera.core.progress import counted
from opera.data import TextTable
from opera.retrieval.measures import Ranking

QUERY_CHUNK = 2048
CORPUS_CHUNK = 65_536
"""Rows of a tile of the corpus. Tiles start at multiples of it, so that every product is the same however many
processes share them."""

Best = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Rows of the best documents and their scores, best first: both ``[queries, depth]``."""


class NearestDocuments:
    """The best documents of each query among those seen so far.

    Equal scores are ordered by descending document id, as in trec_eval. Nothing but the best documents is kept.

    Args:
        query_embeddings: float32 ``[n, dimension]``, rows of length 1.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.
    """

    def __init__(
        self, query_embeddings: NDArray[np.float32], documents: TextTable, depth: int, device: str = "cpu"
    ) -> None:
        self.query_embeddings, self.depth, self.device = query_embeddings, depth, device
        self._tie_key = -documents.id_rank.astype(np.int64)
        self._starts = range(0, len(query_embeddings), QUERY_CHUNK)
        sizes = [min(QUERY_CHUNK, len(query_embeddings) - start) for start in self._starts]
        self._best: list[Best] = [(np.empty((size, 0), np.int32), np.empty((size, 0), np.float32)) for size in sizes]

    def add(self, first: int, tile: NDArray[np.float32]) -> None:
        """Look through a tile of the corpus: float32 ``[documents, dimension]``, from row ``first`` on."""
        chunk = torch.from_numpy(np.array(tile)).to(self.device)
        depth = min(self.depth, len(chunk))
        for at, start in enumerate(self._starts):
            block = torch.from_numpy(np.array(self.query_embeddings[start : start + QUERY_CHUNK])).to(self.device)
            docs, scores = _best_of_chunk(block @ chunk.T, depth, self._tie_key[first:])
            self._best[at] = self._merged([self._best[at], ((docs + first).astype(np.int32), scores)])

    def add_of_other_processes(self) -> None:
        """Take in what the other processes have found in their tiles; all call this together."""
        for at in range(len(self._best)):
            found = everywhere(partial(self._best.__getitem__, at))
            self._best[at] = self._merged(found)

    def ranking(self) -> Ranking:
        """What was found: ``n`` rows and as many columns as ``depth``, or documents seen if they are fewer."""
        docs, scores = zip(*self._best, strict=True)
        return Ranking(np.concatenate(docs), np.concatenate(scores))

    def _merged(self, found: list[Best]) -> Best:
        """Keep the best of some lists."""
        if len(found) == 1:
            return found[0]
        docs, scores = (np.concatenate(lists, axis=1) for lists in zip(*found, strict=True))
        order = np.lexsort((self._tie_key[docs], -scores), axis=-1)[:, : self.depth]
        return np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)


def own_tiles(documents: int) -> range:
    """Where the tiles of a corpus start that this process looks through; the range stops where the last one ends."""
    share = own_share(documents, CORPUS_CHUNK)
    return range(share.start, share.stop, CORPUS_CHUNK)


def exact_search(
    query_embeddings: NDArray[np.float32],
    document_embeddings: NDArray[np.float32],
    documents: TextTable,
    depth: int,
    device: str = "cpu",
) -> Ranking:
    """Rank all documents for each query by dot product and keep the best; see :class:`NearestDocuments`.

    Args:
        query_embeddings: float32 ``[n, dimension]``, rows of length 1.
        document_embeddings: float32 ``[documents, dimension]``, rows of length 1; read once, in tiles, so it may be
            memory-mapped.
        documents: the corpus, for its ids.
        depth: how many documents to keep per query.
        device: where to multiply.

    Returns:
        A ranking of ``n`` rows and ``min(depth, documents)`` columns.
    """
    nearest = NearestDocuments(query_embeddings, documents, depth, device)
    starts = range(0, len(document_embeddings), CORPUS_CHUNK)
    for first in with_bar(starts, len(query_embeddings) * len(document_embeddings)):
        nearest.add(first, document_embeddings[first : first + CORPUS_CHUNK])
    return nearest.ranking()


def with_bar(starts: range, products: int) -> Iterable[int]:
    """Show the progress of a search, unless it takes a few seconds only."""
    return counted(starts, "searching", len(starts), "parts", hidden=products < 2e9 or process_index() > 0)


def _best_of_chunk(
    scores: torch.Tensor, depth: int, tie_key: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the best documents of one chunk and their scores, both ``[n, depth]``, ties broken by ``tie_key``."""
    values, indices = (part.cpu().numpy() for part in torch.topk(scores, depth))
    docs, best = indices.astype(np.int64), values.astype(np.float32)
    # topk breaks ties arbitrarily: redo the rows where more documents reach the lowest score than were kept.
    lowest = torch.from_numpy(best[:, -1:]).to(scores.device)
    for row in torch.nonzero((scores >= lowest).sum(dim=1) > depth).flatten().tolist():
        row_scores = scores[row].cpu().numpy()
        candidates = np.flatnonzero(row_scores >= best[row, -1])
        kept = candidates[np.lexsort((tie_key[candidates], -row_scores[candidates]))[:depth]]
        docs[row], best[row] = kept, row_scores[kept]
    return docs, best
