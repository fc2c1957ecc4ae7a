"""The documents that dev queries are ranked among where encoding all of them takes long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.data.teacher import TeacherScores
from opera.retrieval.search import search_corpus
from opera.training.guard.dev_corpus import (
    DevCorpus,
    dev_corpus,
    dev_values,
    judged_and_sampled,
    reduced_corpus,
    untrained_values,
)
from opera.training_set.prepare import Prepared, prepare
from small_runs import SMALL


@pytest.fixture(scope="module")
def prepared(beir: Path, bert_model: Path) -> Prepared:
    return prepare(opera.load_data(beir), str(bert_model), make_recipe({"method": "ft", "guard_documents": 100}))


def relevant_rows(prepared: Prepared) -> np.ndarray:
    return np.unique(prepared.data.split("dev").relevant().doc_rows)


def test_it_holds_the_relevant_documents_then_the_best_then_others(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.training.guard.dev_corpus.DEPTH", 1)
    relevant = relevant_rows(prepared)
    queries = prepared.data.judged_qrels("dev").query_rows
    first = search_corpus(prepared.encoder, prepared.data, queries, 1).doc_rows.ravel()
    limit = len(np.union1d(relevant, first)) + 3
    rows = reduced_corpus(prepared.encoder, prepared.data, limit, "title_text", 0).rows
    assert rows is not None
    assert len(rows) == limit
    assert np.isin(relevant, rows).all()
    assert np.isin(first, rows).all()
    assert (np.diff(rows) > 0).all()
    other_seed = reduced_corpus(prepared.encoder, prepared.data, limit, "title_text", 1).rows
    assert other_seed is not None
    assert other_seed.tolist() != rows.tolist()


def test_relevant_documents_are_never_left_out(prepared: Prepared) -> None:
    rows = reduced_corpus(prepared.encoder, prepared.data, 1, "title_text", 0).rows
    assert rows is not None
    assert rows.tolist() == relevant_rows(prepared).tolist()


def test_the_reduced_split_is_the_same_but_for_the_documents(prepared: Prepared) -> None:
    reduced = dev_corpus(prepared.encoder, prepared.data, prepared.settings)
    assert reduced.rows is not None
    assert len(reduced.data.corpus) == len(reduced.rows) == 100
    whole, part = prepared.data.judged_qrels("dev"), reduced.data.judged_qrels("dev")
    assert part.query_rows.tolist() == whole.query_rows.tolist()
    ids = [data.corpus.ids(qrels.relevant().doc_rows) for data, qrels in ((prepared.data, whole), (reduced.data, part))]
    assert ids[0] == ids[1]
    assert reduced.data.fingerprint != prepared.data.fingerprint


def test_the_untrained_model_is_measured_as_by_encoding_again(prepared: Prepared) -> None:
    dev = dev_corpus(prepared.encoder, prepared.data, prepared.settings)
    from_cache = untrained_values(prepared.encoder, prepared.data, dev, prepared.settings)
    np.testing.assert_array_equal(from_cache, dev_values(prepared.encoder, dev, prepared.settings))
    whole = untrained_values(prepared.encoder, prepared.data, DevCorpus(prepared.data), prepared.settings)
    assert (whole <= from_cache + 1e-12).all()  # fewer documents can only move the relevant ones up


def test_a_static_model_ranks_all_documents(beir: Path, static_model: Path) -> None:
    static = prepare(opera.load_data(beir), str(static_model), make_recipe({"method": "ft", "guard_documents": 100}))
    assert dev_corpus(static.encoder, static.data, static.settings).rows is None


def test_a_run_says_how_many_documents_it_ranked(
    beir: Path, bert_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", guard_documents=100, **SMALL)
    assert run.record.guard is not None
    assert run.record.guard.dev_documents == 100
    assert "dev queries are ranked among 100 of 120 documents" in caplog.text


class TestJudgedAndSampled:
    def test_it_keeps_what_is_judged_and_draws_the_rest_by_the_seed(self, prepared: Prepared) -> None:
        data = prepared.data
        judged = set(data.corpus.ids(np.unique(data.judged_qrels("dev").doc_rows)))
        sampled = [judged_and_sampled(data, 7, "title_text", seed) for seed in (0, 0, 1)]
        found = [set(each.corpus.ids()) for each in sampled]
        assert all(judged < ids and len(ids) == len(judged) + 7 for ids in found)
        assert found[0] == found[1] != found[2]
        part, whole = sampled[0].judged_qrels("dev"), data.judged_qrels("dev")
        assert sampled[0].corpus.ids(part.doc_rows) == data.corpus.ids(whole.doc_rows)
        assert len(judged_and_sampled(data, 10**6, "title_text", 0).corpus) == len(data.corpus)

    def test_a_run_names_its_measure_for_it(self, beir: Path, static_model: Path, tmp_path: Path) -> None:
        measured = {}
        for sample in (None, 20):
            own = {} if sample is None else {"eval_corpus_sample": sample}
            settings = {**SMALL, "max_steps": 4, "eval_steps": 2, "load_best_model_at_end": True, "guard": False}
            run = opera.adapt(beir, model=static_model, out=tmp_path / f"run{sample}", **{**settings, **own})
            record = run.record.training
            assert record is not None
            measured[record.measure] = dict(record.evaluations)
            assert record.best_value == max(measured[record.measure].values())
            assert set(run.record.settings) >= {"eval_corpus_sample"}
        full, sampled = measured["nDCG@10"], measured["nDCG@10 (judged + 20 sampled)"]
        assert full.keys() == sampled.keys() == {2, 4}
        assert all(sampled[step] >= full[step] for step in full)  # fewer documents move the relevant ones up
        assert sampled != full


def test_scores_of_a_teacher_are_of_other_rows(prepared: Prepared) -> None:
    scores = TeacherScores.from_arrays(np.array([0]), np.array([0]), np.array([1.0]))
    scored = replace(prepared.data, teacher=scores)
    assert reduced_corpus(prepared.encoder, scored, 1, "title_text", 0).data.teacher is None
