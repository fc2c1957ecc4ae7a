"""Draws have the distribution that the equations say."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods.draws import ShuffledPasses, draw_pool, draw_weighted_documents
from worlds import make, make_pairs, mixed_pairs, top_k_of


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


def drawer(scores: list[float], count: int, pool_size: int) -> Callable[[int], IntArray]:
    """Return what draws from pools of queries with these scores, of which the ``count`` highest are tops."""
    values, rng = np.array(scores), generator(0, "test")
    top = top_k_of(values, count)
    return lambda size: draw_pool(rng, lambda own: values[own], len(values), top, pool_size, size)


class TestDraws:
    def test_frequencies_at_the_last_step_match_at_alpha_5_and_r_53(self):
        """The paper's end of the schedule: P(top)/P(rest) = α, exactly and as drawn."""
        pairs = make_pairs([1, 2, 3, 4] * 40)
        counts = np.zeros(pairs.n_queries)
        for seed in range(200):
            method = make("dp", {}, pairs, batch=24, steps=10**9, seed=seed)
            counts[pairs.pair_query[method.draw(10**9).pair_ids]] += 1
        p = method.probabilities(10**9).query
        top = p == p.max()
        assert top.sum() == math.floor(0.53125 * 160) == 85
        assert p.max() / p.min() == pytest.approx(5)  # n₀ = 100 and r·n = 85 are whole
        assert chisquare(counts, p * counts.sum()).pvalue > 1e-3
        assert counts[top].mean() / counts[~top].mean() == pytest.approx(5, rel=0.1)

    @given(st.integers(1, 30), st.integers(0, 200), st.integers(1, 90))
    def test_passes_hold_every_item_once_and_can_be_read_anywhere(self, size, start, count):
        row = ShuffledPasses(4, "test", size).take(0, start + count)
        assert np.array_equal(row[start:], ShuffledPasses(4, "test", size).take(start, count))
        for first in range(0, len(row) - size + 1, size):
            assert sorted(row[first : first + size]) == list(range(size))

    def test_pairs_of_queries_are_drawn_together_as_often_as_from_a_pool_that_is_built(self):
        """The joint distribution where the border cuts a bucket, against building the pool: how many of each kind."""
        scores, rng = np.array([3.0] * 2 + [1.0] * 6 + [0.0] * 12), np.random.default_rng(0)
        draw, kind = drawer(scores.tolist(), 5, 10), np.array([0] * 2 + [1] * 6 + [2] * 12)
        counters = [Counter(), Counter()]
        for _ in range(6000):
            tied, low = rng.permutation(np.arange(2, 8)), np.arange(8, 20)
            others = rng.choice(np.concatenate([tied[3:], low]), 5, replace=False)
            built = rng.choice(np.concatenate([[0, 1], tied[:3], others]), 4, replace=False)
            for counter, drawn in zip(counters, (built, draw(4)), strict=True):
                counter[tuple(np.bincount(kind[drawn], minlength=3))] += 1
        usual = [key for key in counters[0] if counters[0][key] >= 20]
        table = np.array([[counter[key] for key in usual] for counter in counters])
        assert len(usual) >= 8
        assert chi2_contingency(table).pvalue > 1e-3

    def test_documents_without_a_weight_are_drawn_only_where_none_has_one(self, pairs):
        weight = (pairs.pair_query != 15) & (np.arange(pairs.n_pairs) % 2 == 0)
        weight |= (pairs.sum_by_query(weight) == 0)[pairs.pair_query] & (pairs.pair_query != 15)
        queries = np.arange(pairs.n_queries).repeat(200)
        drawn = draw_weighted_documents(generator(1, "test"), pairs, queries, lambda own: weight[own])
        assert np.array_equal(pairs.pair_query[drawn], queries)
        assert set(drawn.tolist()) == set(np.flatnonzero(weight | (pairs.pair_query == 15)).tolist())
