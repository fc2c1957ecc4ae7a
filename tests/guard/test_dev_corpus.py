"""The documents that dev queries are ranked among where encoding all of them takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from opera.config.recipe import make_recipe
from opera.data import Mixture, RetrievalData, load_all
from opera.guard import choice
from opera.guard.choice import best_documents, dev_corpus, reduced_corpus
from opera.retrieval.search import search_corpus
from opera.training.prepare import Prepared, load_and_check


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "GUARD_DOCUMENTS", 100)


@pytest.fixture(scope="module")
def prepared(beir: Path, bert_model: Path) -> Prepared:
    return load_and_check(load_all([beir]), str(bert_model), make_recipe({"method": "ft"}))


def reduced(prepared: Prepared, limit: int, seed: int = 0) -> np.ndarray:
    settings = prepared.settings.model_copy(update={"seed": seed})
    (best,) = best_documents(prepared.model.encoder, prepared.data.with_splits, settings)
    return rows_of(reduced_corpus(prepared.data.with_splits.joined, best, limit, settings))


def rows_of(data: RetrievalData) -> np.ndarray:
    """The rows of the documents in the whole corpus, which are the numbers in their ids."""
    return np.array([int(name.removeprefix("d")) for name in data.corpus.ids(np.arange(len(data.corpus)))])


def test_it_holds_the_relevant_documents_then_the_best_then_others(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "DEPTH", 1)
    relevant = np.unique(prepared.data.with_splits.joined.split("dev").relevant().doc_rows)
    queries = prepared.data.with_splits.joined.judged_qrels("dev").query_rows
    first = search_corpus(prepared.model.encoder, prepared.data.with_splits.joined, queries, 1).doc_rows.ravel()
    limit = len(np.union1d(relevant, first)) + 3
    rows = reduced(prepared, limit)
    assert len(rows) == limit
    assert np.isin(np.union1d(relevant, first), rows).all()
    assert (np.diff(rows) > 0).all()
    assert reduced(prepared, limit, seed=1).tolist() != rows.tolist()
    assert reduced(prepared, 1).tolist() == relevant.tolist(), "these are never left out"


def test_the_fine_tuned_models_best_documents_are_ranked_too(
    prepared: Prepared, beir: Path, bert_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "DEPTH", 1)
    (base,) = best_documents(prepared.model.encoder, prepared.data.with_splits, prepared.settings)
    calls = list[tuple[np.ndarray, Mixture]]()

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any) -> Mixture:
        calls.append((best[0], dev_corpus(data, best, settings)))
        return calls[-1][1]

    monkeypatch.setattr(choice, "dev_corpus", corpus)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    opera.adapt(beir, model=bert_model, out=tmp_path / "run", method="ft", bm25=False, **settings)
    [(best, dev)] = calls
    assert np.isin(base, best).all()
    assert np.setdiff1d(best, base).size, "training moved other documents to the top"
    assert np.isin(best, rows_of(dev.joined)).all()


def test_the_best_documents_of_keyword_search_are_ranked_too(
    beir: Path, bert_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[np.ndarray]()

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any) -> Mixture:
        calls.append(best[0])
        return dev_corpus(data, best, settings)

    monkeypatch.setattr(choice, "dev_corpus", corpus)
    monkeypatch.setattr(choice, "DEPTH", 3)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    run = opera.adapt(beir, model=bert_model, out=tmp_path / "run", method="ft", **settings)
    [best] = calls
    assert len(best) == 3 * run.record.guard.dev_queries  # type: ignore[union-attr]
    assert run.record.keywords is not None
