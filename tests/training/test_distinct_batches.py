"""In a user's script, a batch holds each query once, and no known positive is a negative of its query.

Texts decide, not rows: the data hold queries and documents in two spellings, and several positives per query.
"""

import logging

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

import opera
from distinct import known_of
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Draw, Method, NoSettings, Plan, Probabilities
from opera.training.distinct_batches import DistinctSampler
from opera.training.sampler import Observations
from own_scripts import SYMMETRIC, arguments, open_model, train_script, trainer_of

WORDS = [f"t{topic}w{word}" for topic in range(12) for word in range(4)]


def pairs(queries: int, positives: int, negatives: bool = False, skewed: bool = False) -> Dataset:
    """Query i has the documents i, i + 1, ...; with ``skewed``, query 0 has half of all pairs."""
    rows = [(query, query + document) for query in range(queries) for document in range(positives)]
    rows += [(0, document) for document in range(positives, len(rows))] if skewed else []
    spaces = [" " * (1 + row % 2) for row in range(len(rows))]
    columns = {
        "query": [f"{WORDS[query % 48]}{space}t0w9" for (query, _), space in zip(rows, spaces, strict=True)],
        "positive": [document_text(document) + space for (_, document), space in zip(rows, spaces, strict=True)],
    }
    if negatives:
        columns["negative"] = [document_text(document + 1) for _, document in rows]
    return Dataset.from_dict(columns)


def symmetric(model: SentenceTransformer) -> MultipleNegativesRankingLoss:
    """A loss that cannot exclude known positives."""
    return MultipleNegativesRankingLoss(model, **SYMMETRIC)


def document_text(number: int) -> str:
    return f"{WORDS[number % 48]} {WORDS[number // 48 + 5]}"


def words(text: str) -> str:
    return " ".join(text.split())


def known_positives(dataset: Dataset) -> dict[str, set[str]]:
    positives = dict[str, set[str]]()
    for row in dataset:
        positives.setdefault(words(row["query"]), set()).add(words(row["positive"]))
    return positives


def batches_of(pruning: opera.PairPruning, number: int = 0) -> list[dict[str, list[str]]]:
    """Return the texts of every batch that was sampled from a data set."""
    data_set, sampler = pruning.batches[number].data_set, pruning.samplers[number]
    batches = [data_set.dataset[data_set.rows(ids)] for ids in sampler.sampled]
    return [{name: [words(text) for text in batch[name]] for name in data_set.columns} for batch in batches]


def known_in(batch: dict[str, list[str]], positives: dict[str, set[str]]) -> np.ndarray:
    """Mark the known positives among the negatives of each row of a batch: all positives, then all negatives."""
    names = list(batch)
    documents = [text for name in names[1:] for text in batch[name]]
    known = np.array([[text in positives[query] for text in documents] for query in batch[names[0]]])
    known[np.arange(len(known)), np.arange(len(known))] = False
    return known


class FirstPairs(Method[NoSettings]):
    """Samples the first pairs of the data set, most of which have the same query."""

    name, title = "first", "First pairs"

    def probabilities(self, step: int) -> Probabilities:
        return Probabilities.of_pairs(self.pairs, np.full(self.pairs.n_pairs, 1 / self.pairs.n_pairs))

    def draw(self, step: int) -> Draw:
        return Draw.unweighted(np.arange(self.plan.batch_size) % self.pairs.n_pairs)


@pytest.fixture(autouse=True)
def _registered(monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "first", FirstPairs)


ALL = ["ft", "rp", "sp", "sp+cbs", "infobatch", "dp", "sp+dp", "denoise", "first"]
"""The methods of OPERA, and one that a user registers."""
ALIKE = ("rp", "sp+cbs", "sp+dp")
"""Methods that draw as sp or dp do; the slow tests train them too."""
CASES = [pytest.param(method, marks=[pytest.mark.slow] if method in ALIKE else []) for method in ALL]
TRAINING = {"per_device_train_batch_size": 7, "num_train_epochs": 2, "learning_rate": 0.01, "logging_steps": 100}


def test_these_tests_cover_every_method():
    assert set(METHODS.names) <= set(ALL)


