"""Lemma 1 and Theorem 1 in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.methods import TrainingPairs
from opera.methods.dynamic import document_probabilities, document_weights
from opera_paper.theory import (
    dynamic_share,
    expected_similarity,
    lemma_slope,
    lemma_value,
    pruning_beats_finetuning,
    selection_precision,
    static_beats_dynamic,
)

shares = st.floats(0.01, 0.99)
cosines = st.floats(-0.95, 0.99)


class TestLemma:
    @given(shares, st.integers(0, 2**31))
    def test_value_is_the_cosine_it_says(self, share, seed):
        u, v = np.random.default_rng(seed).normal(size=(2, 5))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        mixed = share * u + (1 - share) * v
        assert lemma_value(share, u @ v) == pytest.approx(mixed @ u / np.linalg.norm(mixed), abs=1e-9)

    @given(shares, cosines)
    def test_slope_is_the_derivative_and_positive(self, share, cosine):
        step = 1e-6
        numeric = (lemma_value(share + step, cosine) - lemma_value(share - step, cosine)) / (2 * step)
        assert lemma_slope(share, cosine) == pytest.approx(numeric, rel=1e-3, abs=1e-6)
        assert lemma_slope(share, cosine) > 0


class TestTheorem:
    @given(shares, shares, cosines)
    def test_pruning_helps_exactly_where_precision_exceeds_the_true_share(self, true_share, precision, cosine):
        if abs(precision - true_share) < 1e-3:
            return
        tuned, static = (expected_similarity(share, cosine) for share in (true_share, precision))
        dynamic = expected_similarity(dynamic_share(precision, 30, 5, 100 * true_share, 100), cosine)
        helps = pruning_beats_finetuning(precision, true_share)
        assert helps == (static > tuned) == (dynamic > tuned)
        assert static_beats_dynamic(precision, true_share) == (static > dynamic)

    def test_dynamic_share_is_what_the_shipped_weights_give(self):
        pairs = TrainingPairs.from_arrays(np.zeros(50, dtype=int), np.arange(50))
        selected, is_true = np.arange(50) < 20, np.arange(50) % 3 > 0
        probabilities = document_probabilities(pairs, document_weights(selected, 5.0))
        rho = is_true[selected].mean()
        assert probabilities[is_true].sum() == pytest.approx(dynamic_share(rho, 20, 5.0, is_true.sum(), 50))

    def test_selection_precision_is_what_scores_of_that_quality_give(self):
        rng = np.random.default_rng(0)
        is_true = np.arange(200_000) < 140_000
        scores = rng.normal(size=200_000) + math.sqrt(2) * 0.8416 * is_true  # Φ⁻¹(0.8)
        best = np.argsort(-scores)[:50_000]
        assert selection_precision(0.7, 0.8, 0.25) == pytest.approx(is_true[best].mean(), abs=0.005)
        one, other = rng.choice(scores[is_true], 100_000), rng.choice(scores[~is_true], 100_000)
        assert (one > other).mean() == pytest.approx(0.8, abs=0.01)
