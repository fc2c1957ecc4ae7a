"""Scores of the training pairs under the pretrained model: what SP ranks by and DP starts from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from opera.retrieval.similarity import pair_similarities
from opera.training_set.known_positives import KnownPositives

CHUNK_PAIRS = 65_536


def pretrained_losses(
    pairs: TrainingPairs,
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    similarity: NDArray[np.float32],
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
) -> NDArray[np.float32]:
    """Cross-entropy of each pair against one random set of documents as large as a batch (paper.md, row 4).

    It stands in for the contrastive loss until the pair's first visit.

    Args:
        pairs: the training pairs.
        queries: float32 ``[n, dimension]``, unit vectors.
        corpus: float32 ``[documents, dimension]``, unit vectors.
        similarity: float32 ``[N]``, of each pair.
        temperature: divides the similarities.
        set_size: how many documents to draw, without replacement, from the corpus.
        seed: of the draw.
        known: documents to leave out of a query's set; ``None`` leaves out the pair's own alone.

    Returns:
        float32 ``[N]``, in nats.
    """
    count = min(set_size, len(corpus))
    rows = np.sort(generator(seed, "score.random_set").choice(len(corpus), count, replace=False))
    random_set = np.array(corpus[rows])
    losses = np.empty(pairs.n_pairs, dtype=np.float32)
    for start in range(0, pairs.n_pairs, CHUNK_PAIRS // 8):
        part = slice(start, start + CHUNK_PAIRS // 8)
        query, own = pairs.pair_query[part], similarity[part] / temperature
        logits = queries[query] @ random_set.T / temperature
        logits[pairs.pair_doc[part][:, None] == rows] = -np.inf
        if known is not None:
            logits[known.contains(query[:, None], rows)] = -np.inf
        highest = np.maximum(logits.max(axis=1, initial=-np.inf), own)
        total = np.exp(logits - highest[:, None]).sum(axis=1) + np.exp(own - highest)
        losses[part] = np.log(total) + highest - own
    return losses


def pretrained_scores(
    pairs: TrainingPairs,
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    temperature: float,
    set_size: int,
    seed: int,
    known: KnownPositives | None,
) -> PairScores:
    """Similarity and stand-in loss of every pair; arguments as for :func:`pretrained_losses`."""
    similarity = pair_similarities(pairs, queries, corpus)
    losses = pretrained_losses(pairs, queries, corpus, similarity, temperature, set_size, seed, known)
    return PairScores(pairs, similarity, losses)
