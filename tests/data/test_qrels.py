"""Qrels, training pairs and a teacher's scores as arrays."""

import numpy as np
import pytest

from opera.data import Qrels, TeacherScores
from opera.data.pairs import TrainingPairs


def qrels() -> Qrels:
    """Query rows 3 and 8 in mixed order; 8 has no relevant document."""
    return Qrels.from_arrays(np.array([8, 3, 3, 8, 3]), np.array([5, 9, 2, 1, 4]), np.array([0, 1, 2, 0, 0]))


def weighted() -> Qrels:
    return Qrels.from_arrays(np.array([2, 1, 1]), np.array([0, 5, 3]), np.array([1, 0, 1]), np.array([0.5, 3, 2]))


def weights(judgements: Qrels) -> list[float]:
    assert judgements.weights.dtype == np.float32
    return judgements.weights.tolist()


def test_judgements_are_sorted_by_query_then_document():
    judgements = qrels()
    assert judgements.query_rows.tolist() == [3, 8]
    assert judgements.offsets.tolist() == [0, 3, 5]
    assert judgements.doc_rows.tolist() == [2, 4, 9, 1, 5]
    assert judgements.grades.tolist() == [2, 0, 1, 0, 0]
    assert judgements.query_index.tolist() == [0, 0, 0, 1, 1]
    assert weights(weighted()) == [2, 3, 0.5]


def test_relevant_judgements_and_selected_queries_keep_their_weights():
    assert qrels().has_relevant.tolist() == [True, False]
    assert qrels().relevant().query_rows.tolist() == [3]
    assert qrels().relevant().doc_rows.tolist() == [2, 9]
    assert weights(weighted().relevant()) == [2, 0.5]
    selected = qrels().select_queries(np.array([False, True]))
    assert (selected.query_rows.tolist(), selected.doc_rows.tolist()) == ([8], [1, 5])
    assert qrels().select_queries(np.array([False, False])).n_queries == 0


def test_a_union_gives_judgements_without_a_weight_the_weight_1():
    unweighted = Qrels.from_arrays(np.array([1]), np.array([4]), np.array([1]))
    for union in (weighted().union(unweighted), unweighted.union(weighted())):
        assert weights(union) == [2, 1, 3, 0.5]


def test_subsets_of_pairs_renumber_queries():
    pairs = TrainingPairs.from_arrays(np.array([0, 0, 1, 2, 2]), np.array([5, 6, 7, 8, 9]))
    subset, queries = pairs.subset(np.array([True, False, False, True, True]))
    assert subset.pair_query.tolist() == [0, 1, 1]
    assert subset.pair_doc.tolist() == [5, 8, 9]
    assert queries.tolist() == [0, 2]


def test_scores_are_sorted_and_the_last_of_a_pair_counts():
    teacher = TeacherScores.from_arrays(np.array([2, 0, 2, 0]), np.array([1, 7, 1, 3]), np.array([0.1, 2, 0.9, 3]))
    assert teacher.query_rows.tolist() == [0, 0, 2]
    assert teacher.doc_rows.tolist() == [3, 7, 1]
    assert teacher.scores.tolist() == pytest.approx([3, 2, 0.9])


def test_lookup_gives_nan_where_there_is_no_score():
    teacher = TeacherScores.from_arrays(np.array([5, 1]), np.array([0, 2]), np.array([-4.0, 8.0]))
    scores = teacher.lookup(np.array([[1], [5]]), np.array([0, 2, 9]))
    assert np.array_equal(scores, np.array([[np.nan, 8, np.nan], [-4, np.nan, np.nan]]), equal_nan=True)


def test_scores_have_a_fingerprint_and_may_be_rounded_cosines_and_weights_are_0_or_more():
    one = np.array([1])
    scored = {score: TeacherScores.from_arrays(one, one, np.array([score])) for score in (-1.0005, 1.0005, 1.01)}
    assert [teacher.are_cosines for teacher in scored.values()] == [True, True, False]
    assert len({teacher.fingerprint for teacher in scored.values()}) == 3
    with pytest.raises(ValueError, match="0 or more"):
        Qrels.from_arrays(one, one, one, np.array([-1.0]))
