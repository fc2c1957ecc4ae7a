"""Search: exact, against every score in float64, for any tiles, blocks and threads; ``opera.search``."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from opera.core.errors import DataError, ModelError, SettingError
from opera.data import TextTable
from opera.data.texts import TEXT_SCHEMA
from opera.retrieval import nearest
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.models import load_model
from opera.retrieval.nearest import NearestDocuments, exact_search
from opera.retrieval.search import rank_by_size, search_corpus
from small_runs import unit_vectors

needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="needs faiss-cpu")


def table(ids: list[str]) -> TextTable:
    return TextTable(pa.table({"id": ids, "title": [""] * len(ids), "text": ["x"] * len(ids)}, schema=TEXT_SCHEMA))


def brute_force(queries: np.ndarray, docs: np.ndarray, ids: list[str], depth: int) -> Ranking:
    """Every score in float64, rounded to float32, and sorted by score and then by descending id."""
    scores = (queries.astype(np.float64) @ docs.T.astype(np.float64)).astype(np.float32) + np.float32(0)
    rank = np.argsort(np.argsort(np.array(ids)))
    rows = np.array([np.lexsort((-rank, -of_query))[:depth] for of_query in scores], dtype=int)
    rows = rows.reshape(len(queries), min(depth, len(docs)))
    return Ranking(rows.astype(np.int32), np.take_along_axis(scores, rows, axis=1))


def assert_same(found: Ranking, expected: Ranking) -> None:
    assert found.doc_rows.dtype == np.int32
    assert np.array_equal(found.doc_rows, expected.doc_rows)
    assert found.scores.tobytes() == expected.scores.tobytes()


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, list[str], int]:
    """Vectors of any signs and sizes; many documents are copies, or differ in the last bit."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_queries, n_docs, dimension = draw(st.integers(0, 40)), draw(st.integers(1, 150)), draw(st.integers(1, 40))
    queries, docs = unit_vectors(rng, n_queries, dimension), unit_vectors(rng, n_docs, dimension)
    docs = docs[rng.integers(0, draw(st.integers(1, n_docs)), n_docs)] * np.float32(
        draw(st.sampled_from([1, 1e-3, 40]))
    )
    nudged = rng.random(docs.shape) < draw(st.sampled_from([0, 0.02]))
    docs = np.where(nudged, np.nextafter(docs, np.float32(9)), docs).astype(np.float32)
    ids = [f"{number:03d}" for number in rng.permutation(n_docs)]
    return queries, docs, ids, draw(st.integers(1, 160))


@pytest.mark.parametrize("by_faiss", [False, pytest.param(True, marks=needs_faiss)])
@given(problem=problems(), size=st.integers(1, 4000), block=st.tuples(st.integers(1, 9), st.integers(1, 70)))
@settings(deadline=None, max_examples=25)
def test_it_finds_what_brute_force_finds(
    by_faiss: bool, problem: tuple[np.ndarray, np.ndarray, list[str], int], size: int, block: tuple[int, int]
) -> None:
    queries, docs, ids, depth = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "TILE_BYTES", size)
        patch.setattr(nearest, "BLOCK", block)
        patch.setattr(nearest, "MORE_BY_FAISS", 2)
        patch.setattr(nearest, "faiss_is_usable", lambda: by_faiss)
        found = exact_search(queries, docs, table(ids), depth)
    assert_same(found, brute_force(queries, docs, ids, depth))


@pytest.mark.parametrize(("similarity", "norm"), [("euclidean", 2), ("manhattan", 1)])
def test_distances_rank_as_brute_force_does(similarity: str, norm: int) -> None:
    """Small whole numbers: sums are exact, and many documents are equally far."""
    rng = np.random.default_rng(4)
    queries, docs = (rng.integers(-2, 3, size=(rows, 3)).astype(np.float32) for rows in (9, 150))
    ids = [f"{number:03d}" for number in rng.permutation(150)]
    scores = -np.linalg.norm(queries[:, None].astype(np.float64) - docs, norm, axis=2).astype(np.float32)
    rank = np.argsort(np.argsort(np.array(ids)))
    for depth, unit, block in ((7, 16, (4, 9)), (150, 400, (256, 2048)), (200, 1, (1, 1))):
        rows = np.array([np.lexsort((-rank, -of_query))[:depth] for of_query in scores])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nearest, "TILE_BYTES", 12 * unit)
            patch.setattr(nearest, "BLOCK", block)
            found = exact_search(queries, docs, table(ids), depth, similarity=similarity)
        expected = np.take_along_axis(scores, rows, axis=1) + np.float32(0)
        assert_same(found, Ranking(rows.astype(np.int32), expected))


