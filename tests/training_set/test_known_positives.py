"""The table of known positives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opera.data.pairs import TrainingPairs
from opera.training_set.documents import KnownPositives


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, unique=True))
def test_known_positives_are_exactly_the_pairs(drawn: list[tuple[int, int]]) -> None:
    queries = sorted({q for q, _ in drawn})
    renumbered = sorted((queries.index(q), d) for q, d in drawn)
    made = TrainingPairs.from_arrays(np.array([q for q, _ in renumbered]), np.array([d for _, d in renumbered]))
    table = KnownPositives.of(made).contains(np.arange(len(queries))[:, None], np.arange(10))
    assert {(int(q), int(d)) for q, d in zip(*np.nonzero(table), strict=True)} == set(renumbered)
    few = np.arange(1, 10, 2)
    among = {(int(q), int(few[place])) for q, place in zip(*KnownPositives.of(made).among(few), strict=True)}
    assert among == {(query, document) for query, document in renumbered if document % 2}
    left = KnownPositives.of(made).without(made.pair_query[1::2], made.pair_doc[1::2])
    assert np.array_equal(left.contains(made.pair_query, made.pair_doc), np.arange(made.n_pairs) % 2 == 0)
