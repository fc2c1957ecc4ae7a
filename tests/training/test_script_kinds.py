"""``opera.PairPruning`` with sparse and multi-vector models and cross-encoders: each loss with each method."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers.cross_encoder import losses as reranker
from sentence_transformers.multi_vector_encoder.losses import (
    MultiVectorMarginMSELoss,
    MultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores, mean_colbert_scores
from sentence_transformers.sparse_encoder import losses as sparse
from sentence_transformers.util import cos_sim, euclidean_sim, maxsim, mean_maxsim
from torch.nn import functional as F
from transformers import TrainerCallback

import opera
from opera.retrieval.kinds import kind_of
from opera.training.loss_readers import Changes, reader_of
from own_scripts import draws_of, weights_of
from script_kinds import LOSSES, SPLADE, open_kind, ranking, script_arguments, train_kind, write_models

METHODS = ("sp", "rp", "dp", "infobatch", "denoise")
ALIKE = ("cached splade", "maxsim in blocks", "cached maxsim", "cached ranking")
"""Losses that compute what another one computes, so not every method needs a test."""
CASES = [
    (loss, method)
    for loss in LOSSES
    for method in METHODS
    if (loss, method) != ("binary", "denoise") and (loss not in ALIKE or method in ("dp", "infobatch"))
]


@pytest.fixture(autouse=True)
def _in_full_precision(monkeypatch):
    """The scores are compared with the library's, on processors with bf16 too."""
    monkeypatch.setattr("opera.retrieval.encoder.resolve_precision", lambda *arguments: "fp32")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return write_models(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def labelled(dataset) -> Dataset:
    """The pairs, and two wrong documents for every second query; the last query has only wrong documents."""
    questions, answers = dataset["question"], dataset["answer"]
    rows = [(question, answer, 1) for question, answer in zip(questions[:-1], answers, strict=False)]
    rows += [(questions[row], answers[row - offset], 0) for row in range(0, 40, 2) for offset in (5, 7)]
    rows += [("common1 common2 common3", answers[0], 0)]
    order = np.random.default_rng(0).permutation(len(rows))
    return Dataset.from_list([dict(zip(("question", "answer", "label"), rows[row], strict=True)) for row in order])


def scores_of(model: Any, loss: str, queries: list[str], documents: list[str]) -> torch.Tensor:
    """The scores of all queries and documents, by sentence-transformers' own functions."""
    kind = LOSSES[loss][0]
    if kind == "reranker":
        pairs = [(query, document) for query in queries for document in documents]
        logits = model.predict(pairs, activation_fn=torch.nn.Identity())
        return torch.from_numpy(logits).view(len(queries), -1)
    embeddings = model.encode_query(queries), model.encode_document(documents)
    return maxsim(*embeddings) if kind == "multi-vector" else embeddings[0].to_dense() @ embeddings[1].to_dense().T


def watch_observations(pruning: opera.PairPruning) -> list[Any]:
    """Return a list that gets the rows, the similarity, the loss and the p-value of each batch."""
    (batches,) = pruning.batches
    observe, seen = batches.observe, list[Any]()

    def keep(observations: Any) -> None:
        weights = batches.batch(observations.pair_ids).weights
        rows = batches.data_set.row_of_pair[observations.pair_ids].tolist()
        seen.append((rows, *observations[1:], weights))
        observe(observations)

    batches.observe = keep
    return seen


@pytest.mark.parametrize(("loss", "method"), CASES)
def test_each_loss_trains_with_each_method(loss, method, models, dataset, labelled, tmp_path):
    """The observations are those of sentence-transformers' own functions."""
    rows = labelled if loss == "binary" else dataset
    model, args = open_kind(models, loss), script_arguments(tmp_path, loss)
    texts, kind = rows.to_dict(), LOSSES[loss][0]
    settings = {"k": 0.9} if method == "sp" else {}
    pruning = opera.PairPruning(model, rows, method, args=args, **settings)
    watched, seen, values = LOSSES[loss][2](model), watch_observations(pruning), list[Any]()
    watched.register_forward_hook(lambda module, inputs, value: values.append(value))
    before, attributes = weights_of(model), set(vars(watched))
    all_scores = scores_of(model, loss, texts["question"], texts["answer"])
    train_kind(pruning, args, loss, watched)
    assert weights_of(model) != before
    assert set(vars(watched)) == attributes
    assert len(seen) == pruning.samplers[0].trained_steps == 3

    batch, similarity, losses, p, _ = seen[0]  # of the base model
    scores = all_scores[batch][:, batch]
    np.testing.assert_allclose(similarity, scores.diagonal(), rtol=1e-4, atol=1e-4)
    assert np.isnan(p).all() if loss == "binary" else (p[~np.isnan(p)] > 0).all() and (p[~np.isnan(p)] < 1).all()
    for (*_, losses_of_batch, _, weights), value in zip(seen, values, strict=True):
        of_pairs = value["base_loss"] if isinstance(value, dict) else value
        if loss != "cached splade" and loss != "binary":
            expected = losses_of_batch * weights if kind == "sparse" else losses_of_batch
            assert of_pairs.item() == pytest.approx(expected.mean(), rel=1e-3)
    if kind in ("sparse", "multi-vector"):
        pairs = set(zip(texts["question"], texts["answer"], strict=True))
        is_pair = [[(texts["question"][row], texts["answer"][other]) in pairs for other in batch] for row in batch]
        known = torch.tensor(is_pair) & ~torch.eye(8, dtype=torch.bool)
        logits = scores.masked_fill(known, -torch.inf)
        expected = F.cross_entropy(logits, torch.arange(8), reduction="none")
        np.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-3)
        assert not np.isnan(p).any()
    assert pruning.noisy_labels() is None  # fewer than 300 rows
    assert pruning.review(tmp_path / "review.html", items=5).read_text().startswith("<!doctype html>")


