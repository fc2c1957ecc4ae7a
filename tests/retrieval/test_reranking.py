"""Reranking: a cross-encoder sorts the best documents, the rest keeps its order, and changes are paired."""

from pathlib import Path

import numpy as np
import pytest

import opera
from backbones import write_reranker
from opera.data import load_data
from opera.retrieval.measures import Ranking
from opera.retrieval.reranker import open_reranker
from opera.retrieval.reranking import rerank
from opera.run_folder.summary import Change
from small_runs import SMALL

FULL = {"precision": "fp32"}


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory) -> Path:
    return write_reranker(tmp_path_factory.mktemp("reranker") / "model")


def test_the_first_documents_are_sorted_by_score_and_the_rest_stays(beir, cross_encoder):
    data, reranker = load_data(beir), open_reranker(cross_encoder, **FULL)
    query_rows = data.judged_qrels("test").query_rows
    doc_rows = np.random.default_rng(0).permuted(np.tile(np.arange(9, dtype=np.int32), (len(query_rows), 1)), axis=1)
    doc_rows[0, 3:] = -1  # BM25 finds few documents
    doc_rows[1, 7:] = -1
    scores = np.where(doc_rows < 0, -np.inf, -np.arange(9.0)).astype(np.float32)
    result = rerank(reranker, data, "test", Ranking(doc_rows, scores), 5)
    for query, row in enumerate(query_rows):
        first = doc_rows[query, :5][doc_rows[query, :5] >= 0]
        of_pairs = reranker.score_pairs(data, np.full(len(first), row), first)
        expected = dict(zip(first.tolist(), of_pairs.tolist(), strict=True))
        scored = zip(result.doc_rows[query].tolist(), result.scores[query].tolist(), strict=True)
        assert dict(list(scored)[: len(first)]) == pytest.approx(expected, abs=2e-5)  # batches are padded otherwise
    assert (result.doc_rows[:, 5:] == doc_rows[:, 5:]).all()
    assert (result.scores[:, 1:] <= result.scores[:, :-1]).all()
    assert (np.isfinite(result.scores) == (result.doc_rows >= 0)).all()


def test_evaluate_compares_a_reranker_with_bm25(beir, cross_encoder, static_model):
    measures = ("nDCG@10", "R@5", "R@50")
    result = opera.evaluate(beir, reranker=cross_encoder, depth=20, measures=measures, **FULL)
    keywords = opera.evaluate(beir, model=static_model, measures=measures, bm25=True).bm25
    assert result.measures == keywords.measures
    reranked = result.reranked
    assert reranked.pairs == (result.ranking.doc_rows[:, :20] >= 0).sum()
    assert reranked.seconds_per_query > 0
    assert reranked.changes["R@50"].difference == 0  # an order of 20 documents decides nothing at rank 50
    differences = reranked.per_query["nDCG@10"] - result.per_query["nDCG@10"]
    assert reranked.changes["nDCG@10"] == Change.of(differences)
    assert differences.any()
    again = opera.evaluate(beir, reranker=cross_encoder, depth=20, measures=measures, **FULL).reranked
    assert again.measures == reranked.measures
    assert again.seconds_per_query is None  # the scores came from the cache


def test_the_first_stage_is_a_model_or_a_run(beir, second, cross_encoder, trained, static_model, caplog):
    options = {"reranker": cross_encoder, "depth": 110, **FULL}  # deeper than the measures need
    by_model = opera.evaluate(beir, first_stage=static_model, **options)
    assert by_model.measures == opera.evaluate(beir, model=static_model, bm25=False).measures
    assert by_model.ranking.doc_rows.shape[1] == 110
    assert by_model.reranked.pairs == 110 * len(by_model.query_ids)
    of_run = opera.evaluate(trained.path, first_stage=trained.path, **options)
    assert of_run.measures == opera.evaluate(trained.path, bm25=False).measures
    by_words = opera.evaluate(trained.path, **options)  # the run's data and splits
    assert by_words.measures == opera.evaluate(trained.path, bm25=True).bm25.measures


def test_prompts_are_the_rerankers(beir, cross_encoder, bert_model):
    options = {"reranker": cross_encoder, "first_stage": bert_model, "measures": "nDCG@10", **FULL}
    plain = opera.evaluate(beir, **options)
    prompted = opera.evaluate(beir, query_prompt="common1 common2 ", document_prompt="common3 ", **options)
    assert prompted.measures == plain.measures
    assert (prompted.reranked.ranking.scores != plain.reranked.ranking.scores).any()
    short = opera.evaluate(beir, max_length=8, **options)
    assert (short.reranked.ranking.scores != plain.reranked.ranking.scores).any()


def test_several_data_sets_are_reranked_each_in_its_documents(beir, second, cross_encoder, static_model, tmp_path):
    run = opera.adapt(beir, also=[second], model=static_model, out=tmp_path / "run", **SMALL)
    result = opera.evaluate(run.path, reranker=cross_encoder, depth=10, measures="nDCG@10", **FULL)
    alone = opera.evaluate(second, reranker=cross_encoder, depth=10, measures="nDCG@10", **FULL)
    assert result.reranked.sets["second"].measures == alone.reranked.measures
    assert result.reranked.pairs == sum((part.ranking.doc_rows[:, :10] >= 0).sum() for part in result.sets.values())
