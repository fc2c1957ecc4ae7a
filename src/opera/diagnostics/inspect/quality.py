"""How well a model's similarity tells labelled pairs from random ones, and how many look no better than random."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.training_set.cbs import CBSRanks

RANDOM_PAIRS = 100_000
CHUNK = 10_000
FEWEST = 20  # random documents to rank among, below which noise is not estimated
BINS = 32


@dataclass(frozen=True)
class Similarities:
    """Similarity of the labelled pairs beside that of random ones.

    Attributes:
        labelled: quantiles of the training pairs: lowest, 5%, 25%, median, 75%, 95%, highest.
        random: the same for random queries and documents.
        edges: bounds of the histograms' bins, one more than bins.
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
    """What the ranks of labelled documents among random ones say.

    Attributes:
        auc: chance that a labelled document is more similar to its query than a random one.
        noise: estimated share of pairs whose document could as well be random (:func:`random_share`); ``None`` where
            there are too few documents to rank among.
        noise_error: its standard error, pairs taken as independent.
        pooled_auc: chance that a pair that is not noise is more similar than a random query and document: the scoring
            quality of Theorem 1 for SP, whose cut is one for all queries.
        cosine: μ₁ᵀμ₂ of Theorem 1 for random noise: mean cosine of a query's mean positive and the mean document.
        pool: random documents each pair was ranked among, at least.
    """

    auc: float
    noise: float | None
    noise_error: float
    pooled_auc: float
    cosine: float
    pool: int

    @property
    def true_share(self) -> float:
        """m⁺/m of Theorem 1, if the estimate is right; never quite 0 or 1."""
        return float(np.clip(1 - (self.noise or 0.0), 0.001, 0.999))


def random_similarities(
    pairs: TrainingPairs, queries: NDArray[np.float32], corpus: NDArray[np.float32], seed: int
) -> NDArray[np.float32]:
    """Similarities of 100,000 random documents with the queries of random pairs: float32 ``[100000]``.

    Args:
        pairs: the training pairs.
        queries: float32 ``[n, dimension]``, unit vectors.
        corpus: float32 ``[documents, dimension]``, unit vectors.
        seed: of the draws.
    """
    rng = generator(seed, "inspect.random_pairs")
    query = pairs.pair_query[rng.integers(pairs.n_pairs, size=RANDOM_PAIRS)]
    doc = np.sort(rng.integers(len(corpus), size=RANDOM_PAIRS))
    return np.concatenate(
        [
            np.einsum("pd,pd->p", queries[query[at : at + CHUNK]], corpus[doc[at : at + CHUNK]])
            for at in range(0, RANDOM_PAIRS, CHUNK)
        ]
    )


def similarities(labelled: FloatArray, random: FloatArray) -> Similarities:
    """Compare the similarities ``[N]`` of the training pairs with those of random pairs."""
    edges = np.linspace(min(labelled.min(), random.min()), max(labelled.max(), random.max()) + 1e-6, BINS + 1)
    at = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
    return Similarities(
        labelled=tuple(np.quantile(labelled, at).tolist()),
        random=tuple(np.quantile(random, at).tolist()),
        edges=tuple(edges.tolist()),
        labelled_counts=tuple((np.histogram(labelled, edges)[0] / len(labelled)).tolist()),
        random_counts=tuple((np.histogram(random, edges)[0] / len(random)).tolist()),
    )


def chance_level(consistency: CBSRanks) -> NDArray[np.float64]:
    """Each pair's place among random documents, float64 ``[N]``: uniform on (0, 1] if its document were random too."""
    return consistency.rank / (consistency.pool + 1.0)


def random_share(consistency: CBSRanks) -> tuple[float, float]:
    """Estimate which share of pairs have a document no closer to the query than a random one, and its standard error.

    The rank of such a pair is uniform; that of a good pair is low. So the share of pairs in the lower half, over the
    share that uniform ranks would have there, is an estimate that errs upwards (Storey, 2002, on the share of true null
    hypotheses). The error takes pairs as independent.
    """
    below = chance_level(consistency) > 0.5
    ranks = consistency.pool + 1
    expected = float(((ranks - ranks // 2) / ranks).mean())
    share = float(below.mean())
    error = math.sqrt(share * (1 - share) / len(below)) / expected
    return min(1.0, share / expected), error


def auc_of(better: FloatArray, worse: FloatArray) -> float:
    """The chance that a number of ``better`` exceeds one of ``worse``; ties count half."""
    ascending = np.sort(worse)
    below = np.searchsorted(ascending, better) + np.searchsorted(ascending, better, side="right")
    return float(below.mean() / (2 * len(worse)))


def without_noise(auc: float, noise: float) -> float:
    """The AUC of what is left where a share of the better ones has an AUC of one half."""
    return 0.5 if noise >= 1 else float(np.clip((auc - noise / 2) / (1 - noise), 0.01, 0.99))


def quality_of(
    pairs: TrainingPairs, consistency: CBSRanks, labelled: FloatArray, random: FloatArray, corpus: NDArray[np.float32]
) -> Quality:
    """Estimate scoring quality and noise.

    Args:
        pairs: the training pairs.
        consistency: the ranks of their documents among random ones.
        labelled: float ``[N]``, their similarities.
        random: float, similarities of random pairs.
        corpus: float32 ``[documents, dimension]``, unit vectors.
    """
    noise, error = random_share(consistency)
    known = consistency.smallest_pool >= FEWEST
    return Quality(
        auc=float(1 - ((consistency.rank - 1) / np.maximum(consistency.pool, 1)).mean()),
        noise=noise if known else None,
        noise_error=error,
        pooled_auc=without_noise(auc_of(labelled, random), noise if known else 0.0),
        cosine=_cosine_of_means(pairs, corpus),
        pool=consistency.smallest_pool,
    )


def _cosine_of_means(pairs: TrainingPairs, corpus: NDArray[np.float32]) -> float:
    """Mean cosine, over queries, of the mean positive document with the mean document."""
    middle = np.mean(corpus, axis=0, dtype=np.float64)
    total = 0.0
    for first in range(0, pairs.n_queries, CHUNK):
        offsets = pairs.query_offsets[first : first + CHUNK + 1]
        docs = np.asarray(corpus[pairs.pair_doc[offsets[0] : offsets[-1]]], dtype=np.float64)
        sums = np.add.reduceat(docs, offsets[:-1] - offsets[0])
        total += float((sums @ middle / np.maximum(np.linalg.norm(sums, axis=1), 1e-12)).sum())
    return float(np.clip(total / pairs.n_queries / max(float(np.linalg.norm(middle)), 1e-12), -0.99, 0.99))


def most_suspicious(place: FloatArray, similarity: FloatArray, count: int) -> NDArray[np.int64]:
    """Return the pairs whose document most random documents beat, the worst first; of equals, the least similar."""
    return np.lexsort((similarity, -place))[:count]
