"""The training pairs, by query."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data.pairs import TrainingPairs


def test_subsets_renumber_queries() -> None:
    pairs = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2]), np.array([5, 6, 7, 8, 9]))
    kept, queries = pairs.subset(np.array([True, False, False, True, True]))
    assert kept.pair_query.tolist() == [0, 1, 1]
    assert kept.pair_doc.tolist() == [5, 8, 9]
    assert queries.tolist() == [0, 2]


@pytest.mark.parametrize("queries", [[], [1, 1], [1, 2], [0, 2], [1, 0], [0, 1, 0]])
def test_queries_out_of_order_or_with_gaps_are_refused(queries: list[int]) -> None:
    with pytest.raises(ValueError, match="must be sorted, start at 0 and skip no number"):
        TrainingPairs.from_arrays(np.array(queries, dtype=np.int32), np.zeros(len(queries), dtype=np.int32))


def test_counts_and_sums_are_by_query() -> None:
    pairs = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2]), np.array([5, 6, 7, 8, 9]))
    assert (pairs.n_queries, pairs.n_pairs) == (3, 5)
    assert pairs.positives_per_query.tolist() == [2, 1, 2]
    assert pairs.sum_by_query(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [3, 3, 9]
