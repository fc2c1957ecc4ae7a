"""The documents that dev queries are ranked among where encoding all of them takes long."""

from typing import Any

import numpy as np
import pytest

from opera.data import Mixture, RetrievalData
from opera.guard import choice
from opera.guard.choice import best_documents, dev_corpus, reduced_corpus
from opera.retrieval.search import search_corpus
from opera.training.prepare import Prepared
from small_runs import prepare


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    monkeypatch.setattr(choice, "GUARD_DOCUMENTS", 100)


@pytest.fixture(scope="module")
def prepared(beir, bert_model) -> Prepared:
    return prepare(beir, bert_model, method="ft")


def reduced(prepared: Prepared, limit: int, seed: int = 0) -> np.ndarray:
    settings = prepared.settings.model_copy(update={"seed": seed})
    (best,) = best_documents(prepared.model.encoder, prepared.data.with_splits, settings)
    return rows_of(reduced_corpus(prepared.data.with_splits.joined, best, limit, settings))


def rows_of(data: RetrievalData) -> np.ndarray:
    """The rows of the documents in the whole corpus, which are the numbers in their ids."""
    return np.array([int(name.removeprefix("d")) for name in data.corpus.ids(np.arange(len(data.corpus)))])


def test_it_holds_the_relevant_documents_then_the_best_then_others(prepared, monkeypatch):
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


def test_the_fine_tuned_models_best_documents_are_ranked_too(train, prepared, bert_model, monkeypatch):
    monkeypatch.setattr(choice, "DEPTH", 1)
    (base,) = best_documents(prepared.model.encoder, prepared.data.with_splits, prepared.settings)
    calls = list[tuple[np.ndarray, Mixture]]()

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any) -> Mixture:
        calls.append((best[0], dev_corpus(data, best, settings)))
        return calls[-1][1]

    monkeypatch.setattr(choice, "dev_corpus", corpus)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    train(model=bert_model, method="ft", bm25=False, **settings)
    [(best, dev)] = calls
    assert np.isin(base, best).all()
    assert np.setdiff1d(best, base).size, "training moved other documents to the top"
    assert np.isin(best, rows_of(dev.joined)).all()


def test_the_best_documents_of_keyword_search_are_ranked_too(train, bert_model, monkeypatch):
    calls = list[np.ndarray]()

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any) -> Mixture:
        calls.append(best[0])
        return dev_corpus(data, best, settings)

    monkeypatch.setattr(choice, "dev_corpus", corpus)
    monkeypatch.setattr(choice, "DEPTH", 3)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    run = train(model=bert_model, method="ft", **settings)
    [best] = calls
    assert len(best) == 3 * run.record.guard.dev_queries
    assert run.record.keywords is not None