def batch_of(model: Any, loss: str, rows: Dataset) -> list[Any]:
    """The columns of a batch, as the trainer's collator gives them to the loss."""
    if LOSSES[loss][0] == "reranker":
        return [rows["question"], rows["answer"]]
    tasks = ("query", "document") if LOSSES[loss][0] == "multi-vector" else (None, None)
    return [
        {**model.preprocess(rows[name], task=task), **({"task": task} if task else {})}
        for name, task in zip(("question", "answer"), tasks, strict=True)
    ]


def gradient_of(model: Any, value: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    value.backward()
    return torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])


def expected_loss(model: Any, loss: str, made: Any, rows: Dataset, factors: Any, known: Any) -> torch.Tensor:
    """The weighted loss by hand, without known positives."""
    first, second = batch_of(model, loss, rows)
    if loss == "binary":
        logits = model(model.preprocess(list(zip(first, second, strict=True))))["scores"][:, 0]
        return (F.binary_cross_entropy_with_logits(logits, torch.ones(8), reduction="none") * factors).mean()
    if LOSSES[loss][0] == "reranker":
        pairs = [(query, document) for query in first for document in second]
        logits = model(model.preprocess(pairs))["scores"].view(8, 8).sigmoid() * 10
    elif LOSSES[loss][0] == "multi-vector":
        queries, documents = (model(dict(part), task=part["task"]) for part in (first, second))
        masks = queries["attention_mask"].bool(), documents["attention_mask"].bool()
        logits = maxsim(queries["token_embeddings"], documents["token_embeddings"], *masks)
    else:
        queries, documents = (model(dict(part))["sentence_embedding"] for part in (first, second))
        logits = queries @ documents.T
    masked = logits if LOSSES[loss][0] == "reranker" else logits.masked_fill(known, -torch.inf)
    total = (F.cross_entropy(masked, torch.arange(8), reduction="none") * factors).mean()
    if LOSSES[loss][0] == "sparse":  # the parts that OPERA leaves alone
        parts = made(batch_of(model, loss, rows), None)
        total = total + sum(value for name, value in parts.items() if name != "base_loss")
    return total


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "cached splade"])
def test_weights_multiply_the_gradient_of_each_pair(loss, models, dataset):
    """Known positives are no negatives, except for cross-encoders, where the batches keep them apart."""
    model, rows = open_kind(models, loss).train(), dataset.select(range(0, 48, 6))
    factors, known = torch.linspace(0.5, 3, 8), torch.zeros(8, 8, dtype=torch.bool)
    known[0, 1] = known[5, 2] = True
    made = LOSSES[loss][2](model)
    made.num_negatives = None  # a cross-encoder's loss then compares with the whole batch
    reader = reader_of(kind_of(model), made, None)
    labels = torch.ones(8) if loss == "binary" else None
    with reader.watching(model, Changes(factors, known, False)):
        value = made(batch_of(model, loss, rows), labels)
    value = sum(value.values()) if isinstance(value, dict) else value
    gradient = gradient_of(model, value)
    by_hand = gradient_of(model, expected_loss(model, loss, made, rows, factors, known))
    torch.testing.assert_close(gradient, by_hand, rtol=1e-3, atol=1e-5)
    unweighted = gradient_of(model, expected_loss(model, loss, made, rows, torch.ones(8), known))
    assert (gradient - unweighted).norm() > 0.1 * gradient.norm()


