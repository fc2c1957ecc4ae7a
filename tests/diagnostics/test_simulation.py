"""The simulator against Theorem 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opera.core.errors import SettingError
from opera.diagnostics.charts import write_theory_chart
from opera.diagnostics.simulation import (
    METHOD_NAMES,
    World,
    examine,
    grid,
    predict,
    simulate,
    sweeps,
)
from opera.diagnostics.theory import static_beats_dynamic


@pytest.mark.parametrize("noise", [0.2, 0.5])
@pytest.mark.parametrize("auc", [0.3, 0.5, 0.75, 0.95])
def test_it_matches_the_theorem_within_its_standard_error(noise: float, auc: float) -> None:
    world = World(noise=noise, auc=auc, k=0.3, v=0.4, documents=400, repeats=150, seed=1)
    closed, simulated = predict(world), simulate(world)
    for name in METHOD_NAMES:
        assert simulated[name].similarity == pytest.approx(closed[name].similarity, abs=3 * simulated[name].error)
        assert simulated[name].precision == pytest.approx(closed[name].precision, abs=0.01)
        assert simulated[name].share == pytest.approx(closed[name].share, abs=0.01)
        assert 0 < simulated[name].error < 0.003


def test_the_last_claim_fails_where_the_scores_mislead() -> None:
    """Notes, row 9: at γ = ρ, SP beats DP only while γ > m⁺/m."""
    for auc, better in ((0.8, "sp"), (0.25, "dp")):
        point = examine(World(auc=auc, k=0.4, v=0.4))
        closed, simulated = point.closed_form, point.simulated
        assert closed["sp"].precision == closed["dp"].precision
        assert simulated["sp"].precision == pytest.approx(simulated["dp"].precision)
        assert static_beats_dynamic(closed["sp"].precision, point.world.true_share) == (better == "sp")
        for outcome in (closed, simulated):
            other = "dp" if better == "sp" else "sp"
            assert outcome[better].similarity > outcome[other].similarity + 3 * simulated["sp"].error


def test_its_standard_error_is_the_spread_over_seeds() -> None:
    found = [simulate(World(seed=seed, repeats=40, documents=60))["sp"] for seed in range(40)]
    spread = np.std([outcome.similarity for outcome in found])
    assert np.mean([outcome.error for outcome in found]) == pytest.approx(spread, rel=0.35)


def test_a_selection_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="all are pruned"):
        simulate(World(documents=10, k=0.05))
    assert next(p.world.k for p in sweeps(World(documents=10, repeats=20))["k"][1]) == 0.1


def test_ties_have_no_winner() -> None:
    assert examine(World(auc=0.5, noise=0.33, k=0.37, v=0.61, repeats=20)).best == ""


def test_same_seed_same_outcomes() -> None:
    world = World(repeats=20, documents=30)
    assert simulate(world) == simulate(world)
    assert simulate(world) != simulate(World(repeats=20, documents=30, seed=1))


def test_impossible_worlds_are_refused() -> None:
    with pytest.raises(SettingError, match="auc: must be less than 1, got 1"):
        World.parse({"auc": 1})


def test_a_grid_covers_every_pair() -> None:
    points = grid(World(repeats=20, documents=20), (0.2, 0.4), (0.5, 0.7))
    assert [(p.world.noise, p.world.auc) for p in points] == [(0.2, 0.5), (0.2, 0.7), (0.4, 0.5), (0.4, 0.7)]


def test_charts_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    swept = sweeps(World(repeats=20, documents=20))
    assert set(swept) == {"noise", "auc", "k", "beta"}
    for suffix in (".svg", ".png", ".pdf"):
        paths = [tmp_path / f"{number}{suffix}" for number in range(2)]
        for path in paths:
            write_theory_chart(path, swept, "title")
        assert paths[0].read_bytes() == paths[1].read_bytes()
