"""Small worlds that the tests of methods share: pairs, scores, and every method in every variant."""

import numpy as np

from opera.core.arrays import FloatArray
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Method, PairScores, Plan
from opera.methods.draws import NOTHING, TopK, bucket_of

VARIANTS = [
    ("ft", {}),
    ("rp", {"k": 0.5}),
    ("rp", {"k": 0.5, "query_weighting": "uniform"}),
    ("sp", {"k": 0.5}),
    ("sp", {"k": 0.3, "query_weighting": "uniform"}),
    ("dp", {}),
    ("dp", {"update_interval": 10}),
    ("dp", {"update_interval": "epoch"}),
    ("dp", {"query_score": "similarity", "threshold": "per_query"}),
    ("dp", {"query_score": "loss", "levels": "query"}),
    ("dp", {"levels": "document"}),
    ("dp", {"soft": False}),
    ("dp", {"alpha_start": 5, "alpha_end": 2, "beta_start": 1, "beta_end": 8}),
    ("dp", {"alpha_start": 1, "alpha_end": 1}),
    ("sp+cbs", {"k": 0.4}),
    ("sp+cbs", {"k": 0.4, "query_weighting": "uniform"}),
    ("infobatch", {}),
    ("infobatch", {"rho": 0.5, "delta": 0.3}),
    ("sp+dp", {"k": 0.5}),
    ("sp+dp", {"k": 0.6, "score": "cbs", "levels": "query", "update_interval": "epoch"}),
    ("sp+dp", {"k": 0.7, "levels": "document", "threshold": "per_query", "query_score": "similarity"}),
    ("denoise", {}),
]
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in values.items())}" for name, values in VARIANTS]


def make_pairs(counts: list[int], n_docs: int = 1000) -> TrainingPairs:
    rng = np.random.default_rng(sum(counts))
    docs = np.concatenate([rng.choice(n_docs, c, replace=False) for c in counts])
    return TrainingPairs.from_arrays(np.repeat(np.arange(len(counts)), counts), docs)


def make_scores(pairs: TrainingPairs, seed: int = 0) -> PairScores:
    rng = np.random.default_rng(seed)
    similarity, loss = rng.uniform(-1, 1, pairs.n_pairs), rng.exponential(2.0, pairs.n_pairs)
    return PairScores(pairs, similarity, loss, 1 / rng.integers(1, 5, pairs.n_pairs))


def make(
    name: str, values: dict[str, object], pairs: TrainingPairs, batch: int = 8, steps: int = 50, seed: int = 0
) -> Method:
    method = METHODS[name]
    parsed = method.settings_class.parse(values)
    method.check(parsed, pairs.n_queries, pairs.n_pairs)
    return method(pairs, Plan(seed, steps, batch), parsed, make_scores(pairs))


def top_k_of(scores: FloatArray, count: int) -> TopK:
    """What :class:`Counts` finds, by sorting the scores ``[n]``."""
    if count <= 0:
        return NOTHING
    buckets = np.sort(bucket_of(scores))
    bucket = int(buckets[len(buckets) - count])
    return TopK(count, bucket, int((buckets > bucket).sum()), int((buckets == bucket).sum()))


def mixed_pairs() -> TrainingPairs:
    """Queries with one to twelve documents."""
    return make_pairs([1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 9, 3, 3, 3, 12])
