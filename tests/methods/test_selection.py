"""Which pairs are kept before training, and that a resumed run keeps the same ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, PairScores, Plan
from opera.methods.selection import keep_best_pairs, keep_highest, kept_count
from opera.methods.static import StaticSettings
from worlds import make, make_pairs, make_scores, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=50), st.floats(0.01, 1))
def test_keep_counts_are_exact_even_with_ties(values: list[int], share: float) -> None:
    count = math.floor(share * len(values))
    keep = keep_highest(np.array(values, dtype=float), count)
    assert keep.sum() == count
    if 0 < count < len(values):
        assert np.array(values)[keep].min() >= np.array(values)[~keep].max()


def test_pruning_everything_is_refused() -> None:
    with pytest.raises(SettingError, match="all are pruned"):
        METHODS["sp"].check(StaticSettings(k=0.01), 5, 50)


def test_cbs_goes_before_similarity() -> None:
    pairs = make_pairs([4])
    scores = PairScores(pairs, np.array([0.9, 0.1, 0.2, 0.8]), np.zeros(4), np.array([0.5, 1.0, 1.0, 0.5]))
    assert keep_best_pairs(scores, "cbs", 1).tolist() == [False, False, True, False]
    assert keep_best_pairs(scores, "cbs", 3).tolist() == [True, True, True, False]
    assert keep_best_pairs(scores, "similarity", 1).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("pairs", "k", "count"), [(100, 0.29, 29), (100, 0.5, 50), (7, 0.5, 3), (3, 0.3, 0), (9, 1, 9)]
)
def test_equation_4_rounds_down_and_not_for_binary_fractions(pairs: int, k: float, count: int) -> None:
    assert kept_count(pairs, k) == count


@pytest.mark.parametrize("name", ["sp", "sp+cbs", "sp+dp", "rp"])
def test_a_resumed_run_keeps_what_it_kept_though_scores_computed_again_differ(name: str, pairs: TrainingPairs) -> None:
    first = make(name, {"k": 0.4}, pairs)
    settings = METHODS[name].settings_class.parse({"k": 0.4})
    second = METHODS[name](pairs, Plan(1, 50, 8), settings, make_scores(pairs, seed=7))
    assert not np.array_equal(first.kept, second.kept)
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first.kept, second.kept)
    assert second.summary()["kept_pairs"] == first.kept.sum()
    assert second.summary()["kept_queries"] == len(np.unique(pairs.pair_query[first.kept]))
    assert np.array_equal(second.probabilities(0).pair > 0, first.kept)


def test_cbs_is_asked_for_only_where_it_ranks() -> None:
    for name, values, size in (
        ("sp", {}, 0),
        ("sp", {"score": "cbs"}, 10_000),
        ("sp+cbs", {"cbs_pool": 7}, 7),
        ("sp+dp", {}, 0),
        ("sp+dp", {"score": "cbs", "cbs_pool": 9}, 9),
        ("rp", {}, 0),
        ("dp", {}, 0),
    ):
        method = METHODS[name]
        assert method.cbs_pool_size(method.settings_class.parse(values)) == size, (name, values)
