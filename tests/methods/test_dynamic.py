"""Dynamic pruning: schedules, scores, thresholds, weights and refreshes, against the plain way of computing them."""

import math

import numpy as np
import pytest

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods.draws import bucket_of
from opera.methods.dynamic import (
    DynamicPruning,
    DynamicSettings,
    query_scores,
    query_thresholds,
)
from worlds import make, make_pairs, make_scores, mixed_pairs, top_k_of


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def test_impossible_schedules_are_refused_with_the_numbers():
    with pytest.raises(SettingError, match=r"alpha_start=1\.0, alpha_end=5\.0.* got 1 at α"):
        DynamicPruning.check(DynamicSettings(alpha_start=1, alpha_end=5), 100, 1000)
    with pytest.raises(SettingError, match="update_interval: must be greater than or equal to 1, got 0"):
        DynamicSettings.parse({"update_interval": 0})
    DynamicPruning.check(DynamicSettings(alpha_start=1, alpha_end=1), 100, 1000)


def test_thresholds_are_those_found_by_looking_at_every_score(pairs):
    """Both thresholds, after each of many observations, against NumPy over all queries and pairs."""
    rng = np.random.default_rng(0)
    for kind in ("negative_loss", "loss", "similarity"):
        method = make("dp", {"query_score": kind}, pairs, steps=30)
        assert isinstance(method, DynamicPruning)
        for step in range(30):
            drawn = method.draw(step).pair_ids
            scores, schedule = method.scores, method.schedule(step)
            count = math.floor(schedule["r"] * pairs.n_queries)
            assert method._top == top_k_of(query_scores(scores, kind), count)
            lowest = np.sort(query_scores(scores, kind))[-count]
            width = (1 + abs(lowest)) ** 2 * 2.0**-18  # of two buckets there: 2⁻¹⁹ over the derivative of x/(1 + |x|)
            assert schedule["query_threshold"] == pytest.approx(lowest, abs=width)
            quantile = np.quantile(scores.similarity.astype(np.float64), 1 - schedule["v"], method="lower")
            assert schedule["document_threshold"] == pytest.approx(quantile, abs=1e-5)
            assert method._threshold == bucket_of(quantile)
            method.observe(drawn, rng.uniform(-1, 1, 8), rng.exponential(2, 8))


def test_thresholds_of_each_query_are_numpys_quantiles(pairs):
    similarity = make_scores(pairs).similarity
    thresholds = query_thresholds(pairs.pair_query, similarity, 0.3)
    for query in range(pairs.n_queries):
        expected = np.quantile(similarity[pairs.pair_query == query].astype(np.float64), 0.7)
        assert thresholds[pairs.pair_query == query] == pytest.approx(expected, abs=1e-6)  # float32: 2⁻²⁴


def test_interval_freezes_the_ranking_between_refreshes():
    pairs = make_pairs([1] * 100)
    method = make("dp", {"update_interval": 5}, pairs)
    method.draw(0)
    before = method.probabilities(0).query
    method.observe(np.arange(100), np.ones(100), np.arange(100.0))
    method.draw(1)
    assert np.array_equal(method.probabilities(1).query, before)
    for step in range(2, 6):
        method.draw(step)
    assert not np.array_equal(method.probabilities(5).query, before)


def test_an_epoch_visits_every_top_query_once():
    pairs = make_pairs([1] * 64)
    method = make("dp", {"update_interval": "epoch"}, pairs, batch=8)
    pool = method.pool_size
    assert pool == 40
    drawn = np.concatenate([method.draw(step).pair_ids for step in range(pool // 8)])
    assert len(np.unique(drawn)) == pool
    top = np.flatnonzero(method.probabilities(0).query == 1 / pool)
    assert set(top) <= set(drawn)


@pytest.mark.parametrize(("name", "values"), [("dp", {}), ("sp+dp", {"k": 0.7})])
def test_the_hard_cutoff_excludes_documents_below_t_of_queries_with_some_above(name, values, pairs):
    method, rng = make(name, {"soft": False, **values}, pairs), np.random.default_rng(0)
    excluded = spared = 0
    for step in range(20):
        drawn = method.draw(step)
        document, threshold = method.probabilities(step).document, method.schedule(step)["document_threshold"]
        scores = method.scores if name == "dp" else method.dynamic.scores
        high = np.zeros(pairs.n_pairs, dtype=bool)
        high[method.kept] = scores.similarity > threshold
        has_high = pairs.sum_by_query(high)[pairs.pair_query] > 0
        assert np.array_equal(document > 0, method.kept & (high | ~has_high))
        excluded += (method.kept & ~high & has_high).sum()
        spared += (method.kept & ~high & ~has_high).sum()
        method.observe(drawn.pair_ids, rng.uniform(-1, 1, 8), rng.exponential(2, 8))
    assert excluded > 0
    assert spared > 0


def test_observations_overwrite_and_the_last_of_a_pair_counts(pairs):
    scores = make_scores(pairs)
    scores.observe(np.array([3, 5, 3]), np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
    assert scores.similarity[[3, 5]].tolist() == pytest.approx([0.3, 0.2])
    assert scores.loss[[3, 5]].tolist() == pytest.approx([3.0, 2.0])
