"""Search: exact, against every score in float64, for any tiles, blocks and threads; ``opera.search``."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from opera.core.processor import processor_defaults
from opera.data import TextTable
from opera.data.texts import TEXT_SCHEMA
from opera.retrieval import nearest, vectors
from opera.retrieval.encoder import open_encoder
from opera.retrieval.measures import Ranking
from opera.retrieval.nearest import NearestDocuments, exact_search
from opera.retrieval.search import search_corpus
from small_runs import search_as_on_a_gpu, unit_vectors
from tiny_world import data_from_dicts


def table(ids: list[str]) -> TextTable:
    return TextTable(pa.table({"id": ids, "title": [""] * len(ids), "text": ["x"] * len(ids)}, schema=TEXT_SCHEMA))


def ranked(scores: np.ndarray, ids: list[str], depth: int) -> Ranking:
    """Documents sorted by score and then by descending id."""
    rank = np.argsort(np.argsort(np.array(ids)))
    rows = np.array([np.lexsort((-rank, -of_query))[:depth] for of_query in scores], dtype=int)
    rows = rows.reshape(len(scores), min(depth, len(ids)))
    return Ranking(rows.astype(np.int32), np.take_along_axis(scores, rows, axis=1) + np.float32(0))


def brute_force(queries: np.ndarray, docs: np.ndarray, ids: list[str], depth: int) -> Ranking:
    """Every score in float64, rounded to float32, and sorted."""
    return ranked((queries.astype(np.float64) @ docs.T.astype(np.float64)).astype(np.float32), ids, depth)


def assert_same(ranking: Ranking, expected: Ranking) -> None:
    assert ranking.doc_rows.dtype == np.int32
    assert np.array_equal(ranking.doc_rows, expected.doc_rows)
    assert ranking.scores.tobytes() == expected.scores.tobytes()


def search_all(queries: np.ndarray, docs: Any, documents: TextTable, depth: int, **options: Any) -> Ranking:
    return exact_search(NearestDocuments(queries, documents, depth, **options), docs)


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


@given(
    problem=problems(),
    size=st.integers(1, 4000),
    block=st.tuples(st.integers(1, 9), st.integers(1, 70)),
)
@settings(deadline=None, max_examples=25)
def test_it_finds_what_brute_force_finds(problem, size, block):
    queries, docs, ids, depth = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "TILE_BYTES", size)
        patch.setattr(nearest, "QUERIES", block[0])
        patch.setattr(nearest, "DOCUMENTS", block[1])
        ranking = search_all(queries, docs, table(ids), depth)
    assert_same(ranking, brute_force(queries, docs, ids, depth))


@pytest.mark.parametrize(("similarity", "norm"), [("euclidean", 2), ("manhattan", 1)])
def test_distances_rank_as_brute_force_does(similarity, norm):
    """Small expected numbers: sums are exact, and many documents are equally far."""
    rng = np.random.default_rng(4)
    queries, docs = (rng.integers(-2, 3, size=(rows, 3)).astype(np.float32) for rows in (9, 150))
    ids = [f"{number:03d}" for number in rng.permutation(150)]
    scores = -np.linalg.norm(queries[:, None].astype(np.float64) - docs, norm, axis=2).astype(np.float32)
    for depth, unit, block in ((7, 16, (4, 9)), (200, 400, (256, 2048))):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vectors, "TILE_BYTES", 12 * unit)
            patch.setattr(nearest, "QUERIES", block[0])
            patch.setattr(nearest, "DOCUMENTS", block[1])
            ranking = search_all(queries, docs, table(ids), depth, similarity=similarity)
        assert_same(ranking, ranked(scores, ids, depth))


@given(problem=problems())
@settings(deadline=None, max_examples=25)
def test_the_way_of_gpus_finds_the_same(problem):
    """Torch picks what reaches the bound; on the CPU here, which tests the same lines."""
    queries, docs, ids, depth = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "GPU_QUERIES", 16)
        patch.setattr(nearest, "GPU_DOCUMENTS", 50)
        search_as_on_a_gpu(patch)
        assert_same(search_all(queries, docs, table(ids), depth), brute_force(queries, docs, ids, depth))


def test_a_query_of_zeros_takes_memory_for_its_own_candidates_only(monkeypatch):
    """All documents are equally good, and a block of a GPU has 65,536."""
    rng, n_docs = np.random.default_rng(0), 2**16
    queries, docs = unit_vectors(rng, 512, 2), unit_vectors(rng, n_docs, 2)
    queries[7] = 0
    documents = table([f"{number:05d}" for number in rng.permutation(n_docs)])
    documents.id_rank  # noqa: B018  once per corpus
    search_as_on_a_gpu(monkeypatch)
    tracemalloc.start()  # counts NumPy's arrays, not torch's
    try:
        ranking = search_all(queries, docs, documents, 3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ranking.doc_rows[7].tolist() == np.argsort(documents.id_rank)[::-1][:3].tolist()
    padded = 16 * queries.shape[0] * n_docs
    assert peak < padded / 20


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads in the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_threads_libraries_and_a_deep_ranking_change_nothing(library, monkeypatch):
    defaults = processor_defaults()._replace(product_library=library)
    monkeypatch.setattr(nearest, "processor_defaults", lambda: defaults)
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 3 * nearest.LEAST_QUERIES, 16), unit_vectors(rng, 3000, 16)
    ids = [f"{number:04d}" for number in rng.permutation(3000)]
    with torch_threads(3):
        for depth in (1, 2500, 10**9):
            assert_same(search_all(queries, docs, table(ids), depth), brute_force(queries, docs, ids, depth))
        assert torch.get_num_threads() == 3


def test_vectors_on_disk_are_searched_by_shard(tmp_path):
    """Large shards are not copied: each tile is within one. Small shards are copied into one tile."""
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 5, 8), unit_vectors(rng, 1500, 8)
    shards = vectors.Shards(1500, 512)
    for number, name in enumerate(shards.names()):
        vectors.write_shard(tmp_path / name, docs[shards.rows(number)])
    stored, ids = vectors.Embeddings(tmp_path, shards), [f"{number:04d}" for number in range(1500)]
    for block, lengths in ((512, [112, 512, 476]), (513, [1100])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vectors, "LEAST_TILE", block)
            parts = [(first, tile.copy()) for first, tile in vectors.tiles(stored, slice(400, 1500), 5)]
            assert_same(search_all(queries, stored, table(ids), 9), brute_force(queries, docs, ids, 9))
        assert [len(tile) for _, tile in parts] == lengths
        assert all(np.array_equal(tile, docs[first : first + len(tile)]) for first, tile in parts)


@pytest.mark.parametrize("similarity", ["cosine", "manhattan"])
def test_threads_keep_one_passage_of_each_document(similarity):
    rng = np.random.default_rng(1)
    queries, docs = unit_vectors(rng, 3 * nearest.LEAST_QUERIES, 8), unit_vectors(rng, 900, 8)
    ids, doc_rows = table([f"{number:03d}" for number in range(300)]), np.repeat(np.arange(300), 3)
    rankings = []
    for threads in (1, 3):
        with torch_threads(threads):
            rankings.append(search_all(queries, docs, ids, 7, doc_rows=doc_rows, similarity=similarity))
    assert_same(*rankings)


def test_threads_keep_the_best_of_exact_scores():
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 50, (3 * nearest.LEAST_QUERIES, 400)).astype(np.float32)
    ids = [f"{number:03d}" for number in rng.permutation(400)]
    best = nearest.BestDocuments(len(scores), table(ids), 9)
    with torch_threads(3):
        for first, last in ((0, 150), (150, 400)):
            best.add_scores(first, slice(0, len(scores)), scores[:, first:last])
    assert_same(best.ranking(), ranked(scores, ids, 9))


def test_an_error_in_a_thread_leaves_the_number_of_threads():
    def work(part: slice) -> None:
        raise ValueError(part)

    with torch_threads(3):
        with pytest.raises(ValueError, match="slice"):
            nearest._in_threads(work, 100, torch_multiplies=True)
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_embeddings_that_are_no_numbers_are_refused(number):
    rng = np.random.default_rng(0)
    queries, docs = unit_vectors(rng, 3, 8), unit_vectors(rng, 50, 8)
    docs[2, 3] = number
    with pytest.raises(opera.ModelError):
        search_all(queries, docs, table([f"{number:02d}" for number in range(50)]), 5)


def test_one_query_finds_what_the_corpus_ranking_has(beir, static_model):
    data = opera.load_data(beir)
    query_row = np.array([5])
    documents = opera.search(data, data.queries.texts(query_row)[0], model=static_model, top=7)
    ranking = search_corpus(open_encoder(static_model), data, query_row, 7)
    assert [document.rank for document in documents] == [1, 2, 3, 4, 5, 6, 7]
    assert [document.id for document in documents] == data.corpus.ids(ranking.doc_rows[0])
    assert [document.text for document in documents] == data.corpus.texts(ranking.doc_rows[0])
    scores = [document.score for document in documents]
    assert scores == pytest.approx(ranking.scores[0].tolist(), abs=1e-5)  # 24 float32 terms: 24·2⁻²⁴ on either side
    small = data_from_dicts("mine", corpus={"a": "t1w1", "b": "t2w1"}, queries={}, qrels={})
    assert [document.id for document in opera.search(small, "t2w1", model=static_model)] == ["b", "a"]
