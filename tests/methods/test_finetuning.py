"""Fine-tuning: Equation 1 and shuffled passes."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs
from opera.methods.finetuning import finetuning_probabilities
from worlds import make, mixed_pairs


def test_equation_1_against_its_plain_reading() -> None:
    p = finetuning_probabilities(TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2, 2, 2]), np.arange(7)))
    assert p.query.tolist() == pytest.approx([1 / 3] * 3)
    assert p.document.tolist() == pytest.approx([1 / 2, 1 / 2, 1, 1 / 4, 1 / 4, 1 / 4, 1 / 4])
    assert p.pair.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 12, 1 / 12, 1 / 12, 1 / 12])


def test_every_query_is_drawn_once_per_pass() -> None:
    pairs = mixed_pairs()
    method = make("ft", {}, pairs, batch=4)
    queries = pairs.pair_query[np.concatenate([method.draw(step).pair_ids for step in range(8)])]
    assert sorted(queries[:16]) == sorted(queries[16:]) == list(range(16))
    assert queries[:16].tolist() != queries[16:].tolist()
