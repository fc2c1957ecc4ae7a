"""The suggested method, and what each k would cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opera
from opera.config.recipe import make_recipe
from opera.data.pairs import TrainingPairs
from opera.diagnostics.advice import RETENTIONS, advise, dynamic_gain, retention_table
from opera.diagnostics.quality import Quality
from opera.methods import DEFAULT_METHOD


def quality(noise: float | None, auc: float, error: float = 0.0) -> Quality:
    return Quality(auc=auc, noise=noise, noise_error=error, pooled_auc=auc, cosine=0.5, pool=100)


RANDOM = np.random.default_rng(1).uniform(-0.5, 0.5, 1000)  # similarities of random pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return TrainingPairs.from_arrays(np.repeat(np.arange(50), 4), np.arange(200))


def test_retention_counts_what_sp_would_do(pairs: TrainingPairs) -> None:
    similarity = np.random.default_rng(0).random(200)
    for row in retention_table(pairs, similarity, RANDOM, quality(0.3, 0.9)):
        settings = {"k": row.k}
        method = opera.methods.METHODS["sp"]
        scores = opera.methods.PairScores(pairs, similarity, np.zeros(200))
        made = method(pairs, opera.methods.Plan(0, 1, 1), method.settings_class.parse(settings), scores)
        assert row.kept_pairs == made.summary()["kept_pairs"]
        assert row.lost_queries == pytest.approx(1 - made.summary()["kept_queries"] / 50)
        assert row.precision >= 0.7 - 1e-9
        assert row.gain >= -1e-9


def test_little_noise_calls_for_no_pruning(pairs: TrainingPairs) -> None:
    similarity = np.random.default_rng(0).random(200)
    for seen in (quality(0.01, 0.9), quality(0.12, 0.9, error=0.05)):  # the second cannot be told from 5%
        advice = advise(seen, retention_table(pairs, similarity, RANDOM, seen))
        assert (advice.method, advice.if_labels_false) == (DEFAULT_METHOD, None)


def test_weak_scores_call_for_no_pruning(pairs: TrainingPairs) -> None:
    similarity = np.random.default_rng(0).random(200)
    advice = advise(quality(0.4, 0.55), retention_table(pairs, similarity, RANDOM, quality(0.4, 0.55)))
    assert (advice.method, advice.if_labels_false) == (DEFAULT_METHOD, None)
    assert "AUC 0.55" in " ".join(advice.reasons)


def test_more_noise_than_signal_is_rather_a_blind_model(pairs: TrainingPairs) -> None:
    similarity = np.random.default_rng(0).random(200)
    advice = advise(quality(0.65, 0.9), retention_table(pairs, similarity, RANDOM, quality(0.65, 0.9)))
    assert (advice.method, advice.if_labels_false) == (DEFAULT_METHOD, None)
    assert "inspect with a better model" in " ".join(advice.reasons)


def test_noise_and_good_scores_suggest_sp_if_labels_are_false(pairs: TrainingPairs) -> None:
    similarity = np.tile([0.9, 0.8, 0.7, 0.1], 50) + np.random.default_rng(0).random(200) / 100
    advice = advise(quality(0.25, 0.95), retention_table(pairs, similarity, RANDOM, quality(0.25, 0.95)))
    assert (advice.method, advice.if_labels_false, advice.k) == (DEFAULT_METHOD, "sp", 0.75)
    assert "lose 0.0% of the queries" in " ".join(advice.reasons)


def test_no_k_that_spares_the_queries_suggests_dp() -> None:
    pairs = TrainingPairs.from_arrays(np.arange(100), np.arange(100))
    similarity = np.random.default_rng(0).random(100)
    advice = advise(
        quality(0.3, 0.9), [r for r in retention_table(pairs, similarity, RANDOM, quality(0.3, 0.9)) if r.k < 0.9]
    )
    assert (advice.method, advice.if_labels_false, advice.k) == (DEFAULT_METHOD, "dp", None)
    assert "loses more than 10%" in " ".join(advice.reasons)


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_any_estimate_gives_advice(noise: float, auc: float) -> None:
    pairs = TrainingPairs.from_arrays(np.repeat(np.arange(10), 4), np.arange(40))
    similarity = np.random.default_rng(0).random(40)
    retentions = retention_table(pairs, similarity, RANDOM, quality(noise, auc))
    assert [r.k for r in retentions] == list(RETENTIONS)
    advice = advise(quality(noise, auc), retentions)
    assert advice.method == make_recipe({}).method
    assert advice.if_labels_false in (None, "sp", "dp")
    assert (advice.k is not None) == (advice.if_labels_false == "sp")
    assert np.isfinite(dynamic_gain(similarity, RANDOM, quality(noise, auc)))
