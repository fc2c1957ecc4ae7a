"""Exact search, its ties, and ``opera.search``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from opera.config.recipe import make_recipe
from opera.core.errors import DataError, ModelError, SettingError
from opera.data import TextTable
from opera.data.texts import TEXT_SCHEMA
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.models import load_model
from opera.retrieval.search import NearestDocuments, exact_search, rank_by_size, search_corpus


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


def test_embeddings_that_are_not_kept_are_searched_as_they_come(
    beir: Path, bert_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ranking to the last bit as of embeddings that are encoded first, and no more than a shard at a time."""
    monkeypatch.setattr("opera.encoder.shards.LEAST_ROWS", 32)
    data, query_rows = opera.load_data(beir), np.arange(30)
    encoder = Encoder(load_model(bert_model, "cpu"), batch_size=1, use_cache=False)
    expected = exact_search(encoder.encode_queries(data, query_rows), encoder.encode_corpus(data), data.corpus, 20)
    seen = []
    add = NearestDocuments.add
    monkeypatch.setattr(NearestDocuments, "add", lambda self, *tile: [seen.append(len(tile[1])), add(self, *tile)])
    monkeypatch.setattr(Encoder, "encode_corpus", None)
    found = search_corpus(encoder, data, query_rows, 20)
    assert np.array_equal(found.doc_rows, expected.doc_rows)
    assert np.array_equal(found.scores, expected.scores)
    assert seen == [32, 32, 32, 24]


def test_the_memory_of_a_search_decides_on_its_parts_alone(
    beir: Path, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting of a run that changes no result: the ranking is the same to the last bit."""
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    data, query_rows, parts = opera.load_data(beir), np.arange(30), []
    put = Ranking.put
    monkeypatch.setattr(Ranking, "put", lambda self, part, found: [parts.append(part), put(self, part, found)])
    model = load_model(static_model, "cpu")
    encoders = [Encoder(model, use_cache=True, search_memory=memory) for memory in (2**28, 2**14)]
    first, second = (rank_by_size(each, data, query_rows, 20, [each.dimension])[each.dimension] for each in encoders)
    assert len(parts) == 1 + 3
    assert np.array_equal(first.doc_rows, second.doc_rows)
    assert np.array_equal(first.scores, second.scores)
    recipes = [make_recipe({"search_memory": memory}) for memory in (16, 256)]
    assert recipes[0].identity() == recipes[1].identity()
    assert [recipe.train.search_bytes for recipe in recipes] == [2**24, 2**28]


class TestSearch:
    def test_it_finds_what_the_corpus_ranking_has(self, beir: Path, static_model: Path) -> None:
        data = opera.load_data(beir)
        query_row = np.array([5])
        found = opera.search(data, data.queries.texts(query_row)[0], model=static_model, top=7)
        ranking = search_corpus(open_encoder(static_model), data, query_row, 7)
        assert [document.rank for document in found] == [1, 2, 3, 4, 5, 6, 7]
        assert [document.id for document in found] == data.corpus.ids(ranking.doc_rows[0])
        assert [document.text for document in found] == data.corpus.texts(ranking.doc_rows[0])
        scores = [document.score for document in found]
        assert scores == pytest.approx(ranking.scores[0].tolist(), abs=1e-5)  # 24 float32 terms: 24·2⁻²⁴ on either side
        assert list(asdict(found[0])) == ["rank", "id", "score", "text"]

    def test_it_reads_data_and_returns_five(self, beir: Path, static_model: Path) -> None:
        assert len(opera.search(beir, "t1w1 t1w2", model=static_model)) == 5

    def test_a_small_corpus_is_returned_whole(self, static_model: Path) -> None:
        data = opera.RetrievalData.from_dicts("mine", corpus={"a": "t1w1", "b": "t2w1"}, queries={}, qrels={})
        assert [document.id for document in opera.search(data, "t2w1", model=static_model)] == ["b", "a"]

    def test_bad_input_is_refused(self, beir: Path, static_model: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="query: must not be empty"):
            opera.search(beir, "  ", model=static_model)
        with pytest.raises(SettingError, match="top: must be 1 or more, got 0"):
            opera.search(beir, "a", model=static_model, top=0)
        with pytest.raises(ModelError, match="no such model folder"):
            opera.search(beir, "a", model=tmp_path / "absent")
