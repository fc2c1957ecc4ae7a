"""Noise and scoring quality, estimated on data with known labels."""

import numpy as np
import pytest

from distinct import pool_of
from opera.data.pairs import TrainingPairs
from opera.diagnostics.inspect import estimate_quality, relative_rank
from opera.labels.estimate import FirstVisits, estimate
from opera.retrieval.passages import DocumentVectors
from opera.training.pretrained_scores import CBSRanks, rank_among_random


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_share_of_random_documents_is_found(share):
    """Good documents lie near their query, false ones anywhere: the estimate finds how many are false."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(300, 32))
    docs = np.repeat(queries, 10, axis=0) + 1.2 * rng.normal(size=(3000, 32))
    false = rng.random(3000) < share
    docs[false] = rng.normal(size=(false.sum(), 32))
    queries, docs = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, docs))
    pairs, pool = TrainingPairs.from_arrays(np.repeat(np.arange(300), 10), np.arange(3000)), pool_of(3000)
    cbs_ranks = rank_among_random(
        pairs, queries.astype(np.float32), DocumentVectors(docs.astype(np.float32)), 10_000, 0, pool
    )
    quality = estimate_quality(cbs_ranks, pairs.pair_query)
    assert quality.noise == pytest.approx(share, abs=0.04)
    assert quality.low <= quality.noise <= quality.high < quality.low + 0.12
    worst = np.argsort(-relative_rank(cbs_ranks))[:50]
    assert share == 0 or false[worst].all()


@pytest.mark.parametrize("pool", [20, 21, 10_000])
def test_all_random_is_all_noise_whatever_the_pool(pool):
    ranks = np.random.default_rng(0).integers(1, pool + 2, 20_000).astype(np.int32)
    quality = estimate_quality(CBSRanks(ranks, np.full(20_000, pool, dtype=np.int32)), np.arange(20_000))
    assert quality.noise == pytest.approx(1, abs=0.03)  # a standard error of 0.007
    assert quality.high == pytest.approx(1, abs=0.01)


def test_inspect_and_training_say_the_same_of_the_same_ranks():
    """1,900 pairs, fewer than the later half of visits, at ranks that half of the wrong pairs share."""
    rng = np.random.default_rng(0)
    rank = np.where(rng.random(1900) < 0.2, rng.integers(1, 102, 1900), 1).astype(np.int32)
    ranks, query = CBSRanks(rank, np.full(1900, 100, dtype=np.int32)), np.arange(1900) // 5
    visits = FirstVisits.none(1900)
    visits.p[:], visits.step[:] = relative_rank(ranks), 0
    trained = estimate(TrainingPairs.from_arrays(query, np.arange(1900)), visits, np.ones(1900, dtype=bool))
    quality = estimate_quality(ranks, query)
    assert (quality.noise, quality.low, quality.high) == pytest.approx((trained.noise_rate, trained.low, trained.high))
