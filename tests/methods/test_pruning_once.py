"""Methods that draw from a fixed set of pairs: which ones rp, sp, sp+cbs and sp+dp keep, and how they and ft draw."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan
from opera.methods.finetuning import finetuning_probabilities
from opera.methods.static import keep_best_pairs, keep_highest, kept_count, static_probabilities
from worlds import make, make_pairs, make_scores, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50), st.floats(0.01, 1))
def test_keep_counts_are_exact_even_with_ties(values, share):
    count = math.floor(share * len(values))
    keep = keep_highest(np.array(values, dtype=float), count)
    assert keep.sum() == count
    if 0 < count < len(values):
        assert np.array(values)[keep].min() >= np.array(values)[~keep].max()


def test_cbs_goes_before_similarity():
    pairs = make_pairs([4])
    scores = PairScores(pairs, np.array([0.9, 0.1, 0.2, 0.8]), np.zeros(4), np.array([0.5, 1.0, 1.0, 0.5]))
    assert keep_best_pairs(scores, "cbs", 1).tolist() == [False, False, True, False]
    assert keep_best_pairs(scores, "cbs", 3).tolist() == [True, True, True, False]
    assert keep_best_pairs(scores, "similarity", 1).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("pairs", "k", "count"), [(100, 0.29, 29), (100, 0.5, 50), (7, 0.5, 3), (3, 0.3, 0), (9, 1, 9)]
)
def test_equation_4_rounds_down_and_not_for_binary_fractions(pairs, k, count):
    assert kept_count(pairs, k) == count


@pytest.mark.parametrize("name", ["sp", "sp+cbs", "sp+dp", "rp"])
def test_a_resumed_run_keeps_what_it_kept_though_scores_computed_again_differ(name, pairs):
    first = make(name, {"k": 0.4}, pairs)
    settings = METHODS[name].settings_class.parse({"k": 0.4})
    second = METHODS[name](pairs, Plan(1, 50, 8), settings, make_scores(pairs, seed=7))
    assert not np.array_equal(first.kept, second.kept)
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first.kept, second.kept)
    assert second.summary()["kept_pairs"] == first.kept.sum()
    assert second.summary()["kept_queries"] == len(np.unique(pairs.pair_query[first.kept]))
    assert np.array_equal(second.probabilities(0).pair > 0, first.kept)


def test_equation_3_against_its_plain_reading():
    pairs = TrainingPairs.from_arrays(np.array([0, 0, 0, 1, 2, 2]), np.arange(6))
    kept = np.array([True, True, False, False, True, False])
    p = static_probabilities(pairs, kept)
    assert p.query.tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    assert p.document.tolist() == [0.5, 0.5, 0, 0, 1, 0]
    assert p.pair.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 1 / 3, 0])
    release = static_probabilities(pairs, kept, "uniform")
    assert release.query.tolist() == [0.5, 0, 0.5]
    assert release.pair.tolist() == [0.25, 0.25, 0, 0, 0.5, 0]


def test_a_pass_holds_every_kept_pair_once(pairs):
    method = make("sp", {"k": 0.5}, pairs, batch=5)
    count = int(method.kept.sum())
    drawn = np.concatenate([method.draw(step).pair_ids for step in range(2 * count // 5)])
    for first in (0, count):
        part = drawn[first : first + count]
        assert len(np.unique(part)) == len(part)
        assert method.kept[part].all()
    assert np.array_equal(np.sort(drawn[:count]), np.flatnonzero(method.kept))


def test_rp_keeps_every_pair_equally_often(pairs):
    """Each pair is kept in a share k of the seeds; 5 standard deviations of a binomial bound the 65 pairs' shares."""
    kept = np.mean([make("rp", {"k": 0.5}, pairs, seed=seed).kept for seed in range(2000)], axis=0)
    share = (pairs.n_pairs // 2) / pairs.n_pairs
    assert np.abs(kept - share).max() < 5 * np.sqrt(share * (1 - share) / 2000)


def test_with_everything_kept_it_is_dp(pairs):
    both, alone = make("sp+dp", {"k": 1.0}, pairs), make("dp", {}, pairs)
    for step in range(20):
        a, b = both.draw(step).pair_ids, alone.draw(step).pair_ids
        assert a.tolist() == b.tolist()
        both.observe(a, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))
        alone.observe(b, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))


def test_equation_1_against_its_plain_reading():
    p = finetuning_probabilities(TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 2]), np.arange(7)))
    assert p.query.tolist() == pytest.approx([1 / 3] * 3)
    assert p.document.tolist() == pytest.approx([1 / 2, 1 / 2, 1, 1 / 4, 1 / 4, 1 / 4, 1 / 4])
    assert p.pair.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 12, 1 / 12, 1 / 12, 1 / 12])


def test_every_query_is_drawn_once_per_pass():
    pairs = mixed_pairs()
    method = make("ft", {}, pairs, batch=4)
    queries = pairs.pair_query[np.concatenate([method.draw(step).pair_ids for step in range(8)])]
    assert sorted(queries[:16]) == sorted(queries[16:]) == list(range(16))
    assert queries[:16].tolist() != queries[16:].tolist()
