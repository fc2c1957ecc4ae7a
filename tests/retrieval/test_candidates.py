"""MaxSim over candidates, against the exact search."""

import logging
import re

import numpy as np
import pytest

import opera
from opera.data import Mixture, TextTable
from opera.retrieval import search
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.kinds import MultiVector, candidates
from opera.retrieval.kinds.rows import NearestRows, TokenRows
from opera.retrieval.models import load_model
from opera.retrieval.nearest import exact_search
from opera.retrieval.vectors import Shards
from small_runs import SMALL

DOCUMENTS, QUERIES, DIMENSION = 60, 7, 8


def token_rows(rng: np.random.Generator, count: int, most_tokens: int) -> TokenRows:
    counts = rng.integers(1, most_tokens + 1, count)
    vectors = rng.integers(-4, 5, (counts.sum(), DIMENSION)) / 8  # all products are exact
    return TokenRows(vectors.astype(np.float16), np.cumsum([0, *counts]))


@pytest.fixture
def queries() -> TokenRows:
    return token_rows(np.random.default_rng(1), QUERIES, 4)


@pytest.fixture
def documents() -> TokenRows:
    half = token_rows(np.random.default_rng(2), DOCUMENTS // 2, 5)
    return TokenRows.joined([half, half])  # each document is there twice, so scores are equal


@pytest.fixture
def table() -> TextTable:
    order = np.random.default_rng(3).permutation(DOCUMENTS)
    return TextTable.from_texts({f"d{number:03d}": "text" for number in order.tolist()})


def ranked(nearest, documents, tile_rows=13):
    for first in range(0, len(documents), tile_rows):
        nearest.add(first, documents[first : first + tile_rows])
    return nearest.ranking()


def assert_equal(one, other):
    np.testing.assert_array_equal(one.doc_rows, other.doc_rows)
    np.testing.assert_array_equal(one.scores, other.scores)


@pytest.mark.parametrize("depth", [5, DOCUMENTS, DOCUMENTS + 3])
def test_with_all_documents_as_candidates_the_ranking_is_exact(queries, documents, table, depth):
    exact = exact_search(NearestRows(queries, table, depth, None), documents)
    assert_equal(ranked(candidates.NearestCandidates(queries, table, depth), documents), exact)


@pytest.mark.parametrize("tile_rows", [1, 13, DOCUMENTS])
def test_candidates_have_the_best_means_and_get_their_maxsim(queries, documents, table, tile_rows, monkeypatch):
    monkeypatch.setattr(candidates, "CANDIDATES", 20)
    monkeypatch.setattr(candidates, "PRODUCTS", 100)  # several blocks of queries
    ranking = ranked(candidates.NearestCandidates(queries, table, 6), documents, tile_rows)
    means = (queries.means.astype(float) @ documents.means.astype(float).T).astype(np.float32)
    scores = documents.products(queries)
    for query in range(QUERIES):
        best = np.lexsort((table.id_rank, means[query]))[::-1][:20]
        order = np.lexsort((table.id_rank[best], scores[query, best]))[::-1][:6]
        assert ranking.doc_rows[query].tolist() == best[order].tolist()
        np.testing.assert_array_equal(ranking.scores[query], scores[query, best[order]])


def test_processes_merge_their_candidates(queries, documents, table, monkeypatch):
    monkeypatch.setattr(candidates, "CANDIDATES", 20)
    expected = ranked(candidates.NearestCandidates(queries, table, 6), documents)
    parts = [candidates.NearestCandidates(queries, table, 6) for _ in range(2)]
    parts[0].add(0, documents[:37])
    parts[1].add(37, documents[37:])
    others = iter([parts[1]._candidates, parts[1]._scores])
    monkeypatch.setattr(candidates, "everywhere", lambda work: [work(), next(others)])
    parts[0].merge_processes()
    assert_equal(parts[0].ranking(), expected)


def test_files_hold_the_means(documents, tmp_path):
    shards = Shards(DOCUMENTS, 32)
    for number, name in enumerate(shards.names(MultiVector.suffix)):
        MultiVector.write(tmp_path / name, documents[shards.rows(number)])
    stored = MultiVector.stored(tmp_path, shards)
    parts = list(stored.within_shards(slice(10, 50)))
    assert [(first, len(part)) for first, part in parts] == [(10, 22), (32, 18)]
    assert all(part.known_means is not None for _, part in parts)
    np.testing.assert_array_equal(np.concatenate([part.means for _, part in parts]), documents.means[10:50])


def test_few_documents_and_passages_are_compared_exactly(queries, table, monkeypatch):
    nearest = candidates.nearest_tokens
    assert type(nearest(queries, table, 5)) is NearestRows
    monkeypatch.setattr(candidates, "EXACT_DOCUMENTS", DOCUMENTS - 1)
    assert type(nearest(queries, table, 5)) is candidates.NearestCandidates
    assert type(nearest(queries, table, 5, np.arange(DOCUMENTS))) is NearestRows


class TestDoors:
    @pytest.fixture
    def few(self, monkeypatch):
        monkeypatch.setattr(candidates, "EXACT_DOCUMENTS", 50)
        monkeypatch.setattr(candidates, "CANDIDATES", 12)
        candidates._log_candidates.cache_clear()

    def test_an_evaluation_says_how_much_of_the_exact_top_it_finds(self, few, beir, kind_models, caplog, monkeypatch):
        monkeypatch.setattr(search, "MEASURED_QUERIES", 4)
        with caplog.at_level(logging.INFO, logger="opera"):
            result = opera.evaluate(beir, model=kind_models / "tokens", measures="nDCG@10")
        assert caplog.text.count("MaxSim compares each query with 12 of them, found by mean vectors") == 1
        assert result.index["candidates per query"] == 12
        encoder = Encoder(load_model(kind_models / "tokens", "cpu"))
        data = opera.load_data(beir)
        rows = data.judged_qrels("test").query_rows
        rows = rows[np.linspace(0, len(rows) - 1, 4).astype(int)]
        queries, documents = encoder.encode_queries(data, rows)[:], encoder.encode_corpus(data).rows[:]
        exact = np.argsort(-documents.products(queries), axis=1)[:, :10]
        best = np.argsort(-(queries.means @ documents.means.T), axis=1)[:, :12]
        found = np.mean([np.isin(*pair) for pair in zip(exact, best, strict=True)])
        assert 0 < found < 1
        assert result.index["% of the exact top 10 found on 4 test queries"] == pytest.approx(100 * found)

    def test_an_exact_evaluation_says_nothing(self, beir, kind_models):
        index = opera.evaluate(beir, model=kind_models / "tokens", measures="nDCG@10").index
        assert not any("exact" in name for name in index)

    def test_embeddings_need_no_cache(self, few, beir, kind_models, tmp_path, monkeypatch):
        monkeypatch.setenv("OPERA_CACHE", str(tmp_path))  # another test may have encoded in other batches
        data, model = Mixture.of(opera.load_data(beir)), load_model(kind_models / "tokens", "cpu")
        rankings = [
            evaluate_encoder(Encoder(model, use_cache=use_cache), data, "test", ["nDCG@10"]).ranking
            for use_cache in (True, False)
        ]
        np.testing.assert_array_equal(*(ranking.doc_rows for ranking in rankings))

    def test_a_run_says_so_on_dev(self, few, beir, kind_models, tmp_path):
        call = {**SMALL, "method": "ft", "max_steps": 2}
        run = opera.adapt(beir, model=kind_models / "tokens", out=tmp_path / "run", **call)
        for facts in run.record.index.values():
            assert facts["candidates per query"] == 12
            assert any(re.fullmatch(r"% of the exact top 10 found on \d+ dev queries", name) for name in facts)
        assert "% of the exact top 10 found on" in " ".join(run.headlines)

    def test_a_search_ranks_candidates(self, few, beir, kind_models):
        found = opera.search(beir, "t1w5 t1w6", model=kind_models / "tokens", top=20)
        assert len(found) == 20  # more candidates, because the search is deeper than 12
        scores = [document.score for document in found]
        assert scores == sorted(scores, reverse=True)
