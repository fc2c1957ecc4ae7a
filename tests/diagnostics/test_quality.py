"""Noise and scoring quality, estimated on data with known labels, and what pruning would keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from distinct import pool_of
from opera.data.pairs import TrainingPairs
from opera.diagnostics.quality import (
    Quality,
    area_under_curve,
    estimate_noise,
    estimate_quality,
    most_suspicious,
    random_similarities,
    relative_rank,
)
from opera.diagnostics.retentions import RETENTIONS, dynamic_gain, retention_table
from opera.methods.selection import keep_highest
from opera.retrieval.encoder import pair_similarities
from opera.training_set.pretrained_scores import CBSRanks, rank_among_random


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_share_of_random_documents_is_found(share: float) -> None:
    """Good documents lie near their query, false ones anywhere: the estimate finds how many are false."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(300, 32))
    docs = np.repeat(queries, 10, axis=0) + 1.2 * rng.normal(size=(3000, 32))
    false = rng.random(3000) < share
    docs[false] = rng.normal(size=(false.sum(), 32))
    queries, docs = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, docs))
    pairs, pool = TrainingPairs.from_arrays(np.repeat(np.arange(300), 10), np.arange(3000)), pool_of(3000)
    cbs_ranks = rank_among_random(pairs, queries.astype(np.float32), docs.astype(np.float32), 10_000, 0, pool)
    queries, docs = queries.astype(np.float32), docs.astype(np.float32)
    similarity, random = pair_similarities(pairs, queries, docs), random_similarities(pairs, queries, docs, 0, pool)
    found = estimate_quality(pairs, cbs_ranks, similarity, random, docs, pool)
    assert found.noise == pytest.approx(share, abs=0.04)
    assert found.noise_error < 0.03
    assert found.pooled_auc == pytest.approx(area_under_curve(similarity[~false], random), abs=0.03)
    for row in retention_table(pairs, similarity, random, found):
        kept = keep_highest(similarity, row.kept_pairs)
        assert row.precision == pytest.approx((~false)[kept].mean(), abs=0.03)
    worst = most_suspicious(relative_rank(cbs_ranks), np.zeros(3000), 50)
    assert share == 0 or false[worst].all()


@pytest.mark.parametrize("pool", [2, 3, 10_000])
def test_all_random_is_all_noise_whatever_the_pool(pool: int) -> None:
    ranks = np.random.default_rng(0).integers(1, pool + 2, 20_000).astype(np.int32)
    share, error = estimate_noise(CBSRanks(ranks, np.full(20_000, pool, dtype=np.int32)))
    assert share == pytest.approx(1, abs=4 * error)


def test_the_standard_error_is_the_spread_of_estimates() -> None:
    rng, estimates, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        ranks = np.where(rng.random(200) < 0.2, rng.integers(1, 1002, 200), 1).astype(np.int32)
        share, error = estimate_noise(CBSRanks(ranks, np.full(200, 1000, dtype=np.int32)))
        estimates.append(share)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.15)


def test_too_few_to_rank_among_give_no_estimate() -> None:
    pairs = TrainingPairs.from_arrays(np.zeros(2, dtype=int), np.arange(2))
    lone = CBSRanks(np.ones(2, dtype=np.int32), np.zeros(2, dtype=np.int32))
    labelled, random, documents = np.array([0.3, 0.4]), np.array([0.1, 0.2]), np.eye(2, dtype=np.float32)
    found = estimate_quality(pairs, lone, labelled, random, documents, pool_of(2))
    assert found.noise is None
    assert np.isfinite([found.auc, found.pooled_auc, found.cosine]).all()


def test_auc() -> None:
    assert area_under_curve(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
    assert area_under_curve(np.array([1.0]), np.array([0.0, 1.0, 2.0])) == 0.5


def test_of_equal_places_the_least_similar_is_the_most_suspicious() -> None:
    assert most_suspicious(np.array([0.2, 0.9, 0.9]), np.array([0.0, 0.5, 0.1]), 2).tolist() == [2, 1]


RANDOM = np.random.default_rng(1).uniform(-0.5, 0.5, 1000)  # similarities of random pairs
EVEN = np.random.default_rng(0).random(200)
PAIRS = TrainingPairs.from_arrays(np.repeat(np.arange(50), 4), np.arange(200))


def quality(noise: float | None, auc: float, error: float = 0.0) -> Quality:
    return Quality(auc=auc, noise=noise, noise_error=error, pooled_auc=auc, cosine=0.5, pool=100)


def test_retention_counts_what_sp_would_do() -> None:
    for row in retention_table(PAIRS, EVEN, RANDOM, quality(0.3, 0.9)):
        method, scores = opera.methods.METHODS["sp"], opera.methods.PairScores(PAIRS, EVEN, np.zeros(200))
        made = method(PAIRS, opera.methods.Plan(0, 1, 1), method.settings_class.parse({"k": row.k}), scores)
        assert row.kept_pairs == made.summary()["kept_pairs"]
        assert row.lost_queries == pytest.approx(1 - made.summary()["kept_queries"] / 50)
        assert row.precision >= 0.7 - 1e-9
        assert row.gain >= -1e-9


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_any_estimate_gives_finite_gains(noise: float, auc: float) -> None:
    seen = quality(noise, auc)
    assert [row.k for row in retention_table(PAIRS, EVEN, RANDOM, seen)] == list(RETENTIONS)
    assert np.isfinite(dynamic_gain(EVEN, RANDOM, seen))
