"""Scores of the training pairs under the base model: SP ranks by them, DP starts from them;
and CBS.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.processes import everywhere, own_share
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.encoder.embeddings import Vectors
from opera.methods import PairScores
from opera.retrieval.encoder import pair_similarities
from opera.training_set.documents import DocumentPool, KnownPositives

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


def rank_among_random(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    pool_size: int,
    seed: int,
    pool: DocumentPool,
) -> CBSRanks:
    """Rank each pair's document among ``pool_size`` random positives of *other* queries (Appendix
    D.1).

    The pool of a query is a uniform sample, without replacement, of the distinct documents that are
    positive for another query and not for this one; all of them where there are fewer. Pools of
    different queries overlap: each is the start of one random order of all positives, without the
    query's own. A document that ties with the pair's does not lower its rank.

    All processes call this. Each ranks the pairs of some queries, in whole chunks, so the bytes are
    those of one.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        document_embeddings: float32 ``[documents, dimension]``, unit vectors.
        pool_size: documents to rank among; the paper's 10,000.
        seed: seed of the sample.
        pool: the documents that have a text; no other is ranked among.
    """
    documents = pool.group[pairs.pair_doc]
    positives = np.unique(documents)
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
                pairs_of_query = slice(pairs.query_offsets[query], pairs.query_offsets[query + 1])
                own_places = place[documents[pairs_of_query]]
                others = np.delete(seen[query - start], own_places[own_places >= 0])[:pool_size]
                others.sort()
                rank[pairs_of_query] = (
                    1
                    + len(others)
                    - np.searchsorted(others, similarity[pairs_of_query] + ROUNDING, side="right")
                )
                sizes[pairs_of_query] = len(others)
        first, last = pairs.query_offsets[[share.start, share.stop]]
        return [rank[first:last], sizes[first:last]]

    rank, sizes = (np.concatenate(parts) for parts in zip(*everywhere(rank_own), strict=True))
    return CBSRanks(rank, sizes)


log = logging.getLogger("opera")

CHUNK_PAIRS = 8_192


def pretrained_losses(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    similarity: NDArray[np.float32],
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
) -> NDArray[np.float32]:
    """Cross-entropy of each pair against one random set of documents as large as a batch.

    It stands in for the contrastive loss until the pair is first drawn.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        document_embeddings: float32 ``[documents, dimension]``, unit vectors.
        similarity: float32 ``[N]``, of each pair.
        temperature: divides the similarities.
        set_size: how many documents to draw, without replacement.
        seed: seed of the draw.
        known: documents to leave out of a query's set; ``None`` leaves out only the pair's own.
        pool: the documents to draw from.

    Returns:
        float32 ``[N]``, in nats.
    """
    count = min(set_size, len(pool))
    rng = generator(seed, "score.random_set")
    rows = pool.rows(np.sort(rng.choice(len(pool), count, replace=False)))
    random_set = np.array(document_embeddings[rows])
    positives = None if known is None else known.among(rows)
    losses = np.empty(pairs.n_pairs, dtype=np.float32)
    for start in range(0, pairs.n_pairs, CHUNK_PAIRS):
        part = slice(start, start + CHUNK_PAIRS)
        query, logit = pairs.pair_query[part], similarity[part] / temperature
        logits = query_embeddings[query] @ random_set.T / temperature
        logits[pool.group[pairs.pair_doc[part]][:, None] == rows] = -np.inf
        if positives is not None:
            first, stop = int(query[0]), int(query[-1]) + 1
            of_part = slice(*np.searchsorted(positives[0], [first, stop]))
            positive = np.zeros((stop - first, count), dtype=bool)
            positive[positives[0][of_part] - first, positives[1][of_part]] = True
            logits[positive[query - first]] = -np.inf
        highest = np.maximum(logits.max(axis=1, initial=-np.inf), logit)
        total = np.exp(logits - highest[:, None]).sum(axis=1) + np.exp(logit - highest)
        losses[part] = np.log(total) + highest - logit
    return losses


def pretrained_scores(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
    cbs_pool: int = 0,
) -> tuple[PairScores, int | None]:
    """Compute what methods start from; arguments as for :func:`pretrained_losses`.

    ``cbs_pool`` is the number of random documents that each pair is ranked among for its CBS; 0
    leaves CBS out.

    Returns:
        Similarities, losses and CBS; and the smallest pool that a pair was ranked among, ``None``
        without CBS.
    """
    vectors = query_embeddings, document_embeddings
    similarity = pair_similarities(pairs, *vectors)
    losses = pretrained_losses(
        pairs, *vectors, similarity, temperature, set_size, seed, known, pool
    )
    if cbs_pool == 0:
        return PairScores(pairs, similarity, losses), None
    ranks = rank_among_random(pairs, *vectors, cbs_pool, seed, pool)
    if ranks.smallest_pool < cbs_pool:
        log.info(
            f"note: cbs_pool={cbs_pool}: there are fewer positives of other queries, so pairs are "
            f"ranked among "
            f"{ranks.smallest_pool} to {int(ranks.pool.max())} documents"
        )
    return PairScores(pairs, similarity, losses, ranks.cbs), ranks.smallest_pool
