"""Random pruning: which pairs are kept."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from worlds import make, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def test_rp_depends_on_the_seed_alone(pairs: TrainingPairs) -> None:
    keeps = [make("rp", {"k": 0.5}, pairs, seed=s).kept for s in (0, 0, 1)]
    assert np.array_equal(keeps[0], keeps[1])
    assert not np.array_equal(keeps[0], keeps[2])


def test_rp_keeps_every_pair_equally_often(pairs: TrainingPairs) -> None:
    """Each pair is kept in a share k of the seeds; 5 standard deviations of a binomial bound the 65 pairs' shares."""
    kept = np.mean([make("rp", {"k": 0.5}, pairs, seed=seed).kept for seed in range(2000)], axis=0)
    share = (pairs.n_pairs // 2) / pairs.n_pairs
    assert np.abs(kept - share).max() < 5 * np.sqrt(share * (1 - share) / 2000)
