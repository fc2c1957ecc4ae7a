"""The documents that dev queries are ranked among where encoding all of them takes long."""

import shutil
from typing import Any

import numpy as np
import pytest

import opera
from opera.data import Mixture, RetrievalData
from opera.guard import choice
from opera.guard import dev_corpus as dev_corpora
from opera.guard.dev_corpus import best_documents, dev_corpus, predicted_best_documents, reduced_corpus
from opera.retrieval.encoder import Encoder
from opera.retrieval.search import search_corpus
from opera.training import trainer
from opera.training.prepare import Prepared, encoder_of
from small_runs import prepare


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    monkeypatch.setattr(dev_corpora, "GUARD_DOCUMENTS", 100)


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
    monkeypatch.setattr(dev_corpora, "DEPTH", 1)
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
    monkeypatch.setattr(dev_corpora, "DEPTH", 1)
    (base,) = best_documents(prepared.model.encoder, prepared.data.with_splits, prepared.settings)
    calls = list[tuple[np.ndarray, Mixture]]()

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any, limit: int) -> Mixture:
        calls.append((best[0], dev_corpus(data, best, settings, limit)))
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

    def corpus(data: Mixture, best: list[np.ndarray], settings: Any, limit: int) -> Mixture:
        calls.append(best[0])
        return dev_corpus(data, best, settings, limit)

    monkeypatch.setattr(choice, "dev_corpus", corpus)
    monkeypatch.setattr(dev_corpora, "DEPTH", 3)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    run = train(model=bert_model, method="ft", **settings)
    [best] = calls
    assert len(best) == 3 * run.record.guard.dev_queries
    assert run.record.keywords is not None


def test_the_best_documents_of_a_fine_tuned_model_are_predicted_from_few_documents(prepared, monkeypatch):
    monkeypatch.setattr(dev_corpora, "DEPTH", 5)
    base, data, settings = prepared.model.encoder, prepared.data.with_splits, prepared.settings
    encoded = list[int]()
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(base.dimension, base.dimension)))[0]

    class Rotated(Encoder):
        """Its embeddings are those of the base model, turned, so that a linear map predicts them exactly."""

        def _vectors(self, source: Any, rows: Any, *arguments: Any) -> np.ndarray:
            if source.task == "document":
                encoded.append(len(rows))
            return super()._vectors(source, rows, *arguments) @ rotation.astype(np.float32)

    tuned = Rotated(base.model, use_cache=False)
    best = best_documents(base, data, settings)
    embeddings = [base.encode_corpus(data.joined, settings.corpus_text)]
    (predicted,) = predicted_best_documents(embeddings, tuned, data, best, settings)
    sample = dev_corpus(data, best, settings, dev_corpora.GUARD_DOCUMENTS // 2)
    assert sum(encoded) == len(sample.joined.corpus) < len(data.joined.corpus)
    # the penalty of the regression moves some scores a little, so near ties may swap
    assert np.mean([np.isin(*rows).mean() for rows in zip(best[0], predicted, strict=True)]) > 0.95


def test_a_static_model_ranks_a_part_of_a_large_corpus(train, monkeypatch):
    monkeypatch.setattr(dev_corpora, "STATIC_GUARD_DOCUMENTS", 100)
    run = train(method="ft")
    assert run.record.guard.dev_documents == 100
    assert "fine_tuned" in run.measures


def test_a_large_corpus_is_not_encoded_once_more_for_the_fine_tuned_model_alone(train, bert_model, monkeypatch):
    monkeypatch.setattr(choice, "choose_weight", lambda *arguments: 0.5)
    run = train(model=bert_model, method="ft", max_steps=2, per_device_train_batch_size=8, refit=False)
    assert run.record.guard.test.fine_tuned is None
    assert list(run.measures) == ["base", "final", "bm25", "hybrid"]
    assert "fine-tuned |" not in (run.model_path / "README.md").read_text()
    assert "<th>fine-tuned</th>" not in opera.report(run.path).read_text()


def test_evaluations_during_training_rank_a_part_of_a_large_corpus(train, bert_model, monkeypatch):
    sizes = list[int]()
    evaluate = trainer.evaluate_encoder

    def watch(encoder: Encoder, mixture: Mixture, *arguments: Any) -> Any:
        sizes.append(len(mixture.joined.corpus))
        return evaluate(encoder, mixture, *arguments)

    monkeypatch.setattr(trainer, "evaluate_encoder", watch)
    settings = {"max_steps": 2, "eval_steps": 1, "per_device_train_batch_size": 8}
    train(model=bert_model, method="ft", **settings)
    assert sizes == [100, 100]


def test_a_cache_that_is_cleared_during_a_training_gets_the_base_models_embeddings_again(
    train, prepared, bert_model, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    choose, seen = choice.Guard.choose, list[np.ndarray]()

    def clear(guard: choice.Guard, fine_tuned: choice.Weights) -> Any:
        shutil.rmtree(tmp_path / "cache")
        return choose(guard, fine_tuned)

    def predict(embeddings: Any, *arguments: Any) -> Any:
        seen.append(embeddings[0].rows[:])
        return predicted_best_documents(embeddings, *arguments)

    monkeypatch.setattr(choice.Guard, "choose", clear)
    monkeypatch.setattr(choice, "predicted_best_documents", predict)
    settings = {"max_steps": 3, "per_device_train_batch_size": 8, "learning_rate": 0.05, "refit": False}
    train(model=bert_model, method="ft", **settings)
    without_cache = encoder_of(prepared.model.encoder.model, prepared.settings)
    base = without_cache.encode_corpus(prepared.data.with_splits.joined, prepared.settings.corpus_text).rows
    np.testing.assert_allclose(seen[0], base, atol=1e-5)  # other batches round differently
