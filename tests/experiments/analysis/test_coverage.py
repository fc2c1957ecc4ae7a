"""How much of the training data was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grids import RunsFolder
from opera.experiments.analysis import compute_coverage
from opera.experiments.analysis.coverage import effective_share


def test_shares_of_what_was_drawn(folder: RunsFolder) -> None:
    folder.add(drawn=(3, 0, 1, 0))
    (group,) = folder.groups()
    found = compute_coverage(group)
    assert found.queries == pytest.approx(2 / 3)
    assert found.pairs == pytest.approx(2 / 4)
    assert found.effective_queries == pytest.approx(16 / 10 / 3)
    assert found.effective_pairs == pytest.approx(16 / 10 / 4)
    assert found.noise_pairs is found.noise_draws is None


def test_noise_and_means_over_the_seeds(folder: RunsFolder) -> None:
    folder.add(seed=0, drawn=(3, 0, 1, 0), injected=(False, True, True, False))
    folder.add(seed=1, drawn=(1, 1, 1, 1), injected=(False, False, True, True))
    found = compute_coverage(folder.groups()[0])
    assert found.noise_pairs == 0.5
    assert found.noise_draws == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert found.pairs == pytest.approx((0.5 + 1) / 2)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any))
def test_the_effective_share_lies_between_one_draw_and_all_alike(counts: list[int]) -> None:
    share = effective_share(np.array(counts))
    drawn = sum(count > 0 for count in counts)
    assert 1 / len(counts) - 1e-9 <= share <= drawn / len(counts) + 1e-9


def test_all_alike_is_one() -> None:
    assert effective_share(np.array([4, 4, 4])) == 1
