"""The updated ranking and its top K, against reading every score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.methods._order_statistics.query_ranking import QueryRanking
from worlds import make_pairs, make_scores, top_k_of


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 2**31))
def test_an_updated_ranking_equals_one_built_from_scratch(counts: list[int], seed: int) -> None:
    pairs, rng = make_pairs(counts), np.random.default_rng(seed)
    scores = make_scores(pairs, seed)
    ranking = QueryRanking(pairs, scores.loss, -1)
    for _ in range(5):
        drawn = rng.integers(pairs.n_pairs, size=8)
        change = scores.observe(drawn, rng.random(8), rng.integers(3, size=8))
        ranking.update(pairs.pair_query[change.pair_ids])
        assert np.array_equal(ranking.scores(), (-scores.mean_loss()).astype(np.float32))
        for count in (0, 1, len(counts) // 2, len(counts)):
            assert ranking.top_k(count) == top_k_of(ranking.scores(), count)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_top_queries_are_exactly_so_many_of_the_highest(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    score = np.array(values, dtype=np.float32)
    probabilities = top_k_of(score, count).probabilities(score)
    assert probabilities.sum() == pytest.approx(count)
    if 0 < count < len(values):
        assert score[probabilities > 0].min() >= score[probabilities < 1].max()
        assert len(np.unique(score[(probabilities > 0) & (probabilities < 1)])) <= 1
