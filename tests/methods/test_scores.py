"""The scores of pairs, as training overwrites them."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.methods import PairScores
from worlds import make_scores, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def test_observations_overwrite_and_the_last_of_a_pair_counts(pairs: TrainingPairs) -> None:
    scores = make_scores(pairs)
    scores.observe(np.array([3, 5, 3]), np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
    assert scores.similarity[[3, 5]].tolist() == pytest.approx([0.3, 0.2])
    assert scores.loss[[3, 5]].tolist() == pytest.approx([3.0, 2.0])


def test_what_a_batch_changed_is_returned(pairs: TrainingPairs) -> None:
    scores = make_scores(pairs)
    before = scores.similarity.copy()
    change = scores.observe(np.array([3, 5, 3]), np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
    assert change.pair_ids.tolist() == [3, 5]
    assert change.old_similarity.tolist() == before[[3, 5]].tolist()
    assert change.similarity.tolist() == scores.similarity[[3, 5]].tolist()
    assert change.loss.tolist() == [3.0, 2.0]


def test_scores_of_another_length_or_not_finite_are_refused(pairs: TrainingPairs) -> None:
    good = np.zeros(pairs.n_pairs)
    with pytest.raises(ValueError, match="loss must have shape"):
        PairScores(pairs, good, good[1:])
    with pytest.raises(ValueError, match="similarity must be finite"):
        PairScores(pairs, np.where(np.arange(pairs.n_pairs) == 2, np.nan, good), good)
