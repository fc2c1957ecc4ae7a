"""The base model's scores of the training pairs, and CBS. SP ranks by them; DP starts from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import distinct_numbers, slices
from opera.core.processes import everywhere, process_range
from opera.core.rng import generator
from opera.core.terminal import log
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.retrieval.encoder import pair_similarities
from opera.retrieval.passages import DocumentVectors
from opera.retrieval.vectors import Vectors
from opera.training.documents import DocumentPool, KnownPositives

CHUNK_CELLS = 8_000_000
ROUNDING = 1e-6  # float32 cosines with a smaller difference are equal


@dataclass(frozen=True)
class CBSRanks:
    """The rank of each pair's document among random documents (Appendix D.1).

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
        """The size of the smallest pool."""
        return int(self.pool.min())


def rank_among_random(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    documents: DocumentVectors,
    pool_size: int,
    seed: int,
    pool: DocumentPool,
) -> CBSRanks:
    """Rank each pair's document among positives of *other* queries (Appendix D.1).

    The pool of a query is a uniform sample, without replacement, of the distinct documents that are
    positive for other queries only. It has ``pool_size`` documents, or all if there are fewer.
    Pools of different queries overlap: a pool is the start of one random order of all positives,
    without the query's positives. Ties do not worsen the rank of the pair's document.

    All processes call this. A process ranks the pairs of some queries, in full chunks, so the
    result does not depend on the number of processes.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        documents: unit vectors.
        pool_size: number of documents in a pool; 10,000 in the paper.
        seed: seed of the sample.
        pool: the documents with a text. Other documents are never in a pool.
    """
    document_groups = pool.group[pairs.pair_doc]
    positives = distinct_numbers(document_groups)
    in_order = generator(seed, "score.consistency").permutation(positives[pool.holds(positives)])
    in_order = in_order[: pool_size + int(pairs.positives_per_query.max())]
    position_of = np.full(len(documents), -1, dtype=np.int64)
    position_of[in_order] = np.arange(len(in_order))
    candidates = documents.select(in_order)
    similarity = pair_similarities(pairs, query_embeddings, documents)
    rank, sizes = np.empty(pairs.n_pairs, dtype=np.int32), np.empty(pairs.n_pairs, dtype=np.int32)
    chunk = max(1, CHUNK_CELLS // max(1, len(in_order)))
    query_indices = process_range(pairs.n_queries, chunk)

    def rank_pairs() -> list[NDArray[np.int32]]:
        for start in range(query_indices.start, query_indices.stop, chunk):
            stop = min(start + chunk, query_indices.stop)
            cosines = candidates.similarities(query_embeddings[start:stop])
            for query_index in range(start, stop):
                pairs_of_query = slice(*pairs.query_offsets[query_index : query_index + 2])
                positions = position_of[document_groups[pairs_of_query]]
                pool_cosines = np.delete(cosines[query_index - start], positions[positions >= 0])
                pool_cosines = np.sort(pool_cosines[:pool_size])
                threshold = similarity[pairs_of_query] + ROUNDING
                not_above = np.searchsorted(pool_cosines, threshold, side="right")
                rank[pairs_of_query] = 1 + len(pool_cosines) - not_above
                sizes[pairs_of_query] = len(pool_cosines)
        first_pair, end_pair = pairs.query_offsets[[query_indices.start, query_indices.stop]]
        return [rank[first_pair:end_pair], sizes[first_pair:end_pair]]

    rank, sizes = (np.concatenate(parts) for parts in zip(*everywhere(rank_pairs), strict=True))
    return CBSRanks(rank, sizes)


CHUNK_PAIRS = 8_192


def pretrained_losses(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    documents: DocumentVectors,
    similarity: NDArray[np.float32],
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
) -> NDArray[np.float32]:
    """Compute the cross-entropy of each pair against one random set of documents.

    The set is as large as a batch. The values replace the contrastive loss of a pair until it is
    first sampled.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        documents: unit vectors.
        similarity: float32 ``[N]``, the similarities of the pairs.
        temperature: divides the similarities.
        set_size: the number of documents to sample, without replacement.
        seed: seed of the sample.
        known: documents to leave out of a query's set; ``None`` leaves out only the pair's
            document.
        pool: the documents to sample from.

    Returns:
        float32 ``[N]``, in nats.
    """
    count = min(set_size, len(pool))
    rng = generator(seed, "score.random_set")
    doc_rows = pool.doc_rows(np.sort(rng.choice(len(pool), count, replace=False)))
    random_set = documents.select(doc_rows)
    losses = np.empty(pairs.n_pairs, dtype=np.float32)
    for block in slices(pairs.n_pairs, CHUNK_PAIRS):
        query_indices, logit = pairs.pair_query[block], similarity[block] / temperature
        logits = random_set.similarities(query_embeddings[query_indices]) / temperature
        logits[pool.group[pairs.pair_doc[block]][:, None] == doc_rows] = -np.inf
        if known is not None:
            first_index = int(query_indices[0])  # pairs are sorted by query
            distinct = np.arange(first_index, int(query_indices[-1]) + 1)
            is_known = known.contains(distinct[:, None], doc_rows)
            logits[is_known[query_indices - first_index]] = -np.inf
        highest = np.maximum(logits.max(axis=1, initial=-np.inf), logit)
        total = np.exp(logits - highest[:, None]).sum(axis=1) + np.exp(logit - highest)
        losses[block] = np.log(total) + highest - logit
    return losses


def pretrained_scores(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    documents: DocumentVectors,
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
    cbs_pool: int = 0,
) -> PairScores:
    """Compute the initial scores of methods; the arguments are those of :func:`pretrained_losses`.

    ``cbs_pool`` is the number of random documents in the ranking for CBS; 0 disables CBS.
    """
    vectors = query_embeddings, documents
    similarity = pair_similarities(pairs, *vectors)
    losses = pretrained_losses(
        pairs, *vectors, similarity, temperature, set_size, seed, known, pool
    )
    scores = PairScores(pairs, similarity, losses)
    if cbs_pool > 0:
        ranks = rank_among_random(pairs, *vectors, cbs_pool, seed, pool)
        scores.cbs, scores.smallest_pool = ranks.cbs, ranks.smallest_pool
        if ranks.smallest_pool < cbs_pool:
            log.info(
                f"note: cbs_pool={cbs_pool}: other queries have too few positives, so CBS ranks "
                f"pairs among {ranks.smallest_pool} to {int(ranks.pool.max())} documents"
            )
    return scores
