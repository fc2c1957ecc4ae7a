"""The documents that dev queries are ranked among where encoding all of them takes long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.data.qrels import TeacherScores
from opera.retrieval.search import search_corpus
from opera.training.guard import dev_corpus as dev_corpus_module
from opera.training.guard.dev_corpus import (
    DevCorpus,
    dev_corpus,
    dev_values,
    reduced_corpus,
    untrained_values,
)
from opera.training_set.prepare import Prepared, load_and_check
from small_runs import SMALL


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_corpus_module, "GUARD_DOCUMENTS", 100)


@pytest.fixture(scope="module")
def prepared(beir: Path, bert_model: Path) -> Prepared:
    return load_and_check(opera.load_data(beir), str(bert_model), make_recipe({"method": "ft"}))


def relevant_rows(prepared: Prepared) -> np.ndarray:
    return np.unique(prepared.data.drawn.split("dev").relevant().doc_rows)


def test_it_holds_the_relevant_documents_then_the_best_then_others(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opera.training.guard.dev_corpus.DEPTH", 1)
    relevant = relevant_rows(prepared)
    queries = prepared.data.drawn.judged_qrels("dev").query_rows
    first = search_corpus(prepared.model.encoder, prepared.data.drawn, queries, 1).doc_rows.ravel()
    limit = len(np.union1d(relevant, first)) + 3
    rows = reduced_corpus(prepared.model.encoder, prepared.data.drawn, limit, "title_text", 0).rows
    assert rows is not None
    assert len(rows) == limit
    assert np.isin(relevant, rows).all()
    assert np.isin(first, rows).all()
    assert (np.diff(rows) > 0).all()
    other_seed = reduced_corpus(prepared.model.encoder, prepared.data.drawn, limit, "title_text", 1).rows
    assert other_seed is not None
    assert other_seed.tolist() != rows.tolist()


def test_relevant_documents_are_never_left_out(prepared: Prepared) -> None:
    rows = reduced_corpus(prepared.model.encoder, prepared.data.drawn, 1, "title_text", 0).rows
    assert rows is not None
    assert rows.tolist() == relevant_rows(prepared).tolist()


def test_the_reduced_split_is_the_same_but_for_the_documents(prepared: Prepared) -> None:
    reduced = dev_corpus(prepared.model.encoder, prepared.data.drawn, prepared.settings)
    assert reduced.rows is not None
    assert len(reduced.data.corpus) == len(reduced.rows) == 100
    whole, part = prepared.data.drawn.judged_qrels("dev"), reduced.data.judged_qrels("dev")
    assert part.query_rows.tolist() == whole.query_rows.tolist()
    ids = [
        data.corpus.ids(qrels.relevant().doc_rows)
        for data, qrels in ((prepared.data.drawn, whole), (reduced.data, part))
    ]
    assert ids[0] == ids[1]
    assert reduced.data.fingerprint != prepared.data.drawn.fingerprint


def test_the_untrained_model_is_measured_as_by_encoding_again(prepared: Prepared) -> None:
    dev = dev_corpus(prepared.model.encoder, prepared.data.drawn, prepared.settings)
    from_cache = untrained_values(prepared.model.encoder, prepared.data.drawn, dev, prepared.settings)
    np.testing.assert_array_equal(from_cache, dev_values(prepared.model.encoder, dev, prepared.settings))
    whole = untrained_values(
        prepared.model.encoder, prepared.data.drawn, DevCorpus(prepared.data.drawn), prepared.settings
    )
    assert (whole <= from_cache + 1e-12).all()  # fewer documents can only move the relevant ones up


def test_a_static_model_ranks_all_documents(beir: Path, static_model: Path) -> None:
    static = load_and_check(opera.load_data(beir), str(static_model), make_recipe({"method": "ft"}))
    assert dev_corpus(static.model.encoder, static.data.drawn, static.settings).rows is None


def test_a_run_says_how_many_documents_it_ranked(
    beir: Path, bert_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="opera"):
        run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", **SMALL)
    assert run.record.guard is not None
    assert run.record.guard.dev_documents == 100
    assert "dev queries are ranked among 100 of 120 documents" in caplog.text


def test_scores_of_a_teacher_are_of_other_rows(prepared: Prepared) -> None:
    scores = TeacherScores.from_arrays(np.array([0]), np.array([0]), np.array([1.0]))
    scored = replace(prepared.data.drawn, teacher=scores)
    assert reduced_corpus(prepared.model.encoder, scored, 1, "title_text", 0).data.teacher is None
