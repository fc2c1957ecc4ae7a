"""Noise and scoring quality, estimated on data with known labels, and the advice that follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from opera.data.pairs import TrainingPairs
from opera.diagnostics.advice import RETENTIONS, Advice, advise, dynamic_gain, retention_table
from opera.diagnostics.quality import (
    Quality,
    area_under_curve,
    estimate_noise,
    estimate_quality,
    most_suspicious,
    random_similarities,
    relative_rank,
)
from opera.methods import DEFAULT_METHOD
from opera.methods.selection import keep_highest
from opera.retrieval.encoder import pair_similarities
from opera.training_set.documents import DocumentPool
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
    pairs, pool = TrainingPairs.from_arrays(np.repeat(np.arange(300), 10), np.arange(3000)), DocumentPool(3000)
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
    found = estimate_quality(pairs, lone, labelled, random, documents, DocumentPool(2))
    assert found.noise is None
    assert np.isfinite([found.auc, found.pooled_auc, found.cosine]).all()
    assert "too few to say which pairs are hard" in " ".join(advise(found, []).reasons)


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


def advised(seen: Quality, similarity: np.ndarray = EVEN, pairs: TrainingPairs = PAIRS, most: float = 1.0) -> Advice:
    advice = advise(seen, [row for row in retention_table(pairs, similarity, RANDOM, seen) if row.k < most])
    assert advice.method == DEFAULT_METHOD
    return advice


def test_retention_counts_what_sp_would_do() -> None:
    for row in retention_table(PAIRS, EVEN, RANDOM, quality(0.3, 0.9)):
        method, scores = opera.methods.METHODS["sp"], opera.methods.PairScores(PAIRS, EVEN, np.zeros(200))
        made = method(PAIRS, opera.methods.Plan(0, 1, 1), method.settings_class.parse({"k": row.k}), scores)
        assert row.kept_pairs == made.summary()["kept_pairs"]
        assert row.lost_queries == pytest.approx(1 - made.summary()["kept_queries"] / 50)
        assert row.precision >= 0.7 - 1e-9
        assert row.gain >= -1e-9


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (quality(0.01, 0.9), "Few pairs are hard"),
        (quality(0.12, 0.9, error=0.05), "Few pairs are hard"),  # it cannot be told from 5%
        (quality(0.4, 0.55), "AUC 0.55"),
        (quality(0.65, 0.9), "inspect with a better model"),  # more noise than signal is rather a blind model
    ],
)
def test_where_nothing_speaks_for_pruning(seen: Quality, words: str) -> None:
    advice = advised(seen)
    assert advice.if_labels_false is None
    assert words in " ".join(advice.reasons)


def test_noise_and_good_scores_suggest_sp_if_labels_are_false() -> None:
    advice = advised(quality(0.25, 0.95), np.tile([0.9, 0.8, 0.7, 0.1], 50) + EVEN / 100)
    assert (advice.if_labels_false, advice.k) == ("sp", 0.75)
    assert "lose 0.0% of the queries" in " ".join(advice.reasons)


def test_no_k_that_spares_the_queries_suggests_dp() -> None:
    pairs = TrainingPairs.from_arrays(np.arange(100), np.arange(100))
    advice = advised(quality(0.3, 0.9), EVEN[:100], pairs, most=0.9)
    assert (advice.if_labels_false, advice.k) == ("dp", None)
    assert "loses more than 10%" in " ".join(advice.reasons)


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_any_estimate_gives_advice(noise: float, auc: float) -> None:
    seen = quality(noise, auc)
    assert [row.k for row in retention_table(PAIRS, EVEN, RANDOM, seen)] == list(RETENTIONS)
    advice = advised(seen)
    assert advice.if_labels_false in (None, "sp", "dp")
    assert (advice.k is not None) == (advice.if_labels_false == "sp")
    assert np.isfinite(dynamic_gain(EVEN, RANDOM, seen))