@given(problem=problems())
@settings(deadline=None, max_examples=25)
def test_the_way_of_gpus_finds_the_same(problem: tuple[np.ndarray, np.ndarray, list[str], int]) -> None:
    """Torch picks what reaches the bound; on the CPU here, which tests the same lines."""
    queries, docs, ids, depth = problem
    make = NearestDocuments.__init__

    def as_on_a_gpu(self: NearestDocuments, *given: Any) -> None:
        make(self, *given)
        self._device = "cuda"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "DEVICE_BLOCK", (16, 50))
        patch.setattr(NearestDocuments, "__init__", as_on_a_gpu)
        assert_same(exact_search(queries, docs, table(ids), depth), brute_force(queries, docs, ids, depth))


def test_a_place_that_nothing_has_taken_holds_no_document() -> None:
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 1, 4), unit_vectors(rng, 3, 4)
    nearest = NearestDocuments(queries, table(["a", "b", "c"]), 3)
    nearest.add_some(0, np.array([1]), docs[1:2])
    ranking = nearest.ranking()
    assert ranking.doc_rows.dtype == np.int32
    assert ranking.doc_rows.tolist() == [[1, -1, -1]]
    assert np.isneginf(ranking.scores[0, 1:]).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_a_deep_ranking_change_nothing(threads: int) -> None:
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 20, 16), unit_vectors(rng, 3000, 16)
    ids, before = [f"{number:04d}" for number in rng.permutation(3000)], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for depth in (1, 2500, 3000, 10**9):
            assert_same(exact_search(queries, docs, table(ids), depth), brute_force(queries, docs, ids, depth))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("where", ["query", "document"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_embeddings_that_are_no_numbers_are_refused(where: str, number: float) -> None:
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 3, 8), unit_vectors(rng, 50, 8)
    (queries if where == "query" else docs)[2, 3] = number
    documents = table([f"{number:02d}" for number in range(50)])
    with pytest.raises(ModelError, match="search: embeddings hold values"):
        exact_search(queries, docs, documents, 5)


def test_embeddings_that_are_not_kept_are_searched_as_they_come(
    beir: Path, bert_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ranking to the last bit as of embeddings that are encoded first, and no more than a shard at a time."""
    monkeypatch.setattr("opera.encoder.embeddings.LEAST_ROWS", 32)
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


def test_many_queries_are_searched_for_in_parts(
    beir: Path, static_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, encoder = opera.load_data(beir), open_encoder(static_model)
    whole = rank_by_size(encoder, data, np.arange(30), 20, [24, 8])
    monkeypatch.setattr("opera.retrieval.search.QUERY_BYTES", 7 * (4 * encoder.dimension + 16 * 20))
    parts = rank_by_size(encoder, data, np.arange(30), 20, [24, 8])
    assert_same(parts[8], whole[8])
    assert_same(parts[24], whole[24])


def test_one_query_finds_what_the_corpus_ranking_has(beir: Path, static_model: Path) -> None:
    data = opera.load_data(beir)
    query_row = np.array([5])
    found = opera.search(data, data.queries.texts(query_row)[0], model=static_model, top=7)
    ranking = search_corpus(open_encoder(static_model), data, query_row, 7)
    assert [document.rank for document in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [document.id for document in found] == data.corpus.ids(ranking.doc_rows[0])
    assert [document.text for document in found] == data.corpus.texts(ranking.doc_rows[0])
    scores = [document.score for document in found]
    assert scores == pytest.approx(ranking.scores[0].tolist(), abs=1e-5)  # 24 float32 terms: 24·2⁻²⁴ on either side
    assert list(asdict(found[0])) == ["rank", "id", "score", "text", "good_enough"]
    assert len(opera.search(beir, "t1w1 t1w2", model=static_model)) == 5
    small = opera.RetrievalData.from_dicts("mine", corpus={"a": "t1w1", "b": "t2w1"}, queries={}, qrels={})
    assert [document.id for document in opera.search(small, "t2w1", model=static_model)] == ["b", "a"]


def test_bad_input_is_refused(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="query: must not be empty"):
        opera.search(beir, "  ", model=static_model)
    with pytest.raises(SettingError, match="top: must be 1 or more, got 0"):
        opera.search(beir, "a", model=static_model, top=0)
    with pytest.raises(ModelError, match="no such model folder"):
        opera.search(beir, "a", model=tmp_path / "absent")
