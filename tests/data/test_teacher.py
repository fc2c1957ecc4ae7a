"""Scores of a teacher, looked up by pair."""

from __future__ import annotations

import numpy as np
import pytest

from opera.data import TeacherScores


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


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        TeacherScores.from_arrays(np.array([0]), np.array([0]), np.array([wrong]))
