"""How well a model's similarity tells labelled pairs from random ones, and how many look no better than random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.methods import Pairs
from opera.methods.pairs import FloatArray
from opera.rng import generator
from opera.score import Consistency

RANDOM_PAIRS = 100_000
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
        noise: estimated share of pairs whose document could as well be random (:func:`random_share`).
        auc_of_rest: the chance of ``auc`` for the pairs that are not: the scoring quality of Theorem 1.
        cosine: μ₁ᵀμ₂ of Theorem 1 for random noise: mean cosine of a query's mean positive and the mean document.
        pool: random documents each pair was ranked among, at least.
    """

    auc: float
    noise: float
    auc_of_rest: float
    cosine: float
    pool: int


def similarities(
    pairs: Pairs,
    labelled: FloatArray,
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    seed: int,
) -> Similarities:
    """Compare the similarities ``[N]`` of the training pairs with those of random pairs.

    Args:
        pairs: the training pairs.
        labelled: float ``[N]``, their similarities.
        queries: float32 ``[n, dimension]``, unit vectors.
        corpus: float32 ``[documents, dimension]``, unit vectors.
        seed: of the random pairs.
    """
    rng = generator(seed, "inspect.random_pairs")
    query, doc = rng.integers(len(queries), size=RANDOM_PAIRS), np.sort(rng.integers(len(corpus), size=RANDOM_PAIRS))
    random = np.einsum("pd,pd->p", queries[query], corpus[doc])
    edges = np.linspace(min(labelled.min(), random.min()), max(labelled.max(), random.max()), BINS + 1)
    at = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
    return Similarities(
        labelled=tuple(np.quantile(labelled, at).tolist()),
        random=tuple(np.quantile(random, at).tolist()),
        edges=tuple(edges.tolist()),
        labelled_counts=tuple((np.histogram(labelled, edges)[0] / len(labelled)).tolist()),
        random_counts=tuple((np.histogram(random, edges)[0] / len(random)).tolist()),
    )


def chance_level(consistency: Consistency) -> NDArray[np.float64]:
    """Each pair's place among random documents, float64 ``[N]``: uniform on (0, 1] if its document were random too."""
    return consistency.rank / (consistency.pool + 1.0)


def random_share(place: FloatArray, above: float = 0.5) -> float:
    """Estimate which share of pairs have a document no closer to the query than a random one.

    Places of such pairs are uniform; those of good pairs are low. So the share with a place above ``above``, divided by
    (1 - ``above``), is an estimate that errs upwards (Storey, 2002, on the share of true null hypotheses).

    Args:
        place: float ``[N]``, from :func:`chance_level`.
        above: where to count.
    """
    return min(1.0, float((place > above).mean()) / (1 - above))


def quality_of(
    pairs: Pairs, consistency: Consistency, corpus: NDArray[np.float32], corpus_mean: NDArray[np.float64]
) -> Quality:
    """Estimate scoring quality and noise from the pairs' ranks among random documents."""
    place = chance_level(consistency)
    auc = float(1 - ((consistency.rank - 1) / np.maximum(consistency.pool, 1)).mean())
    noise = random_share(place)
    rest = (auc - noise / 2) / (1 - noise) if noise < 1 else 0.5
    sums = np.zeros((pairs.n_queries, corpus.shape[1]))
    np.add.at(sums, pairs.pair_query, corpus[pairs.pair_doc])
    lengths = np.linalg.norm(sums, axis=1) * np.linalg.norm(corpus_mean)
    cosine = float((sums @ corpus_mean / np.maximum(lengths, 1e-12)).mean())
    return Quality(
        auc, noise, float(np.clip(rest, 0.01, 0.99)), float(np.clip(cosine, -0.99, 0.99)), consistency.smallest_pool
    )


def most_suspicious(place: FloatArray, similarity: FloatArray, count: int) -> NDArray[np.int64]:
    """Return the pairs whose document most random documents beat, the worst first; of equals, the least similar."""
    return np.lexsort((similarity, -place))[:count]
