"""The rule that chooses λ: where it starts, how it climbs, and what it never does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.training.guard.rule import SHARES, choose_share


def curve(means: list[float], n: int = 400, spread: float = 0.01) -> dict[float, np.ndarray]:
    """Values per query with these means, which differ between neighbours by little more than their means."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.2, 0.8, n)
    return {share: level + mean + spread * rng.standard_normal(n) for share, mean in zip(SHARES, means, strict=True)}


@pytest.mark.parametrize("seen", [0.0, 0.2, 1.0])
def test_a_clear_peak_is_found_from_every_anchor(seen: float) -> None:
    for peak in range(5):
        means = [-0.1 * abs(place - peak) for place in range(5)]
        assert choose_share(curve(means), seen) == SHARES[peak]


def test_without_a_difference_it_stays_more_prudent_where_documents_are_new() -> None:
    flat = {share: np.full(50, 0.5) for share in SHARES}
    chosen = [choose_share(flat, seen) for seen in (0.0, 0.1, 0.5, 1.0)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_a_difference_that_is_noise_moves_nothing() -> None:
    rng = np.random.default_rng(1)
    level, jitter = rng.uniform(size=200), rng.standard_normal(200)
    noisy = {share: level + 0.1 * share * (jitter - jitter.mean()) for share in SHARES}
    assert choose_share(noisy, 1.0) == choose_share(dict.fromkeys(SHARES, level), 1.0)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=20),
    st.floats(0, 1),
)
def test_it_ends_with_one_of_the_shares(rows: list[list[float]], seen: float) -> None:
    table = np.array(rows)
    per_query = {share: table[:, place] for place, share in enumerate(SHARES)}
    assert choose_share(per_query, seen) in SHARES
