"""Static pruning: the pairs kept, and Equation 3 over them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.methods.static import static_probabilities
from worlds import make, make_scores, mixed_pairs


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def test_sp_keeps_the_highest(pairs: TrainingPairs) -> None:
    method = make("sp", {"k": 0.33}, pairs)
    scores = make_scores(pairs).similarity
    keep = method.kept
    assert keep.sum() == math.floor(0.33 * pairs.n_pairs)
    assert scores[keep].min() > scores[~keep].max()


def test_equation_3_against_its_plain_reading() -> None:
    pairs = TrainingPairs.from_arrays(np.array([0, 0, 0, 1, 2, 2]), np.arange(6))
    kept = np.array([True, True, False, False, True, False])
    p = static_probabilities(pairs, kept)
    assert p.query.tolist() == pytest.approx([2 / 3, 0, 1 / 3])
    assert p.document.tolist() == [0.5, 0.5, 0, 0, 1, 0]
    assert p.pair.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 1 / 3, 0])
    release = static_probabilities(pairs, kept, "uniform")
    assert release.query.tolist() == [0.5, 0, 0.5]
    assert release.pair.tolist() == [0.25, 0.25, 0, 0, 0.5, 0]


def test_a_pass_holds_every_kept_pair_once(pairs: TrainingPairs) -> None:
    method = make("sp", {"k": 0.5}, pairs, batch=5)
    count = int(method.kept.sum())
    drawn = np.concatenate([method.draw(step).pair_ids for step in range(2 * count // 5)])
    for first in (0, count):
        part = drawn[first : first + count]
        assert len(np.unique(part)) == len(part)
        assert method.kept[part].all()
    assert np.array_equal(np.sort(drawn[:count]), np.flatnonzero(method.kept))