def test_a_cached_sparse_loss_has_the_gradient_of_the_other(models, dataset):
    gradients = list[torch.Tensor]()
    rows, factors = dataset.select(range(0, 48, 6)), torch.linspace(0.5, 3, 8)
    for loss in ("splade", "cached splade"):
        model = open_kind(models, loss).train()
        made = LOSSES[loss][2](model)
        changes = Changes(factors, torch.eye(8).roll(1, 0).bool(), False)
        with reader_of(kind_of(model), made, None).watching(model, changes):
            value = made(batch_of(model, loss, rows), None)
        gradients.append(gradient_of(model, sum(value.values())))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_negatives_of_the_rows_are_columns_of_multi_vector_scores(models, dataset, tmp_path):
    answers = dataset["answer"]
    rows = dataset.add_column("negative", answers[3:] + answers[:3])
    model, args = open_kind(models, "maxsim"), script_arguments(tmp_path, "maxsim", max_steps=1)
    pruning = opera.PairPruning(model, rows, "ft", args=args)
    seen = watch_observations(pruning)
    by_column = [scores_of(model, "maxsim", rows["question"], rows[name]) for name in ("answer", "negative")]
    train_kind(pruning, args, "maxsim")
    batch, similarity, losses, *_ = seen[0]
    logits = torch.cat([scores[batch][:, batch] for scores in by_column], dim=1)
    data_set = pruning.batches[0].data_set
    ids = np.array([data_set.row_of_pair.tolist().index(row) for row in batch])
    known = pruning.batches[0].known_positives(ids, ids, 0)
    expected = F.cross_entropy(
        logits.masked_fill(torch.from_numpy(known), -torch.inf), torch.arange(8), reduction="none"
    )
    np.testing.assert_allclose(similarity, logits.diagonal(), rtol=1e-4)
    np.testing.assert_allclose(losses, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("negatives", [False, True])
def test_a_cross_encoder_is_observed_on_the_documents_that_it_read(negatives, models, dataset, tmp_path):
    """The loss of a pair is the library's, and its rank counts the positives that were scored."""
    answers = dataset["answer"]
    rows = dataset.add_column("negative", answers[3:] + answers[:3]) if negatives else dataset
    model, args = open_kind(models, "ranking"), script_arguments(tmp_path, "ranking", max_steps=1)
    pruning = opera.PairPruning(model, rows, "ft", args=args)
    seen, read = watch_observations(pruning), list[list[tuple[str, str]]]()
    made = reranker.MultipleNegativesRankingLoss(model, num_negatives=4)
    preprocess = model.preprocess
    model.preprocess = lambda pairs, **options: (read.append(pairs), preprocess(pairs, **options))[1]
    scores = scores_of(model, "ranking", rows["question"], answers)
    read.clear()
    values = list[float]()
    made.register_forward_hook(lambda module, inputs, value: values.append(value.item()))
    train_kind(pruning, args, "ranking", made)
    read = [pairs for pairs in read if isinstance(pairs[0], tuple)]  # the model card reads texts
    batch, _, losses, p, _ = seen[0]
    assert losses.mean() == pytest.approx(values[0], rel=1e-4)
    positives = {answers[row]: row for row in batch}
    assert len(read) == 1 + 4 + negatives
    pairs = {(row["question"], row["answer"]) for row in rows}
    for position, row in enumerate(batch):
        drawn = [column[position][1] for column in read[1:5]]
        others = [positives[text] for text in drawn if text in positives and (rows["question"][row], text) not in pairs]
        if not negatives:
            above = int((scores[row, others] > scores[row, row]).sum())
            expected = (above + 0.5) / (len(others) + 1) if others else np.nan
            assert p[position] == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("loss", ["splade", "csr", "maxsim", "ranking", "binary"])
def test_the_base_model_scores_all_pairs(loss, models, dataset, labelled, tmp_path):
    rows = labelled if loss == "binary" else dataset
    model, args = open_kind(models, loss), script_arguments(tmp_path, loss, max_steps=1, prompts="common1 ")
    pruning = opera.PairPruning(model, rows, "dp", args=args)
    pruning.watch(LOSSES[loss][2](model))
    data_set = pruning.batches[0].data_set
    pruning.batches[0].batch_size = 8
    scores = pruning._scores(pruning.batches[0])
    texts = [rows.select(data_set.row_of_pair)[name] for name in ("question", "answer")]
    if LOSSES[loss][0] == "reranker":
        pairs = list(zip(*texts, strict=True))
        expected = model.predict(pairs, prompt="common1 ", activation_fn=torch.nn.Identity())
    else:
        prompted = [[f"common1 {text}" for text in column] for column in texts]
        expected = scores_of(model, loss, *prompted).diagonal()
    np.testing.assert_allclose(scores.similarity, expected, rtol=1e-3)  # vectors of tokens are float16
    if loss == "binary":
        np.testing.assert_allclose(scores.loss, np.logaddexp(0, -expected), rtol=1e-4)
    else:
        assert (scores.loss > 0).all()
        assert np.unique(scores.loss).size > 10


SIMILARITIES: dict[str, tuple[str, Any]] = {
    "mean": ("maxsim", lambda model: over(model, mean_colbert_scores, scale=20)),
    "in chunks": ("maxsim", lambda model: over(model, partial(colbert_scores, chunk_elements=10_000))),
    "cosine": ("splade", lambda model: sparse.SpladeLoss(model, ranking(model, similarity_fct=cos_sim), **SPLADE)),
}


def over(model: Any, similarity: Any, **options: Any) -> Any:
    return MultiVectorMultipleNegativesRankingLoss(model, similarity_fct=similarity, **options)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_pairs_are_scored_as_the_loss_compares_them(name, models, dataset, tmp_path):
    """Before training and in the first batch, by sentence-transformers' own functions."""
    loss, make = SIMILARITIES[name]
    model, args = open_kind(models, loss), script_arguments(tmp_path, loss, max_steps=1)
    pruning = opera.PairPruning(model, dataset, "dp", args=args)
    seen, texts = watch_observations(pruning), [dataset[column] for column in ("question", "answer")]
    made, values = make(model), list[Any]()
    made.register_forward_hook(lambda module, inputs, value: values.append(value))
    if name == "cosine":
        queries, documents = (model.encode(column).to_dense() for column in texts)
        expected = cos_sim(queries, documents).diagonal()
    else:
        compare = mean_maxsim if name == "mean" else maxsim
        expected = compare(model.encode_query(texts[0]), model.encode_document(texts[1])).diagonal()
    train_kind(pruning, args, loss, made)
    scores = pruning._scores(pruning.batches[0])
    rows = pruning.batches[0].data_set.row_of_pair
    np.testing.assert_allclose(scores.similarity, expected[rows], rtol=2e-3)  # vectors of tokens are float16
    batch, similarity, losses, _, _ = seen[0]
    np.testing.assert_allclose(similarity, expected[batch], rtol=1e-3)
    value = values[0]["base_loss"] if isinstance(values[0], dict) else values[0]
    if name != "cosine":  # known positives are negatives of a loss over cosines
        assert losses.mean() == pytest.approx(value.item(), rel=1e-3)
    assert scores.loss.mean() == pytest.approx(losses.mean(), rel=0.5)


def test_scores_of_an_unknown_function_are_those_of_the_loss(models, dataset, tmp_path):
    """A method without base scores needs no more; another one ends in an error."""
    model, args = open_kind(models, "maxsim"), script_arguments(tmp_path, "maxsim", max_steps=1)
    made = over(model, lambda *embeddings, **masks: 2 * colbert_scores(*embeddings, **masks))
    message = "^loss: MultiVector.* compares by <lambda>, which .* use colbert_scores, mean_colbert_scores as"
    with pytest.raises(opera.SettingError, match=message):
        opera.PairPruning(model, dataset, "dp").watch(made)
    train_kind(opera.PairPruning(model, dataset, "denoise", args=args), args, "maxsim", made)


def test_rows_with_label_0_train_with_their_queries(models, labelled, tmp_path, caplog):
    model, args = open_kind(models, "binary"), script_arguments(tmp_path, "binary", max_steps=6)
    pruning = opera.PairPruning(model, labelled, "infobatch", args=args)
    assert caplog.messages == []
    loss, calls = LOSSES["binary"][2](model), list[Any]()
    loss.register_forward_pre_hook(lambda module, inputs: calls.append(inputs))
    trainer = train_kind(pruning, args, "binary", loss)
    assert [text for text in caplog.messages if "label 0" in text] == [
        "dataset: skipped 1 query that have only rows with label 0"
    ]
    wrong = dict[str, set[str]]()
    for row in labelled:
        wrong.setdefault(row["question"], set())
        if row["label"] == 0:
            wrong[row["question"]].add(row["answer"])
    assert len(calls) == 6
    for (questions, answers), labels in calls:
        assert labels.tolist() == [1] * 8 + [0] * (len(labels) - 8)
        assert len(set(questions[:8])) == 8
        assert "common1 common2 common3" not in questions
        expected = {(question, answer) for question in questions[:8] for answer in wrong[question]}
        assert set(zip(questions[8:], answers[8:], strict=True)) == expected
    assert trainer.state.global_step == 6
    assert pruning.watch(trainer.loss).loss is loss
    assert len([text for text in caplog.messages if "label 0" in text]) == 1


def test_weights_apply_to_the_rows_with_label_0(models, labelled):
    pruning = opera.PairPruning(open_kind(models, "binary"), labelled, "infobatch")
    pruning.watch(LOSSES["binary"][2](pruning.model))
    data_set = pruning.batches[0].data_set
    ids = np.array([7, 3, 20])
    rows, pairs = data_set.rows(ids), data_set.pair_of_row(ids)
    questions = labelled["question"]
    assert pairs.tolist()[:3] == [0, 1, 2]
    for row, pair in zip(rows, pairs.tolist(), strict=True):
        assert questions[row] == questions[data_set.row_of_pair[ids[pair]]]
    assert len(rows) > 3


def test_labels_with_fractions_are_scores(models, dataset, tmp_path):
    rows = dataset.add_column("score", [0.0, 0.5, 1.0] * 16)
    model, args = open_kind(models, "binary"), script_arguments(tmp_path, "binary")
    pruning = opera.PairPruning(model, rows, "dp", args=args)
    train_kind(pruning, args, "binary")
    assert pruning.batches[0].data_set.pairs.n_pairs == 48


def test_several_data_sets_have_a_loss_each(models, dataset, labelled, tmp_path):
    sets = DatasetDict({"pairs": dataset, "labelled": labelled})
    model, args = open_kind(models, "ranking"), script_arguments(tmp_path, "ranking", max_steps=6)
    args.prompts = {"pairs": "common1 ", "labelled": "common2 "}
    pruning = opera.PairPruning(model, sets, "dp", args=args)
    losses = {"pairs": reranker.MultipleNegativesRankingLoss(model), "labelled": reranker.BinaryCrossEntropyLoss(model)}
    train_kind(pruning, args, "ranking", losses)
    assert sum(sampler.trained_steps for sampler in pruning.samplers) == 6
    assert all(sampler.trained_steps for sampler in pruning.samplers)


class StopAt(TrainerCallback):
    """Ends a training at a step, after its checkpoint."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


@pytest.mark.parametrize("loss", ["splade", "cached maxsim", "ranking", "binary"])
def test_a_resumed_training_has_the_same_bytes(loss, models, dataset, labelled, tmp_path):
    results = list[Any]()
    for stops in ([None], [4, None]):
        out = tmp_path / str(len(stops))
        for stop in stops:
            model = open_kind(models, loss)
            args = script_arguments(out, loss, max_steps=9, save_strategy="steps", save_steps=4)
            pruning = opera.PairPruning(model, labelled if loss == "binary" else dataset, "dp", args=args)
            resume = len(stops) == 2 and stop is None
            train_kind(pruning, args, loss, resume=resume or None, callbacks=[StopAt(stop)])
        results.append((draws_of(pruning), weights_of(model)))
    assert results[0] == results[1]


def without(rows: Dataset, column: str) -> Dataset:
    return rows.remove_columns(column)


def few(model: Any) -> Any:
    return reranker.MultipleNegativesRankingLoss(model, num_negatives=1)


ERRORS: dict[str, tuple[str, str, Any, Any, str]] = {
    "CBS": ("ranking", "sp+cbs", None, None, "method=sp[+]cbs: CBS ranks each pair among 10,000 documents"),
    "binary, denoise": ("binary", "denoise", None, None, "method=denoise: .* BinaryCrossEntropyLoss of a reranker"),
    "few documents": ("ranking", "denoise", few, None, "method=denoise: .* scores 1 of its .* num_negatives=4 or more"),
    "columns": (
        "ranking",
        "denoise",
        None,
        lambda rows: without(rows, "label").add_column("n", rows["answer"]),
        "method=denoise: .* num_negatives=16 or more",
    ),
    "no labels": ("binary", "ft", None, lambda rows: without(rows, "label"), "dataset: Bin.* needs a column of labels"),
    "three columns": (
        "binary",
        "ft",
        None,
        lambda rows: rows.add_column("n", rows["answer"]),
        "dataset: Bin.* takes two text columns, got 3",
    ),
    "another loss": ("ranking", "ft", reranker.MSELoss, None, "loss: PairPruning cannot read MSELoss of a reranker"),
    "another multi-vector loss": (
        "maxsim",
        "ft",
        MultiVectorMarginMSELoss,
        None,
        "loss: PairPruning cannot read MultiVectorMarginMSELoss of a multi-vector model; use MultiVectorMultiple",
    ),
    "alone": ("splade", "ft", ranking, None, "loss: .* does not train with SparseMultipleNegativesRankingLoss alone"),
    "unweighable": (
        "splade",
        "infobatch",
        lambda model: sparse.SpladeLoss(model, sparse.SparseTripletLoss(model), **SPLADE),
        None,
        "temperature: 'SpladeLoss' has neither",
    ),
    "another similarity": (
        "splade",
        "ft",
        lambda model: sparse.SpladeLoss(model, ranking(model, similarity_fct=euclidean_sim), **SPLADE),
        None,
        "loss: SparseMultipleNegativesRankingLoss compares by euclidean_sim, which PairPruning does not know; use dot_",
    ),
    "other directions": (
        "splade",
        "infobatch",
        lambda model: sparse.SpladeLoss(model, ranking(model, directions=("query_to_doc", "doc_to_query")), **SPLADE),
        None,
        "method=infobatch: the method weighs .* SparseMultipleNegativesRankingLoss over products",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_work_is_an_error_before_the_training(case, models, labelled, tmp_path):
    loss, method, made, change, message = ERRORS[case]
    model = open_kind(models, loss)
    args = script_arguments(tmp_path, loss, per_device_train_batch_size=32)
    rows = labelled if change is None else change(labelled)
    with pytest.raises(opera.SettingError, match=f"^{message}"):
        opera.PairPruning(model, rows, method, args=args).watch((made or LOSSES[loss][2])(model))


def test_too_few_documents_are_an_error_at_the_start_without_arguments(models, dataset, tmp_path):
    model, args = open_kind(models, "ranking"), script_arguments(tmp_path, "ranking", per_device_train_batch_size=24)
    pruning = opera.PairPruning(model, dataset, "denoise")
    args.batch_sampler = pruning.sampler
    with pytest.raises(opera.SettingError, match=r"scores 2 of its documents; pass num_negatives=3 or more"):
        train_kind(pruning, args, "ranking", reranker.MultipleNegativesRankingLoss(model, num_negatives=2))


def test_rows_with_label_0_need_one_process(models, labelled, monkeypatch):
    monkeypatch.setattr("opera.training.script_rerankers.process_count", lambda: 2)
    pruning = opera.PairPruning(open_kind(models, "binary"), labelled, "ft")
    with pytest.raises(opera.SettingError, match=r"^dataset: rows with label 0 make batches of different sizes"):
        pruning.watch(LOSSES["binary"][2](pruning.model))


def test_known_positives_that_cannot_be_kept_apart_are_counted(models, tmp_path, caplog):
    """A cross-encoder's loss takes them for negatives if it draws them."""
    texts = [(f"t{query}w5", f"t{document}w1") for query in range(4) for document in range(4)]
    rows = Dataset.from_dict(dict(zip(("question", "answer"), map(list, zip(*texts, strict=True)), strict=True)))
    model, args = open_kind(models, "ranking"), script_arguments(tmp_path, "ranking", per_device_train_batch_size=4)
    pruning = opera.PairPruning(model, rows, "ft", args=args)
    train_kind(pruning, args, "ranking", reranker.MultipleNegativesRankingLoss(model, num_negatives=None))
    (note,) = [text for text in caplog.messages if "known positives" in text]
    assert note.startswith("note: for 100.0% of the trained rows")
    assert note.endswith("lower per_device_train_batch_size")


def test_arguments_of_another_kind_are_an_error(models, dataset, tmp_path):
    with pytest.raises(opera.SettingError, match=r"^args: must be SparseEncoderTrainingArguments for a sparse model"):
        opera.PairPruning(open_kind(models, "splade"), dataset, args=script_arguments(tmp_path, "ranking"))
    with pytest.raises(opera.ModelError, match=r"^model: must be one of SentenceTransformer, "):
        opera.PairPruning(torch.nn.Linear(2, 2), dataset)
