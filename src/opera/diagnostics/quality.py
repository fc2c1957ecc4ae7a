"""Label and scoring quality: how well a model separates labelled pairs from random pairs, and the
noise rate that follows.
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
"""The noise estimate needs so many random documents in a ranking."""
BINS = 32


@dataclass(frozen=True)
class Similarities:
    """Distribution of similarity over labelled pairs and over random pairs.

    Attributes:
        labelled: quantiles over the training pairs: minimum, 5%, 25%, median, 75%, 95%, maximum.
        random: the same quantiles over random pairs of query and document.
        edges: bin edges of the histograms.
        labelled_counts: fraction of the training pairs in each bin.
        random_counts: fraction of the random pairs in each bin.
    """

    labelled: tuple[float, ...]
    random: tuple[float, ...]
    edges: tuple[float, ...]
    labelled_counts: tuple[float, ...]
    random_counts: tuple[float, ...]


@dataclass(frozen=True)
class Quality:
    """Quality of labels and scores, estimated from ranks of labelled among random documents.

    Attributes:
        auc: probability that a labelled document is more similar to its query than a random
            document.
        noise: estimated fraction of pairs whose document scores no better than a random document
            (:func:`estimate_noise`); ``None`` if the ranking has too few documents.
        noise_error: standard error of ``noise``, if pairs are independent.
        pool: smallest number of random documents in a ranking.
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
    """Compute similarities of random documents and queries of random pairs: float32 ``[100000]``.

    Args:
        pairs: the training pairs.
        query_embeddings: float32 ``[n, dimension]``, unit vectors.
        document_embeddings: float32 ``[documents, dimension]``, unit vectors.
        seed: seed of the samples.
        pool: the documents to sample from.
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
    """The rank of each pair divided by the number of ranks in its pool: float64 ``[N]`` in (0, 1].

    It is uniform if the document of the pair is random.
    """
    return cbs_ranks.rank / (cbs_ranks.pool + 1.0)


def estimate_noise(cbs_ranks: CBSRanks) -> tuple[float, float]:
    """Estimate the fraction of pairs whose document is no closer to the query than a random one.

    The rank of such a pair is uniform. The rank of a correct pair is in the better half. So the
    noise is the fraction of pairs in the worse half, divided by the fraction of uniform ranks
    there. The estimate is conservative: it tends to be too high (Storey 2002).

    Returns:
        The noise, and its standard error if pairs are independent.
    """
    in_worse_half = relative_rank(cbs_ranks) > 0.5
    n_ranks = cbs_ranks.pool + 1
    expected = float(((n_ranks - n_ranks // 2) / n_ranks).mean())
    fraction = float(in_worse_half.mean())
    error = math.sqrt(fraction * (1 - fraction) / len(in_worse_half)) / expected
    return min(1.0, fraction / expected), error


def estimate_quality(cbs_ranks: CBSRanks) -> Quality:
    """Estimate scoring quality and noise from the ranks of the pairs' documents."""
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
    """Return the ids of the pairs with the worst relative ranks, worst first.

    The pair with the lower similarity comes first in a tie.
    """
    return np.lexsort((similarity, -relative_ranks))[:count]
