"""Measures, against trec_eval, scikit-learn and their definitions."""

from collections.abc import Sequence
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from opera.core.errors import DataError, SettingError
from opera.data import Qrels
from opera.retrieval import measures
from opera.retrieval.measures import FULL_MEASURES, Measure, Ranking, check_trec_ids, parse_measures, write_trec_run
from tiny_world import data_from_dicts


def per_query(ranking: Ranking, qrels: Qrels, names: Sequence[str | Measure]) -> dict[str, np.ndarray]:
    """As an evaluation measures, by names."""
    return measures.per_query(ranking, qrels, parse_measures(names))


def problem(seed: int, n: int = 30, depth: int = 100, n_docs: int = 400) -> tuple[Ranking, Qrels]:
    rng = np.random.default_rng(seed)
    docs = np.stack([rng.permutation(n_docs)[:depth] for _ in range(n)]).astype(np.int32)
    scores = -np.sort(-rng.random((n, depth)).astype(np.float32), axis=1)
    query = np.repeat(np.arange(n), 12)
    judged = np.concatenate([rng.permutation(n_docs)[:12] for _ in range(n)])
    grades = rng.integers(0, 3, size=len(judged))
    grades[::12] = 1
    return Ranking(docs, scores), Qrels.from_arrays(query, judged, grades)


def test_measures_agree_with_trec_eval_on_the_scores_themselves():
    ranking, qrels = problem(1)
    names = [*(name for name in FULL_MEASURES if not name.startswith("retrieved")), "AP", "P(rel=2)@5", "Judged@10"]
    ours = per_query(ranking, qrels, names)
    qrels = [
        ir_measures.Qrel(str(q), str(d), int(g))
        for q, d, g in zip(qrels.query_index, qrels.doc_rows, qrels.grades, strict=True)
    ]
    run = [
        ir_measures.ScoredDoc(str(q), str(d), float(s))
        for q in range(len(ranking.doc_rows))
        for d, s in zip(ranking.doc_rows[q], ranking.scores[q], strict=True)
    ]
    for name in names:
        expected = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.parse_measure(name)], qrels, run)}
        assert np.allclose(ours[name], [expected[str(q)] for q in range(len(ranking.doc_rows))]), name


def test_a_measure_without_a_cutoff_reads_1000_documents_whatever_else_is_measured():
    ranking, qrels = problem(3, depth=1200, n_docs=2000)
    alone = per_query(Ranking(ranking.doc_rows[:, :1000], ranking.scores[:, :1000]), qrels, ["AP"])
    together = per_query(ranking, qrels, ["AP", "nDCG@1200", "AP@1200"])
    assert np.array_equal(alone["AP"], together["AP"])
    assert (together["AP@1200"] > together["AP"]).any()


@pytest.mark.parametrize("cutoff", [1, 10, 100])
def test_retrieved_ideal_ndcg_is_sklearns_over_the_retrieved_documents(cutoff):
    ranking, qrels = problem(2, depth=120)
    ours = per_query(ranking, qrels, [f"retrieved_ideal_nDCG@{cutoff}"])[f"retrieved_ideal_nDCG@{cutoff}"]
    for query in range(qrels.n_queries):
        part = slice(qrels.offsets[query], qrels.offsets[query + 1])
        relevant = qrels.doc_rows[part][qrels.grades[part] > 0]
        labels = np.isin(ranking.doc_rows[query][:100], relevant).astype(float)
        assert ours[query] == pytest.approx(ndcg_score([labels], [np.arange(100, 0, -1)], k=cutoff))


def test_a_registered_measure_gets_grades_and_the_number_of_relevant_documents():
    ranking, qrels = problem(4, depth=20)

    def recall(grades: np.ndarray, relevant: np.ndarray, cutoff: int) -> np.ndarray:
        assert set(np.unique(grades)) <= {0, *qrels.grades[qrels.grades > 0]}
        return (grades[:, :cutoff] > 0).sum(axis=1) / relevant

    values = per_query(ranking, qrels, [Measure("recall@10", recall, 10), Measure.parse("R@10")])
    assert np.allclose(values["recall@10"], values["R@10"])


def test_a_line_per_query_and_rank(tmp_path):
    ranking = Ranking(np.array([[2, 0], [1, 2]]), np.array([[1 / 3, 0.25], [2e-10, -1]], dtype=np.float32))
    data = data_from_dicts("mine", corpus=dict.fromkeys("abc", "text"), queries={"q": "text"}, qrels={})
    write_trec_run(tmp_path / "run.trec", ["q0", "qé"], ranking, data)
    assert (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines() == [
        "q0 Q0 c 1 0.333333343 opera",
        "q0 Q0 a 2 0.25 opera",
        "qé Q0 b 1 2.00000003e-10 opera",
        "qé Q0 c 2 -1 opera",
    ]


@pytest.mark.parametrize(("query", "doc"), [("q 0", "a"), ("q0", "a b"), ("q0", "a\u00a0b")])
def test_ids_with_white_space_are_refused(query, doc):
    texts = {"corpus": {"c": "text", doc: "text"}, "queries": {query: "text"}}
    data = data_from_dicts("mine", **texts, qrels={"test": {query: {"c": 1}}})
    with pytest.raises(DataError):
        check_trec_ids(Path("x.run"), data, "test")


@pytest.mark.parametrize("wrong", [0.5, [1.0], [0.5, float("nan")]])
def test_a_registered_measure_must_return_a_number_per_query(wrong):
    qrels = Qrels.from_arrays(np.array([0, 1]), np.array([0, 1]), np.array([1, 1]))
    ranking = Ranking(np.array([[0, 1], [0, 1]]), np.ones((2, 2), dtype=np.float32))
    with pytest.raises(SettingError, match="measure 'half@2': its function must return a finite number"):
        per_query(ranking, qrels, [Measure("half@2", lambda *arguments: wrong, 2)])
