"""Lemma 1 and Theorem 1, and the simulator that applies the shipped methods to what they speak of."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from opera.cli import app
from opera.core.errors import SettingError
from opera.data.pairs import TrainingPairs
from opera.diagnostics.charts import write_theory_chart
from opera.diagnostics.theory import (
    COMPARED,
    World,
    dynamic_share,
    examine,
    expected_similarity,
    grid,
    lemma_slope,
    lemma_value,
    mean_length,
    predict,
    pruning_beats_finetuning,
    selection_precision,
    simulate,
    static_beats_dynamic,
    sweeps,
)
from opera.methods.dynamic import document_probabilities, document_weights

shares = st.floats(0.01, 0.99)
cosines = st.floats(-0.95, 0.99)


class TestLemma:
    @given(shares, st.integers(0, 2**31))
    def test_value_is_the_cosine_it_says(self, share: float, seed: int) -> None:
        u, v = np.random.default_rng(seed).normal(size=(2, 5))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        mixed = share * u + (1 - share) * v
        assert lemma_value(share, u @ v) == pytest.approx(mixed @ u / np.linalg.norm(mixed), abs=1e-9)

    @given(shares, cosines)
    def test_slope_is_the_derivative_and_positive(self, share: float, cosine: float) -> None:
        step = 1e-6
        numeric = (lemma_value(share + step, cosine) - lemma_value(share - step, cosine)) / (2 * step)
        assert lemma_slope(share, cosine) == pytest.approx(numeric, rel=1e-3, abs=1e-6)
        assert lemma_slope(share, cosine) > 0


class TestTheorem:
    @given(shares, shares, cosines)
    def test_pruning_helps_exactly_where_precision_exceeds_the_true_share(
        self, true_share: float, precision: float, cosine: float
    ) -> None:
        if abs(precision - true_share) < 1e-3:
            return
        tuned, static = (expected_similarity(share, cosine) for share in (true_share, precision))
        dynamic = expected_similarity(dynamic_share(precision, 30, 5, 100 * true_share, 100), cosine)
        helps = pruning_beats_finetuning(precision, true_share)
        assert helps == (static > tuned) == (dynamic > tuned)
        assert static_beats_dynamic(precision, true_share) == (static > dynamic)

    def test_dynamic_share_is_what_the_shipped_weights_give(self) -> None:
        pairs = TrainingPairs.of(np.zeros(50, dtype=int), np.arange(50))
        selected, is_true = np.arange(50) < 20, np.arange(50) % 3 > 0
        chances = document_probabilities(pairs, document_weights(selected, 5.0))
        rho = is_true[selected].mean()
        assert chances[is_true].sum() == pytest.approx(dynamic_share(rho, 20, 5.0, is_true.sum(), 50))

    def test_selection_precision_has_its_limits(self) -> None:
        assert selection_precision(0.7, 0.5, 0.3) == pytest.approx(0.7)
        assert selection_precision(0.7, 0.9, 1.0) == 0.7
        assert selection_precision(0.5, 0.999999, 0.5) == pytest.approx(1, abs=1e-3)
        assert selection_precision(0.7, 0.3, 0.3) < 0.7 < selection_precision(0.7, 0.8, 0.3)

    def test_selection_precision_is_what_scores_of_that_quality_give(self) -> None:
        rng = np.random.default_rng(0)
        is_true = np.arange(200_000) < 140_000
        scores = rng.normal(size=200_000) + math.sqrt(2) * 0.8416 * is_true  # Φ⁻¹(0.8)
        best = np.argsort(-scores)[:50_000]
        assert selection_precision(0.7, 0.8, 0.25) == pytest.approx(is_true[best].mean(), abs=0.005)
        one, other = rng.choice(scores[is_true], 100_000), rng.choice(scores[~is_true], 100_000)
        assert (one > other).mean() == pytest.approx(0.8, abs=0.01)

    def test_mean_length_is_that_of_drawn_vectors(self) -> None:
        assert mean_length(20, 3) == pytest.approx(1 / math.tanh(20) - 1 / 20)  # the sphere in three dimensions


class TestSimulator:
    @pytest.mark.parametrize("noise", [0.2, 0.5])
    @pytest.mark.parametrize("auc", [0.3, 0.5, 0.75, 0.95])
    def test_it_matches_the_theorem_within_its_standard_error(self, noise: float, auc: float) -> None:
        world = World(noise=noise, auc=auc, k=0.3, v=0.4, documents=400, repeats=150, seed=1)
        closed, simulated = predict(world), simulate(world)
        for name in COMPARED:
            assert simulated[name].similarity == pytest.approx(closed[name].similarity, abs=3 * simulated[name].error)
            assert simulated[name].precision == pytest.approx(closed[name].precision, abs=0.01)
            assert simulated[name].share == pytest.approx(closed[name].share, abs=0.01)
            assert 0 < simulated[name].error < 0.003

    def test_the_last_claim_fails_where_the_scores_mislead(self) -> None:
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

    def test_its_standard_error_is_the_spread_over_seeds(self) -> None:
        found = [simulate(World(seed=seed, repeats=40, documents=60))["sp"] for seed in range(40)]
        spread = np.std([outcome.similarity for outcome in found])
        assert np.mean([outcome.error for outcome in found]) == pytest.approx(spread, rel=0.35)

    def test_a_selection_that_keeps_nothing_is_refused(self) -> None:
        with pytest.raises(SettingError, match="all are pruned"):
            simulate(World(documents=10, k=0.05))
        assert next(p.world.k for p in sweeps(World(documents=10, repeats=20))["k"][1]) == 0.1

    def test_ties_have_no_winner(self) -> None:
        assert examine(World(auc=0.5, noise=0.33, k=0.37, v=0.61, repeats=20)).best == ""

    def test_few_documents_make_hard_pruning_pay_in_variance(self) -> None:
        point = examine(World(documents=20, k=0.2, repeats=400))
        assert point.best == "sp"
        assert point.best_alone == "dp"

    def test_same_seed_same_outcomes(self) -> None:
        world = World(repeats=20, documents=30)
        assert simulate(world) == simulate(world)
        assert simulate(world) != simulate(World(repeats=20, documents=30, seed=1))

    def test_impossible_worlds_are_refused(self) -> None:
        with pytest.raises(SettingError, match="auc: must be less than 1, got 1"):
            World.parse({"auc": 1})


SMALL = ["--set", "repeats=20", "--set", "documents=20"]


def test_the_command_prints_a_table_and_writes_the_chart(tmp_path: Path) -> None:
    out = tmp_path / "theory.svg"
    done = CliRunner().invoke(app, ["theory", "--noise", "0.3", "--auc", "0.8", "--out", str(out), *SMALL])
    assert done.exit_code == 0, done.output
    assert "0.656" in done.output or "0.657" in done.output
    chart = out.read_text()
    assert chart.startswith("<?xml")
    done = CliRunner().invoke(app, ["theory", "--auc", "0.8", "--json", "--out", str(out), *SMALL])
    records = json.loads(done.output)["points"]
    assert [record["noise"] for record in records] == [0.1, 0.3, 0.5]
    assert records[1]["closed_form"]["sp"]["precision"] > records[1]["true_share"]


def test_charts_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    swept = sweeps(World(repeats=20, documents=20))
    assert set(swept) == {"noise", "auc", "k", "beta"}
    for suffix in (".svg", ".png", ".pdf"):
        paths = [tmp_path / f"{number}{suffix}" for number in range(2)]
        for path in paths:
            write_theory_chart(path, swept, "title")
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_bad_options_are_told(tmp_path: Path) -> None:
    for arguments, words in (
        (["--noise", "1.5"], "noise: must be less than 1, got 1.5"),
        (["--out", str(tmp_path / "chart.gif")], "must end in .svg or .png or .pdf"),
        (["--set", "gamma=1"], "unknown setting 'gamma' (opera theory --help lists all)"),
        (["--set", "noise=0.2"], "has an option of its own, --noise"),
    ):
        done = CliRunner().invoke(app, ["theory", *arguments])
        assert isinstance(done.exception, SettingError)
        assert words in str(done.exception)


def test_grid_covers_every_pair() -> None:
    points = grid(World(repeats=20, documents=20), (0.2, 0.4), (0.5, 0.7))
    assert [(p.world.noise, p.world.auc) for p in points] == [(0.2, 0.5), (0.2, 0.7), (0.4, 0.5), (0.4, 0.7)]
