"""SP+DP: static pruning, then dynamic pruning of what is left."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.methods.schedules import virtual_dataset_size
from worlds import make, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def test_nothing_pruned_is_drawn_and_dp_runs_over_the_rest(pairs: TrainingPairs) -> None:
    method = make("sp+dp", {"k": 0.4}, pairs)
    keep = make("sp", {"k": 0.4}, pairs).kept
    p = method.probabilities(0)
    assert np.array_equal(p.pair > 0, keep)
    for step in range(20):
        assert keep[method.draw(step).pair_ids].all()
    kept_queries = len(np.unique(pairs.pair_query[keep]))
    assert method.summary()["pool_size"] == virtual_dataset_size(kept_queries, 2, 0.25)


def test_with_everything_kept_it_is_dp(pairs: TrainingPairs) -> None:
    both, alone = make("sp+dp", {"k": 1.0}, pairs), make("dp", {}, pairs)
    for step in range(20):
        a, b = both.draw(step).pair_ids, alone.draw(step).pair_ids
        assert a.tolist() == b.tolist()
        both.observe(a, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))
        alone.observe(b, np.linspace(-1, 1, 8), np.linspace(0, 9, 8))


def test_similarities_are_the_latest_of_the_kept_and_the_pretrained_of_the_pruned(pairs: TrainingPairs) -> None:
    method = make("sp+dp", {"k": 0.5}, pairs)
    assert method.scores is not None
    assert method.similarity is not None
    pretrained = method.scores.similarity.copy()
    assert np.array_equal(method.similarity, pretrained)
    method.observe(np.arange(pairs.n_pairs), np.full(pairs.n_pairs, 0.5), np.ones(pairs.n_pairs))
    assert (method.similarity[method.kept] == 0.5).all()
    assert np.array_equal(method.similarity[~method.kept], pretrained[~method.kept])