@pytest.mark.parametrize("method", CASES)
def test_no_batch_holds_a_query_twice(method, static_model, tmp_path):
    """With accumulation and several data sets; among the kept pairs of a skewed set, half have the same query."""
    sets = DatasetDict({"even": pairs(20, 3), "skewed": pairs(20, 2, negatives=True, skewed=True)})
    more = {"gradient_accumulation_steps": 2, "dataloader_drop_last": True}
    pruning, _ = train_script(sets, static_model, tmp_path, method, **TRAINING, **more)
    for number, rows in enumerate(sets.values()):
        trained = batches_of(pruning, number)
        assert len(trained) >= 2 * (len(rows) // 7)
        assert [len(set(batch["query"])) for batch in trained] == [7] * len(trained)


@pytest.mark.parametrize("method", [case for case in CASES if case.values != ("infobatch",)])
def test_pairs_are_sampled_apart_for_a_loss_that_cannot_exclude_known_positives(method, static_model, tmp_path, caplog):
    """All but infobatch, which weighs pairs. A query excludes the one before it and the one after it."""
    rows = pairs(120, 2)
    pruning, _ = train_script(rows, static_model, tmp_path, method, loss=symmetric, max_steps=20, **TRAINING)
    positives, trained = known_positives(rows), batches_of(pruning)
    assert len(trained) >= 20
    assert [len(set(batch["query"])) for batch in trained] == [7] * len(trained)
    marked = [known_in(batch, positives).any() for batch in trained]
    if method == "first":  # samples 4 queries, each of which excludes the next
        assert "note: for" in caplog.text
    else:
        assert not any(marked)
        assert "note: for" not in caplog.text


@pytest.mark.parametrize("matryoshka", [False, True])
@pytest.mark.parametrize("method", ["ft", "sp", "infobatch", "first"])
def test_a_loss_excludes_known_positives(method, matryoshka, static_model, tmp_path, caplog):
    """Its value is the mean of the weighted cross-entropy over the documents that are not known positives."""
    rows, model = pairs(20, 3, negatives=True), open_model(static_model)
    args = arguments(tmp_path, **{**TRAINING, "learning_rate": 0.0})  # the model stays as it is
    pruning, values = opera.PairPruning(model, rows, method, args=args), list[float]()
    inner = MultipleNegativesRankingLoss(model)
    loss = MatryoshkaLoss(model, inner, [8]) if matryoshka else inner
    loss.register_forward_hook(lambda _, inputs, value: values.append(value.item()))
    weights = list[np.ndarray]()
    (batches,) = pruning.batches
    observe = batches.observe

    def recorded(observations: Observations) -> None:
        weights.append(batches.batch(observations.pair_ids).weights)
        observe(observations)

    batches.observe = recorded
    trainer_of(pruning, args, loss).train()
    marks = list[bool]()
    for batch, value, factors in zip(batches_of(pruning), values, weights, strict=False):
        known = torch.from_numpy(known_in(batch, known_positives(rows)))
        texts = [text for name in ("positive", "negative") for text in batch[name]]
        queries, documents = (torch.from_numpy(model.encode(part)) for part in (batch["query"], texts))
        if matryoshka:
            queries, documents = queries[:, :8], documents[:, :8]
        cosines = torch.nn.functional.cosine_similarity(queries[:, None], documents, dim=2)
        logits = (20 * cosines).masked_fill(known, -torch.inf)
        losses = torch.nn.functional.cross_entropy(logits, torch.arange(7), reduction="none")
        # float32 cosines, of which each may be off by 1e-6, times 20
        assert value == pytest.approx((losses * torch.from_numpy(factors)).mean().item(), abs=1e-4)
        marks.append(bool(known.any()))
    assert any(marks)
    assert "note: for" not in caplog.text


def test_a_batch_above_the_pool_of_dynamic_pruning_holds_no_query_twice(static_model, tmp_path):
    rows = pairs(24, 2)
    pruning, _ = train_script(rows, static_model, tmp_path, "dp", **{**TRAINING, "per_device_train_batch_size": 22})
    assert pruning.samplers[0].sets[0].method.summary()["pool_size"] == 15
    trained = batches_of(pruning)
    assert [len(set(batch["query"])) for batch in trained] == [22] * len(trained)


def test_a_method_that_samples_fewer_queries_than_a_batch_has_rows(static_model, tmp_path):
    rows, model = pairs(20, 1, skewed=True), open_model(static_model)
    args = arguments(tmp_path, **{**TRAINING, "per_device_train_batch_size": 18})
    pruning = opera.PairPruning(model, rows, "rp", args=args, k=0.25)
    trainer = trainer_of(pruning, args, MultipleNegativesRankingLoss(model))
    with pytest.raises(opera.SettingError, match=r"^per_device_train_batch_size=18: method=rp samples only"):
        trainer.train()


def test_a_note_gives_the_share_of_rows_with_a_known_positive(static_model, tmp_path, caplog):
    """All queries have the same documents, so no pairs can be sampled apart."""
    rows = Dataset.from_dict(
        {"query": [WORDS[row % 12] for row in range(48)], "positive": [WORDS[12 + row // 12] for row in range(48)]}
    )
    with caplog.at_level(logging.WARNING):
        train_script(rows, static_model, tmp_path, "ft", loss=symmetric, **TRAINING)
    (note,) = [record.message for record in caplog.records if record.message.startswith("note: for")]
    assert note.startswith("note: for 100.0% of the trained rows")


def test_a_training_without_conflicts_samples_what_the_method_samples(static_model, tmp_path):
    rows = pairs(21, 1)
    pruning, _ = train_script(rows, static_model, tmp_path, "ft", **TRAINING)
    (batches,) = pruning.batches
    again = METHODS["ft"](batches.data_set.pairs, batches.pair_sampler.plan, pruning.method_settings)
    for step, ids in enumerate(batches.pair_sampler.sampled):
        assert ids.tolist() == again.draw(step).pair_ids.tolist()


def test_pairs_wait_in_order_with_their_weights_but_at_most_a_batch_of_them():
    """Six queries with two pairs each; query q has the pairs 2q and 2q + 1."""
    steps = [[0, 1, 2], [4, 6, 8], [0, 1, 0], [1, 0, 1]]
    six = TrainingPairs.from_arrays(np.repeat(np.arange(6), 2), np.arange(12))
    method = FirstPairs(six, Plan(0, 4, 3), NoSettings())
    method.draw = lambda step: Draw(np.array(steps[min(step, 3)]), np.array(steps[min(step, 3)], dtype=np.float32))
    probabilities = Probabilities.of_pairs(six, np.array([0.25, 0] * 4 + [0] * 4))
    method.probabilities = lambda step: probabilities
    sampler = DistinctSampler(method, np.empty((12, 0), dtype=np.int64), known_of(six))
    for expected in ([0, 2, 4], [1, 6, 8]):
        draw = sampler.next_pairs(3)
        assert draw.pair_ids.tolist() == draw.weights.tolist() == expected
    draw = sampler.next_pairs(3)  # the method's two batches have the first query only, so two rows are other queries
    assert draw.pair_ids[0] == 0
    assert len({*(draw.pair_ids // 2)}) == 3
    assert sampler.state_dict()["ids"].tolist() == [1, 0, 1]
    others = [pair for _ in range(10) for pair in sampler.next_pairs(3).pair_ids.tolist() if pair > 1]
    assert {*others} == {2, 4, 6}, "pairs with a probability of 0 are never drawn"


@pytest.mark.parametrize("loss", [MultipleNegativesRankingLoss, symmetric])
def test_waiting_pairs_survive_a_checkpoint(loss, static_model, tmp_path):
    rows, more = pairs(20, 2, skewed=True), {"loss": loss, "max_steps": 8, **TRAINING}
    whole, _ = train_script(rows, static_model, tmp_path / "whole", "sp", save_steps=5, **more)
    train_script(rows, static_model, tmp_path / "cut", "sp", stop=5, **more)
    resumed, _ = train_script(rows, static_model, tmp_path / "cut", "sp", resume=True, save_steps=5, **more)
    assert batches_of(whole) == batches_of(resumed)
