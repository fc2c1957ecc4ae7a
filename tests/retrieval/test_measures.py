from __future__ import annotations

import ir_measures
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from opera.core.errors import SettingError
from opera.data import Qrels, TextTable
from opera.data.texts import TEXT_SCHEMA
from opera.retrieval.measures import FULL_MEASURES, Ranking, per_query
from opera.retrieval.search import exact_search


def table(ids: list[str]) -> TextTable:
    return TextTable(pa.table({"id": ids, "title": [""] * len(ids), "text": ["x"] * len(ids)}, schema=TEXT_SCHEMA))


@st.composite
def tied_problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[str], int]:
    """Vectors of few distinct values, so that scores tie often, and ids in no order."""
    dimension, n_docs, n_queries = 3, draw(st.integers(1, 40)), draw(st.integers(1, 4))
    values = st.lists(st.integers(-1, 1), min_size=dimension, max_size=dimension)
    docs = np.array(draw(st.lists(values, min_size=n_docs, max_size=n_docs)), dtype=np.float32)
    queries = np.array(draw(st.lists(values, min_size=n_queries, max_size=n_queries)), dtype=np.float32)
    ids = draw(st.permutations([f"d{i}" for i in range(n_docs)]))
    return queries, docs, ids, draw(st.integers(1, 45))


@given(tied_problems())
@settings(deadline=None)
def test_search_is_exact_and_breaks_ties_by_descending_id(
    problem: tuple[np.ndarray, np.ndarray, list[str], int],
) -> None:
    queries, docs, ids, depth = problem
    ranking = exact_search(queries, docs, table(ids), depth)
    for query, rows, scores in zip(queries, ranking.doc_rows, ranking.scores, strict=True):
        exact = docs @ query
        expected = sorted(sorted(range(len(ids)), key=lambda row: ids[row], reverse=True), key=lambda row: -exact[row])
        assert rows.tolist() == expected[:depth]
        assert np.array_equal(scores, exact[expected[:depth]])


def test_search_over_several_chunks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    queries, docs = (rng.integers(-2, 3, size=(n, 4)).astype(np.float32) for n in (11, 300))
    ids = [f"{i:03d}" for i in rng.permutation(300)]
    whole = exact_search(queries, docs, table(ids), 20)
    monkeypatch.setattr("opera.retrieval.search.CORPUS_CHUNK", 37)
    monkeypatch.setattr("opera.retrieval.search.QUERY_CHUNK", 4)
    parts = exact_search(queries, docs, table(ids), 20)
    assert np.array_equal(whole.doc_rows, parts.doc_rows)
    assert np.array_equal(whole.scores, parts.scores)


def problem(seed: int, n: int = 30, depth: int = 100, n_docs: int = 400) -> tuple[Ranking, Qrels]:
    rng = np.random.default_rng(seed)
    docs = np.stack([rng.permutation(n_docs)[:depth] for _ in range(n)]).astype(np.int32)
    scores = -np.sort(-rng.random((n, depth)).astype(np.float32), axis=1)
    query = np.repeat(np.arange(n), 12)
    judged = np.concatenate([rng.permutation(n_docs)[:12] for _ in range(n)])
    grades = rng.integers(0, 3, size=len(judged))
    grades[::12] = 1
    return Ranking(docs, scores), Qrels.of(query, judged, grades)


def test_measures_agree_with_trec_eval_on_the_scores_themselves() -> None:
    ranking, qrels = problem(1)
    names = [name for name in FULL_MEASURES if not name.startswith("retrieved")]
    ours = per_query(ranking, qrels, names)
    qrels = [
        ir_measures.Qrel(str(q), str(d), int(g))
        for q, d, g in zip(qrels.query_of, qrels.doc_rows, qrels.grades, strict=True)
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


def test_recall_is_not_capped_at_the_cutoff() -> None:
    ranking = Ranking(np.arange(100, dtype=np.int32)[None], np.arange(100, 0, -1, dtype=np.float32)[None])
    qrels = Qrels.of(np.zeros(40, dtype=int), np.arange(40), np.ones(40, dtype=int))
    assert per_query(ranking, qrels, ["R@20"])["R@20"][0] == 0.5


def test_unknown_measures_are_refused() -> None:
    ranking, qrels = problem(3)
    for name in ("NDCG@10", "nDCG", "nDCG@0", "Recall@10"):
        with pytest.raises(SettingError, match="unknown measure"):
            per_query(ranking, qrels, [name])
