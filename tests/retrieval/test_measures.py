"""Measures, against trec_eval, scikit-learn and their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from opera.core.errors import DataError
from opera.data import Qrels, RetrievalData
from opera.retrieval import measures
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.measures import (
    FULL_MEASURES,
    Ranking,
    check_trec_ids,
    parse_measures,
    ranking_depth,
    write_trec_run,
)


def per_query(ranking: Ranking, qrels: Qrels, names: Sequence[str]) -> dict[str, np.ndarray]:
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


def test_measures_agree_with_trec_eval_on_the_scores_themselves() -> None:
    ranking, qrels = problem(1)
    names = [name for name in FULL_MEASURES if not name.startswith("retrieved")]
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


@pytest.mark.parametrize("cutoff", [1, 10, 100])
def test_retrieved_ideal_ndcg_is_sklearns_over_the_retrieved_documents(cutoff: int) -> None:
    ranking, qrels = problem(2, depth=120)
    ours = per_query(ranking, qrels, [f"retrieved_ideal_nDCG@{cutoff}"])[f"retrieved_ideal_nDCG@{cutoff}"]
    for query in range(qrels.n_queries):
        part = slice(qrels.offsets[query], qrels.offsets[query + 1])
        relevant = qrels.doc_rows[part][qrels.grades[part] > 0]
        labels = np.isin(ranking.doc_rows[query][:100], relevant).astype(float)
        assert ours[query] == pytest.approx(ndcg_score([labels], [np.arange(100, 0, -1)], k=cutoff))


def test_a_measure_without_a_cutoff_sees_a_thousand_documents() -> None:
    for names, depth in (
        (["nDCG@10"], 100), (["nDCG@10", "R@200", "retrieved_ideal_nDCG@50"], 200), (["R@200", "AP"], 1000)
    ):  # fmt: skip
        assert ranking_depth(parse_measures(names)) == depth


def by_hand(name: str, grades: np.ndarray, judged: np.ndarray, all_grades: np.ndarray) -> float:
    """Compute a measure of one query from the grades of its ranked documents, 0 if unjudged, and of all judged ones."""
    relevant, ranks = grades > 0, np.arange(1, len(grades) + 1)
    if name == "AP":
        return float((relevant * np.cumsum(relevant) / ranks).sum() / (all_grades > 0).sum())
    if name == "P@5":
        return float(relevant[:5].mean())
    if name == "P(rel=2)@5":
        return float((grades[:5] >= 2).mean())
    if name == "Judged@10":
        return float(judged[:10].mean())
    if name == "nDCG(dcg='exp-log2')@10":
        ideal = np.sort(all_grades)[::-1][:10]
        gains, best = ((2.0**g - 1) / np.log2(np.arange(2, len(g) + 2)) for g in (grades[:10], ideal))
        return float(gains.sum() / best.sum())
    assert name == "ERR@20"
    stops = (2.0 ** grades[:20] - 1) / 16
    return float((stops * np.cumprod([1, *(1 - stops[:-1])]) / ranks[:20]).sum())


@pytest.mark.parametrize("name", ["AP", "P@5", "P(rel=2)@5", "Judged@10", "nDCG(dcg='exp-log2')@10", "ERR@20"])
def test_any_measure_of_ir_measures_can_be_asked_for(name: str) -> None:
    """Each is computed by the first of its providers that is installed, and agrees with its definition."""
    if not ir_measures.DefaultPipeline.supports(ir_measures.parse_measure(name)):
        pytest.skip("its provider needs perl")
    ranking, qrels = problem(4)
    values = per_query(ranking, qrels, [name])[name]
    for query in range(qrels.n_queries):
        part = slice(qrels.offsets[query], qrels.offsets[query + 1])
        grade_of = dict(zip(qrels.doc_rows[part].tolist(), qrels.grades[part].tolist(), strict=True))
        grades = np.array([grade_of.get(doc, 0) for doc in ranking.doc_rows[query].tolist()])
        judged = np.isin(ranking.doc_rows[query], qrels.doc_rows[part])
        # gdeval prints five decimals: off by half a unit of the last one at most
        assert values[query] == pytest.approx(by_hand(name, grades, judged, qrels.grades[part]), abs=5.1e-6)


def evaluated(query_ids: list[str]) -> Evaluation:
    ranking = Ranking(np.array([[2, 0], [1, 2]]), np.array([[1 / 3, 0.25], [2e-10, -1]], dtype=np.float32))
    return Evaluation("test", query_ids, {}, ranking, [])


def data_of(doc_ids: list[str]) -> RetrievalData:
    return RetrievalData.from_dicts("mine", corpus=dict.fromkeys(doc_ids, "text"), queries={"q": "text"}, qrels={})


def test_a_line_per_query_and_rank(tmp_path: Path) -> None:
    write_trec_run(tmp_path / "run.trec", evaluated(["q0", "qé"]), data_of(["a", "b", "c"]))
    assert (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines() == [
        "q0 Q0 c 1 0.333333343 opera",
        "q0 Q0 a 2 0.25 opera",
        "qé Q0 b 1 2.00000003e-10 opera",
        "qé Q0 c 2 -1 opera",
    ]


@pytest.mark.parametrize(("query", "doc"), [("q 0", "a"), ("q0", "a b"), ("q0", "a\u00a0b")])
def test_ids_with_white_space_are_refused(query: str, doc: str) -> None:
    texts = {"corpus": {"c": "text", doc: "text"}, "queries": {query: "text", "not judged": "text"}}
    data = RetrievalData.from_dicts("mine", **texts, qrels={"test": {query: {"c": 1}}})
    with pytest.raises(DataError, match=r"^x\.run: a TREC run cannot hold the id '.*': it has white space$"):
        check_trec_ids(Path("x.run"), data, "test")
    with pytest.raises(DataError, match="white space"):
        check_trec_ids(Path("x.run"), data, "of the run")
