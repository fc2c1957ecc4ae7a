"""Qrels and a teacher's scores as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data import Qrels, TeacherScores


def qrels() -> Qrels:
    """Query rows 3 and 8 in mixed order; 8 has no relevant document."""
    return Qrels.from_arrays(np.array([8, 3, 3, 8, 3]), np.array([5, 9, 2, 1, 4]), np.array([0, 1, 2, 0, 0]))


def test_they_are_sorted_by_query_then_document() -> None:
    made = qrels()
    assert made.query_rows.tolist() == [3, 8]
    assert made.offsets.tolist() == [0, 3, 5]
    assert made.doc_rows.tolist() == [2, 4, 9, 1, 5]
    assert made.grades.tolist() == [2, 0, 1, 0, 0]
    assert made.query_index.tolist() == [0, 0, 0, 1, 1]
    assert [a.dtype for a in (made.query_rows, made.offsets, made.doc_rows, made.grades)] == ["i4", "i8", "i4", "i4"]


def test_relevant_ones_and_selected_queries() -> None:
    made = qrels()
    assert made.has_relevant.tolist() == [True, False]
    assert made.relevant().query_rows.tolist() == [3]
    assert made.relevant().doc_rows.tolist() == [2, 9]
    other = made.select_queries(np.array([False, True]))
    assert (other.query_rows.tolist(), other.doc_rows.tolist()) == ([8], [1, 5])
    assert made.select_queries(np.array([False, False])).n_queries == 0


def test_pairs_number_the_queries_anew() -> None:
    pairs = qrels().relevant().pairs()
    assert pairs.pair_query.tolist() == [0, 0]
    assert pairs.pair_doc.tolist() == [2, 9]


def weighted() -> Qrels:
    return Qrels.from_arrays(np.array([2, 1, 1]), np.array([0, 5, 3]), np.array([1, 0, 1]), np.array([0.5, 3, 2]))


def test_weights_are_sorted_and_selected_with_the_judgements() -> None:
    made = weighted()
    assert made.weights is not None
    assert made.weights.tolist() == [2, 3, 0.5]
    assert made.weights.dtype == np.float32
    relevant = made.relevant().weights
    assert relevant is not None
    assert relevant.tolist() == [2, 0.5]
    assert qrels().weights is None


def test_a_union_gives_judgements_without_a_weight_the_weight_1() -> None:
    other = Qrels.from_arrays(np.array([1]), np.array([4]), np.array([1]))
    for union in (weighted().union(other), other.union(weighted())):
        assert union.weights is not None
        assert union.weights.tolist() == [2, 1, 3, 0.5]


@pytest.mark.parametrize("wrong", [-1, np.nan, np.inf])
def test_weights_below_0_or_not_finite_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite and 0 or more"):
        Qrels.from_arrays(np.array([0]), np.array([0]), np.array([1]), np.array([wrong]))


def test_scores_are_sorted_and_the_last_of_a_pair_counts() -> None:
    made = TeacherScores.from_arrays(np.array([2, 0, 2, 0]), np.array([1, 7, 1, 3]), np.array([0.1, 2, 0.9, 3]))
    assert made.query_rows.tolist() == [0, 0, 2]
    assert made.doc_rows.tolist() == [3, 7, 1]
    assert made.scores.tolist() == pytest.approx([3, 2, 0.9])
    assert [part.dtype for part in (made.query_rows, made.doc_rows, made.scores)] == ["i4", "i4", "f4"]


def test_lookup_gives_nan_where_there_is_no_score() -> None:
    made = TeacherScores.from_arrays(np.array([5, 1]), np.array([0, 2]), np.array([-4.0, 8.0]))
    found = made.lookup(np.array([[1], [5]]), np.array([0, 2, 9]))
    assert found.dtype == np.float32
    assert np.array_equal(found, np.array([[np.nan, 8, np.nan], [-4, np.nan, np.nan]]), equal_nan=True)
    empty = np.empty(0, dtype=np.int64)
    none = TeacherScores.from_arrays(empty, empty, empty.astype(float))
    assert len(none) == 0
    assert np.isnan(none.lookup(np.array([1, 2]), np.array([1, 2]))).all()
