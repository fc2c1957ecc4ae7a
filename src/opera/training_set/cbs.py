"""CBS: the reciprocal rank of a pair's document among random documents (Appendix D.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.processes import everywhere, own_share
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import pair_similarities
from opera.training_set.document_pool import DocumentPool

CHUNK_CELLS = 8_000_000
ROUNDING = 1e-6  # cosines of float32 vectors that differ by less are equal


@dataclass(frozen=True)
class CBSRanks:
    """Rank of each pair's document among random documents (Appendix D.1).

    Attributes:
        rank: int32 ``[N]``, 1-based rank among the pool by similarity to the query.
        pool: int32 ``[N]``, size of the pool.
    """

    rank: NDArray[np.int32]
    pool: NDArray[np.int32]

    @property
    def cbs(self) -> NDArray[np.float32]:
        """CBS, the reciprocal rank: float32 ``[N]``."""
        return (1 / self.rank).astype(np.float32)

    @property
    def smallest_pool(self) -> int:
        """The fewest documents a pair was ranked among."""
        return int(self.pool.min())

    def small_pool_note(self, requested: int) -> str:
        """Report that a pool is smaller than requested; an empty string where none is."""
        if self.smallest_pool >= requested:
            return ""
        return (
            f"cbs_pool={requested}: there are fewer positives of other queries, so pairs are ranked among "
            f"{self.smallest_pool} to {int(self.pool.max())} documents"
        )


def rank_among_random(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    pool_size: int,
    seed: int,
    pool: DocumentPool,
) -> CBSRanks:
    """Rank each pair's document among ``pool_size`` random positives of *other* queries (Appendix D.1).

    The pool of a query is a uniform sample, without replacement, of the distinct documents that are positive for
    another query and not for this one; all of them where there are fewer. Pools of different queries overlap: each is
    the start of one random order of all positives, without the query's own. A document that ties with the pair's does
    not lower its rank.

    All processes call this. Each ranks the pairs of some queries, in whole chunks, so the bytes are those of one.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        document_embeddings: float32 ``[documents, dimension]``, unit vectors.
        pool_size: documents to rank among; the paper's 10,000.
        seed: seed of the sample.
        pool: the documents that have a text; no other is ranked among.
    """
    positives = np.unique(pairs.pair_doc)
    in_order = generator(seed, "score.consistency").permutation(positives[pool.holds(positives)])
    in_order = in_order[: pool_size + int(pairs.positives_per_query.max())]
    place = np.full(len(document_embeddings), -1, dtype=np.int64)
    place[in_order] = np.arange(len(in_order))
    candidates = np.array(document_embeddings[in_order])
    similarity = pair_similarities(pairs, query_embeddings, document_embeddings)
    rank, sizes = np.empty(pairs.n_pairs, dtype=np.int32), np.empty(pairs.n_pairs, dtype=np.int32)
    chunk = max(1, CHUNK_CELLS // max(1, len(in_order)))
    share = own_share(pairs.n_queries, chunk)

    def rank_own() -> list[NDArray[np.int32]]:
        for start in range(share.start, share.stop, chunk):
            stop = min(start + chunk, share.stop)
            seen = query_embeddings[start:stop] @ candidates.T
            for query in range(start, stop):
                own = slice(pairs.query_offsets[query], pairs.query_offsets[query + 1])
                own_places = place[pairs.pair_doc[own]]
                others = np.delete(seen[query - start], own_places[own_places >= 0])[:pool_size]
                others.sort()
                rank[own] = (
                    1
                    + len(others)
                    - np.searchsorted(others, similarity[own] + ROUNDING, side="right")
                )
                sizes[own] = len(others)
        first, last = pairs.query_offsets[[share.start, share.stop]]
        return [rank[first:last], sizes[first:last]]

    rank, sizes = (np.concatenate(parts) for parts in zip(*everywhere(rank_own), strict=True))
    return CBSRanks(rank, sizes)
