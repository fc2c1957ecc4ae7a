"""Counts of scores and their top K, against sorting every score."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opera.methods.counts import Counts, bucket_of, upper_edge
from opera.methods.dynamic import query_scores
from worlds import make_pairs, make_scores, top_k_of

number = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)


@given(st.lists(number, min_size=1, max_size=40), st.lists(st.tuples(st.integers(0, 39), number), max_size=30))
def test_counts_moved_are_those_of_the_numbers_now(values: list[float], changes: list[tuple[int, float]]) -> None:
    now = np.array(values)
    counts = Counts(now)
    for number, value in changes:
        place = [number % len(now)]
        counts.move(now[place], np.array([value]))
        now[place] = value
    ascending = np.sort(bucket_of(now))
    assert [counts.bucket_at(rank) for rank in range(len(now))] == ascending.tolist()
    for count in range(len(now) + 1):
        assert counts.top_k(count) == top_k_of(now, count)


@given(st.floats(-100, 100))
def test_a_number_lies_between_the_edges_of_its_bucket(value: float) -> None:
    bucket = int(bucket_of(np.array([value]))[0])
    rounding = 1e-12 * (1 + abs(value)) ** 2  # a few float64 operations near 1, over the derivative of x/(1 + |x|)
    assert upper_edge(bucket - 1) - rounding <= value <= upper_edge(bucket) + rounding
    if abs(value) <= 1:
        assert upper_edge(bucket) - upper_edge(bucket - 1) < 1e-5


@given(st.lists(st.sampled_from([1, 2, 3, 7, 30, 300]), min_size=1, max_size=20), st.integers(0, 2**31))
def test_scores_of_some_queries_are_those_of_all_to_the_bit(counts: list[int], seed: int) -> None:
    """Counts are moved by the scores of a batch's queries; one bit of difference would lose a query for good."""
    pairs, rng = make_pairs(counts), np.random.default_rng(seed)
    queries = np.unique(rng.integers(pairs.n_queries, size=8))
    scores = make_scores(pairs, seed)
    for kind in ("negative_loss", "similarity"):
        every = query_scores(scores, kind)  # type: ignore[arg-type]
        assert np.array_equal(query_scores(scores, kind, queries), every[queries])  # type: ignore[arg-type]
