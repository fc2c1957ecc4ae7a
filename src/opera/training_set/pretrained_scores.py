"""Scores of the training pairs under the pretrained model: SP ranks by them, DP starts from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.encoder.embeddings import Vectors
from opera.methods import PairScores
from opera.retrieval.encoder import Encoder, pair_similarities
from opera.retrieval.locate import run_scores_without_prompts
from opera.training_set.cbs import rank_among_random
from opera.training_set.document_pool import DocumentPool
from opera.training_set.known_positives import KnownPositives

log = logging.getLogger("opera")

CHUNK_PAIRS = 8_192


def pair_encoder(encoder: Encoder, model: str | Path, prompts: Mapping[str, str]) -> Encoder:
    """Return the encoder of a model's pair scores: that of a run whose prompts hold in search alone has none.

    Args:
        encoder: that of searches.
        model: what the user passed.
        prompts: those that the user gave, which hold everywhere.
    """
    return (
        encoder.without_prompts() if not prompts and run_scores_without_prompts(model) else encoder
    )


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
    """Cross-entropy of each pair against one random set of documents as large as a batch (paper.md, row 4).

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
    found = None if known is None else known.among(rows)
    losses = np.empty(pairs.n_pairs, dtype=np.float32)
    for start in range(0, pairs.n_pairs, CHUNK_PAIRS):
        part = slice(start, start + CHUNK_PAIRS)
        query, own = pairs.pair_query[part], similarity[part] / temperature
        logits = query_embeddings[query] @ random_set.T / temperature
        logits[pairs.pair_doc[part][:, None] == rows] = -np.inf
        if found is not None:
            logits[_places(query, *found)] = -np.inf
        highest = np.maximum(logits.max(axis=1, initial=-np.inf), own)
        total = np.exp(logits - highest[:, None]).sum(axis=1) + np.exp(own - highest)
        losses[part] = np.log(total) + highest - own
    return losses


def _places(
    query: NDArray[np.int32], known_query: NDArray[np.int64], known_column: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of each known positive in a chunk of pairs whose queries are ``query``, ascending."""
    part = slice(*np.searchsorted(known_query, [query[0], int(query[-1]) + 1]).tolist())
    first, stop = (
        np.searchsorted(query, known_query[part], side=side) for side in ("left", "right")
    )
    # A query's pairs stand together: its rows are first to stop, for each of its known positives.
    counts = stop - first
    before = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) + np.repeat(first - before, counts)
    return rows, np.repeat(known_column[part], counts)


def pretrained_scores(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
) -> PairScores:
    """Similarity and estimated loss of every pair; arguments as for :func:`pretrained_losses`."""
    similarity = pair_similarities(pairs, query_embeddings, document_embeddings)
    losses = pretrained_losses(
        pairs,
        query_embeddings,
        document_embeddings,
        similarity,
        temperature,
        set_size,
        seed,
        known,
        pool,
    )
    return PairScores(pairs, similarity, losses)


def scores_with_cbs(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
    pool: DocumentPool,
    cbs_pool: int,
) -> tuple[PairScores, int | None]:
    """Compute what methods start from; arguments as for :func:`pretrained_losses`.

    ``cbs_pool`` is the number of random documents that each pair is ranked among for its CBS; 0 leaves CBS out.

    Returns:
        Similarities, losses and CBS; and the smallest pool that a pair was ranked among, ``None`` without CBS.
    """
    scores = pretrained_scores(
        pairs, query_embeddings, document_embeddings, temperature, set_size, seed, known, pool
    )
    if cbs_pool == 0:
        return scores, None
    ranks = rank_among_random(pairs, query_embeddings, document_embeddings, cbs_pool, seed, pool)
    if note := ranks.small_pool_note(cbs_pool):
        log.info("note: %s", note)
    return scores.with_cbs(ranks.cbs), ranks.smallest_pool
