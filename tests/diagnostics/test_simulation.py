"""The simulator against Theorem 1."""

from __future__ import annotations

import numpy as np
import pytest

from opera.core.errors import SettingError
from opera.diagnostics.theory import METHOD_NAMES, World, examine, grid, predict, simulate, static_beats_dynamic

SMALL = {"repeats": 20, "documents": 30}


@pytest.mark.parametrize(("noise", "auc"), [(0.2, 0.3), (0.5, 0.5), (0.2, 0.95), (0.5, 0.75)])
def test_it_matches_the_theorem_within_its_standard_error(noise: float, auc: float) -> None:
    world = World(noise=noise, auc=auc, k=0.3, v=0.4, documents=300, repeats=100, seed=1)
    closed, simulated = predict(world), simulate(world)
    for name in METHOD_NAMES:
        assert simulated[name].similarity == pytest.approx(closed[name].similarity, abs=3 * simulated[name].error)
        assert simulated[name].precision == pytest.approx(closed[name].precision, abs=0.015)
        assert simulated[name].share == pytest.approx(closed[name].share, abs=0.015)
        assert 0 < simulated[name].error < 0.005


def test_the_last_claim_fails_where_the_scores_mislead() -> None:
    """Notes, row 9: at γ = ρ, SP beats DP only while γ > m⁺/m."""
    for auc, better in ((0.8, "sp"), (0.25, "dp")):
        point = examine(World(auc=auc, k=0.4, v=0.4, repeats=100))
        closed, simulated = point.closed_form, point.simulated
        assert closed["sp"].precision == closed["dp"].precision
        assert simulated["sp"].precision == pytest.approx(simulated["dp"].precision)
        assert static_beats_dynamic(closed["sp"].precision, point.world.true_share) == (better == "sp")
        for outcome in (closed, simulated):
            other = "dp" if better == "sp" else "sp"
            assert outcome[better].similarity > outcome[other].similarity + 3 * simulated["sp"].error


def test_its_standard_error_is_the_spread_over_seeds() -> None:
    found = [simulate(World(seed=seed, repeats=20, documents=10))["sp"] for seed in range(20)]
    spread = np.std([outcome.similarity for outcome in found])
    assert np.mean([outcome.error for outcome in found]) == pytest.approx(spread, rel=0.5), (
        "a deviation of 20 is off by 16%"
    )


def test_a_selection_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="all are pruned"):
        simulate(World(documents=10, k=0.05, repeats=20))


def test_ties_have_no_winner_and_a_seed_gives_the_same_outcomes() -> None:
    assert examine(World(auc=0.5, noise=0.33, k=0.37, v=0.61, repeats=20)).best == ""
    assert simulate(World(**SMALL)) == simulate(World(**SMALL)) != simulate(World(**SMALL, seed=1))


def test_a_grid_covers_every_pair() -> None:
    points = grid(World(**SMALL), (0.2, 0.4), (0.5, 0.7))
    assert [(p.world.noise, p.world.auc) for p in points] == [(0.2, 0.5), (0.2, 0.7), (0.4, 0.5), (0.4, 0.7)]
