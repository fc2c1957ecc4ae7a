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
        pooled_auc: probability that a pair that is not noise is more similar than a random pair of
            query and document: the scoring quality of Theorem 1 for SP, which has one threshold for
            all queries.
        cosine: μ₁ᵀμ₂ of Theorem 1 for random noise: mean cosine of a query's mean positive and the
            mean document.
        pool: smallest number of random documents that a pair was ranked among.
    """

    auc: float
    noise: float | None
    noise_error: float
    pooled_auc: float
    cosine: float
    pool: int

    @property
    def true_share(self) -> float:
        """m⁺/m of Theorem 1 according to the estimate, between 0.001 and 0.999."""
        return float(np.clip(1 - (self.noise or 0.0), 0.001, 0.999))


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


def area_under_curve(positive: FloatArray, negative: FloatArray) -> float:
    """AUC: the probability that a value of ``positive`` exceeds one of ``negative``; ties count
    half.
    """
    ascending = np.sort(negative)
    below = np.searchsorted(ascending, positive) + np.searchsorted(
        ascending, positive, side="right"
    )
    return float(below.mean() / (2 * len(negative)))


def auc_without_noise(auc: float, noise: float) -> float:
    """AUC of the remaining positives if a share ``noise`` of all positives has an AUC of one
    half.
    """
    return 0.5 if noise >= 1 else float(np.clip((auc - noise / 2) / (1 - noise), 0.01, 0.99))


def estimate_quality(
    pairs: TrainingPairs,
    cbs_ranks: CBSRanks,
    labelled: FloatArray,
    random: FloatArray,
    document_embeddings: Vectors,
    pool: DocumentPool,
) -> Quality:
    """Estimate scoring quality and noise.

    Args:
        pairs: the training pairs.
        cbs_ranks: rank of each pair's document among random ones.
        labelled: float ``[N]``, similarities of the training pairs.
        random: float, similarities of random pairs.
        document_embeddings: float32 ``[documents, dimension]``, rows of length 1.
        pool: the documents that a random one can be.
    """
    noise, error = estimate_noise(cbs_ranks)
    known = cbs_ranks.smallest_pool >= MIN_POOL
    return Quality(
        auc=float(1 - ((cbs_ranks.rank - 1) / np.maximum(cbs_ranks.pool, 1)).mean()),
        noise=noise if known else None,
        noise_error=error,
        pooled_auc=auc_without_noise(area_under_curve(labelled, random), noise if known else 0.0),
        cosine=_cosine_of_means(pairs, document_embeddings, pool),
        pool=cbs_ranks.smallest_pool,
    )


def most_suspicious(
    relative_ranks: FloatArray, similarity: FloatArray, count: int
) -> NDArray[np.int64]:
    """Return the ids of the pairs with the worst relative rank, worst first; ties by lower
    similarity.
    """
    return np.lexsort((similarity, -relative_ranks))[:count]


def _cosine_of_means(
    pairs: TrainingPairs, document_embeddings: Vectors, pool: DocumentPool
) -> float:
    """Mean over queries of the cosine between the query's mean positive and the mean document of
    the pool.
    """
    total_document = -document_embeddings[pool.left_out].sum(axis=0, dtype=np.float64)
    for first in range(0, len(document_embeddings), CHUNK):
        total_document += document_embeddings[first : first + CHUNK].sum(axis=0, dtype=np.float64)
    middle = total_document / len(pool)
    total = 0.0
    for first in range(0, pairs.n_queries, CHUNK):
        offsets = pairs.query_offsets[first : first + CHUNK + 1]
        docs = np.asarray(
            document_embeddings[pairs.pair_doc[offsets[0] : offsets[-1]]], dtype=np.float64
        )
        sums = np.add.reduceat(docs, offsets[:-1] - offsets[0])
        total += float((sums @ middle / np.maximum(np.linalg.norm(sums, axis=1), 1e-12)).sum())
    return float(
        np.clip(total / pairs.n_queries / max(float(np.linalg.norm(middle)), 1e-12), -0.99, 0.99)
    )
