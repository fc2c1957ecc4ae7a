"""Draws have the distribution that the equations say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, hypergeom

from opera.core.rng import generator
from opera.core.streams import Stream
from opera.data.pairs import TrainingPairs
from opera.methods._order_statistics.query_ranking import QueryRanking
from opera.methods.draws import ShuffledPasses, draw_by_pairs, draw_pool, draw_weighted_documents
from opera.methods.dynamic import (
    document_threshold,
    document_weights,
    pair_weighted_probabilities,
    query_probabilities,
)
from worlds import make, make_pairs, make_scores, mixed_pairs, ranking_of


@pytest.fixture
def pairs() -> TrainingPairs:
    return mixed_pairs()


class TestDraws:
    def test_draws_by_pairs_follow_equation_5_times_the_pairs(self, pairs: TrainingPairs) -> None:
        is_top = (np.arange(pairs.n_queries) % 3 == 0).astype(np.float32)
        ranking = QueryRanking(pairs, is_top[pairs.pair_query], 1)
        top = ranking.top_k(int(is_top.sum()))
        drawn = draw_by_pairs(Stream(0, "test"), ranking, top, 10, 20_000)
        expected = pair_weighted_probabilities(pairs, query_probabilities(is_top, top.count, 10)) * 20_000
        assert chisquare(np.bincount(drawn, minlength=pairs.n_queries), expected).pvalue > 1e-3

    def test_frequencies_at_the_last_step_match_at_alpha_5_and_r_53(self) -> None:
        """The paper's end of the schedule: P(top)/P(rest) = α, exactly and as drawn."""
        pairs = make_pairs([1, 2, 3, 4] * 40)
        counts = np.zeros(pairs.n_queries)
        for seed in range(1500):
            method = make("dp", {}, pairs, batch=8, steps=10**9, seed=seed)
            counts[pairs.pair_query[method.draw(10**9).pair_ids]] += 1
        p = method.probabilities(10**9).query
        top = p == p.max()
        assert top.sum() == math.floor(0.53125 * 160) == 85
        assert p.max() / p.min() == pytest.approx(5)  # n₀ = 100 and r·n = 85 are whole
        assert chisquare(counts, p * counts.sum()).pvalue > 1e-3
        assert counts[top].mean() / counts[~top].mean() == pytest.approx(5, rel=0.05)

    @given(st.integers(1, 30), st.integers(0, 200), st.integers(1, 90))
    def test_passes_hold_every_item_once_and_can_be_read_anywhere(self, size: int, start: int, count: int) -> None:
        row = ShuffledPasses(4, "test", size).take(0, start + count)
        assert np.array_equal(row[start:], ShuffledPasses(4, "test", size).take(start, count))
        for first in range(0, len(row) - size + 1, size):
            assert sorted(row[first : first + size]) == list(range(size))

    def test_pool_draws_have_the_pools_distribution(self) -> None:
        ranking = ranking_of([1.0] * 8 + [0.0] * 22)
        counts = np.zeros(30)
        stream = Stream(0, "test")
        for _ in range(4000):
            drawn = draw_pool(stream, ranking, ranking.top_k(8), 14, 5)
            assert len(set(drawn.tolist())) == 5
            counts[drawn] += 1
        expected = np.where(np.arange(30) < 8, 1 / 14, 6 / (14 * 22)) * 4000 * 5
        assert chisquare(counts, expected).pvalue > 1e-3

    def test_pool_draws_have_the_hypergeometric_numbers_of_tops(self) -> None:
        """The joint distribution, not the single probabilities alone: how many of 5 draws fall on the 8 tops."""
        ranking, stream = ranking_of([1.0] * 8 + [0.0] * 22), Stream(3, "test")
        tops = [int((draw_pool(stream, ranking, ranking.top_k(8), 14, 5) < 8).sum()) for _ in range(4000)]
        expected = hypergeom(14, 8, 5).pmf(np.arange(6)) * 4000
        assert chisquare(np.bincount(tops, minlength=6), expected).pvalue > 1e-3

    def test_ties_share_the_places_that_are_left(self) -> None:
        ranking, stream = ranking_of([3.0] * 2 + [1.0] * 6 + [0.0] * 12), Stream(0, "test")
        top = ranking.top_k(5)
        assert (top.above, top.tied, top.tied_probability) == (2, 6, 0.5)
        counts = np.zeros(20)
        for _ in range(4000):
            counts[draw_pool(stream, ranking, top, 10, 4)] += 1
        expected = query_probabilities(top.probabilities(ranking.scores()), 5, 10) * 4000 * 4
        assert chisquare(counts, expected).pvalue > 1e-3

    def test_pool_of_the_size_asked_holds_all_tops(self) -> None:
        ranking = ranking_of([1.0] * 6 + [0.0] * 14)
        drawn = draw_pool(Stream(1, "test"), ranking, ranking.top_k(6), 10, 10)
        assert set(range(6)) <= set(drawn.tolist())
        assert len(set(drawn.tolist())) == 10
        twice = draw_pool(Stream(1, "test"), ranking, ranking.top_k(6), 10, 25)  # two pools and a half
        assert all(set(range(6)) <= set(part.tolist()) for part in (twice[:10], twice[10:20]))

    def test_a_pool_drawn_whole_has_the_pools_distribution(self) -> None:
        ranking, stream = ranking_of([3.0] * 2 + [1.0] * 6 + [0.0] * 12), Stream(5, "test")
        top, counts, first = ranking.top_k(5), np.zeros(20), np.zeros(20)
        for _ in range(3000):
            drawn = draw_pool(stream, ranking, top, 10, 10)
            assert len(set(drawn.tolist())) == 10
            counts[drawn] += 1
            first[drawn[0]] += 1
        expected = query_probabilities(top.probabilities(ranking.scores()), 5, 10)
        assert counts[:2].tolist() == [3000, 3000]
        assert chisquare(counts[2:], expected[2:] * 30_000).pvalue > 1e-3
        assert chisquare(first, expected * 3000).pvalue > 1e-3

    @pytest.mark.parametrize("own", [False, True])
    def test_document_draws_follow_the_weights(self, pairs: TrainingPairs, own: bool) -> None:
        similarity = make_scores(pairs).similarity
        threshold = None if own else 0.1
        drawn = draw_weighted_documents(
            Stream(0, "test"), pairs, np.full(20_000, 15), similarity, 5.0, 1.0, threshold, 0.3
        )
        ids = np.flatnonzero(pairs.pair_query == 15)
        limit = document_threshold(pairs, similarity, 0.3, "per_query")[15] if own else 0.1
        weight = document_weights(similarity[ids] > limit, 5.0)
        assert 0 < (weight == 5).sum() < len(ids)
        expected = weight / weight.sum() * 20_000
        assert chisquare(np.bincount(drawn, minlength=pairs.n_pairs)[ids], expected).pvalue > 1e-3

    def test_generators_are_named(self) -> None:
        streams = [generator(*key).random() for key in ((0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0))]
        assert len(set(streams)) == 4
        assert generator(0, "a", 0).random() == streams[0]
