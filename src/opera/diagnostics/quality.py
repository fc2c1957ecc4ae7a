"""Label and scoring quality: how well a model separates labelled pairs from random ones, and the
noise that implies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.encoder.embeddings import Vectors
from opera.training_set.documents import DocumentPool
from opera.training_set.pretrained_scores import CBSRanks

RANDOM_PAIRS = 100_000
CHUNK = 10_000
MIN_POOL = 20
"""With fewer random documents to rank among, noise is not estimated."""
BINS = 32


@dataclass(frozen=True)
class Similarities:
    """Distribution of similarity over labelled and over random pairs.

    Attributes:
        labelled: quantiles over the training pairs: minimum, 5%, 25%, median, 75%, 95%, maximum.
        random: the same over random pairs of query and document.
        edges: bin edges of the histograms.
        labelled_counts: share of the training pairs in each bin.
        random_counts: share of the random pairs in each bin.
    """

    labelled: tuple[float, ...]
    random: tuple[float, ...]
    edges: tuple[float, ...]
    labelled_counts: tuple[float, ...]
    random_counts: tuple[float, ...]


@dataclass(frozen=True)
class Quality:
    """Quality of labels and scores, estimated from the ranks of labelled documents among random
    ones.

    Attributes:
        auc: probability that a labelled document is more similar to its query than a random one.
        noise: estimated share of pairs whose document scores no better than a random one
            (:func:`estimate_noise`); ``None`` if there are too few documents to rank among.
        noise_error: standard error of ``noise``, with pairs taken as independent.
        pool: smallest number of random documents that a pair was ranked among.
    """

    auc: float
    noise: float | None
    noise_error: float
    pool: int


def random_similarities(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    document_embeddings: Vectors,
    seed: int,
    pool: DocumentPool,
) -> NDArray[np.float32]:
    """Compute the similarity of 100,000 random documents to the queries of random pairs: float32
    ``[100000]``.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, rows of length 1.
        document_embeddings: float32 ``[documents, dimension]``, rows of length 1.
        seed: of the draws.
        pool: the documents to draw from.
    """
    rng = generator(seed, "inspect.random_pairs")
    query = pairs.pair_query[rng.integers(pairs.n_pairs, size=RANDOM_PAIRS)]
    doc = pool.rows(np.sort(rng.integers(len(pool), size=RANDOM_PAIRS)))
    chunks = (slice(start, start + CHUNK) for start in range(0, RANDOM_PAIRS, CHUNK))
    return np.concatenate(
        [
            np.einsum("pd,pd->p", query_embeddings[query[part]], document_embeddings[doc[part]])
            for part in chunks
        ]
    )


def summarize_similarities(labelled: FloatArray, random: FloatArray) -> Similarities:
    """Summarize the similarities of the training pairs, ``[N]``, and of random pairs."""
    edges = np.linspace(
        min(labelled.min(), random.min()), max(labelled.max(), random.max()) + 1e-6, BINS + 1
    )
    levels = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
    return Similarities(
        labelled=tuple(np.quantile(labelled, levels).tolist()),
        random=tuple(np.quantile(random, levels).tolist()),
        edges=tuple(edges.tolist()),
        labelled_counts=tuple((np.histogram(labelled, edges)[0] / len(labelled)).tolist()),
        random_counts=tuple((np.histogram(random, edges)[0] / len(random)).tolist()),
    )


def relative_rank(cbs_ranks: CBSRanks) -> NDArray[np.float64]:
    """Rank of each pair among its pool, divided by the number of ranks: float64 ``[N]`` in (0, 1].

    Uniform if the document of the pair is itself random.
    """
    return cbs_ranks.rank / (cbs_ranks.pool + 1.0)


def estimate_noise(cbs_ranks: CBSRanks) -> tuple[float, float]:
    """Estimate the share of pairs whose document is no closer to the query than a random one.

    The rank of such a pair is uniform; the rank of a good pair is low. So the share of pairs with a
    rank in the worse half, divided by the share that uniform ranks would have there, estimates the
    noise. It errs upwards (Storey, 2002, on the share of true null hypotheses).

    Returns:
        The share, and its standard error with pairs taken as independent.
    """
    in_worse_half = relative_rank(cbs_ranks) > 0.5
    n_ranks = cbs_ranks.pool + 1
    expected = float(((n_ranks - n_ranks // 2) / n_ranks).mean())
    share = float(in_worse_half.mean())
    error = math.sqrt(share * (1 - share) / len(in_worse_half)) / expected
    return min(1.0, share / expected), error


def estimate_quality(cbs_ranks: CBSRanks) -> Quality:
    """Estimate scoring quality and noise from the rank of each pair's document among random
    ones.
    """
    noise, error = estimate_noise(cbs_ranks)
    return Quality(
        auc=float(1 - ((cbs_ranks.rank - 1) / np.maximum(cbs_ranks.pool, 1)).mean()),
        noise=noise if cbs_ranks.smallest_pool >= MIN_POOL else None,
        noise_error=error,
        pool=cbs_ranks.smallest_pool,
    )


def most_suspicious(
    relative_ranks: FloatArray, similarity: FloatArray, count: int
) -> NDArray[np.int64]:
    """Return the ids of the pairs with the worst relative rank, worst first; ties by lower
    similarity.
    """
    return np.lexsort((similarity, -relative_ranks))[:count]
