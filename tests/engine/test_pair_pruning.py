"""``opera.PairPruning`` under sentence-transformers' own trainer."""

from __future__ import annotations

import csv
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import (
    MarginMSELoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
)

import opera
from opera.engine.pair_pruning import PairPruning
from own_scripts import arguments, draws_of, open_model, pairs_of, train_script, trainer_of, weights_of


@pytest.fixture(scope="module")
def dataset(beir: Path) -> Dataset:
    return pairs_of(opera.load_data(str(beir)))


@pytest.fixture
def model(static_model: Path) -> SentenceTransformer:
    return open_model(static_model)


class Observed:
    """Keeps what a ``PairPruning`` observes: the rows of each batch, similarity, loss and p-value of its pairs."""

    def __init__(self, pruning: PairPruning) -> None:
        self.batches: list[list[Any]] = []
        self._observe, self._pruning = pruning._observe, pruning
        pruning._observe = self.observe  # type: ignore[method-assign]

    def observe(self, number: int, pair_ids: Any, *values: Any) -> None:
        self.batches.append([self._pruning.batches[number].rows.rows(pair_ids), *values])
        self._observe(number, pair_ids, *values)


@pytest.mark.parametrize("column", ["label", "score"])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_rows_with_label_0_do_not_train(
    column: str, kind: type, dataset: Dataset, model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = [kind(row % 3 > 0) for row in range(len(dataset))]
    args = arguments(tmp_path, per_device_train_batch_size=4, num_train_epochs=3)
    pruning = PairPruning(model, dataset.add_column(column, labels), "ft", args=args)
    assert caplog.messages == ["dataset: skipped 16 of 48 rows: their label is 0"]
    seen, trainer = Observed(pruning), trainer_of(pruning, args, MultipleNegativesRankingLoss(model))
    trainer.train()
    assert trainer.state.max_steps == 3 * 32 / 4
    assert set(pruning.batches[0].rows.row_of_pair) == {row for row in range(48) if row % 3}
    assert {row for batch in seen.batches for row in batch[0]} <= {row for row in range(48) if row % 3}


@pytest.mark.parametrize("labels", [[0] * 48, [1] * 48, [0.0, 0.5] * 24, [[0.0, 1.0]] * 48])
def test_a_loss_gets_the_labels_of_the_rows_that_are_drawn(
    labels: list[Any], dataset: Dataset, model: Any, tmp_path: Path
) -> None:
    """Those with fractions, and lists, are scores; labels that are all alike say nothing."""
    texts, given = dataset["answer"], list[Any]()
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]]).add_column("label", labels)
    args = arguments(tmp_path, num_train_epochs=1)
    pruning = PairPruning(model, rows, "ft", args=args, temperature=0.05)
    loss, seen = MarginMSELoss(model), Observed(pruning)
    loss.register_forward_pre_hook(lambda module, inputs: given.append(inputs[1]))
    trainer_of(pruning, args, loss if labels[1] == 0.5 else MultipleNegativesRankingLoss(model)).train()
    assert set(pruning.batches[0].rows.row_of_pair) == set(range(48))
    for batch, of_batch in zip(seen.batches, given, strict=False):
        torch.testing.assert_close(of_batch, torch.tensor([labels[row] for row in batch[0]]))
    assert len(given) == (6 if labels[1] == 0.5 else 0)


def test_lists_of_negatives_are_columns(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """As many as the shortest list has; with the prompt of their column, and several data sets in a dictionary."""
    texts = dataset["answer"]
    negatives = [[texts[row - at] for at in range(1, 3 + row % 2)] for row in range(len(texts))]
    columns = {f"neg_{at + 1}": [own[at] for own in negatives] for at in range(2)}
    given = dataset.add_column("neg", negatives), Dataset.from_dict({**dataset.to_dict(), **columns})
    weights = []
    for rows, names in zip(given, (["neg"], columns), strict=True):
        prompts, model = dict.fromkeys(names, "t3w1: "), open_model(static_model)
        args = arguments(tmp_path, max_steps=6, prompts={"a": prompts, "b": prompts})
        sets = {"a": rows.select(range(28)), "b": rows.select(range(20, 48))}
        pruning = PairPruning(model, sets, args=args)
        trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
        weights.append(weights_of(model))
    assert weights[0] == weights[1] != weights_of(open_model(static_model))


def test_a_users_transform_is_kept(dataset: Dataset, model: Any) -> None:
    rows = dataset.with_transform(lambda batch: {name: [f"t1w1 {x}" for x in batch[name]] for name in batch})
    assert PairPruning(model, rows).dataset[3]["answer"] == f"t1w1 {dataset[3]['answer']}"


def test_checkpoints_of_another_training(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """The state must be that of the checkpoint whose weights are loaded, which may lie elsewhere."""
    for name, rate in (("one", 0.05), ("other", 0.01)):
        train_script(dataset, static_model, tmp_path / name, stop=4, learning_rate=rate)
    cut, other = (tmp_path / name / "checkpoint-4" for name in ("one", "other"))

    def resume(rows: Dataset, checkpoint: Path, out: str, method: str = "dp") -> None:
        args, own = arguments(tmp_path / out), open_model(static_model)
        pruning = PairPruning(own, rows, method, args=args)
        trainer = trainer_of(pruning, args, MultipleNegativesRankingLoss(own))
        trainer.train(resume_from_checkpoint=str(checkpoint))

    with pytest.raises(opera.RunFolderError, match=r"npz: cannot be resumed \(its weights are from another training"):
        resume(dataset, other, "one")
    with pytest.raises(opera.RunFolderError, match=r"sampler.npz: cannot be resumed .* with the same data set"):
        resume(dataset.select(range(41)), other, "other")
    with pytest.raises(opera.RunFolderError, match=r"cannot be resumed \(its method is not ft\)"):
        resume(dataset, other, "other", "ft")
    (cut / "sampler.npz").unlink()
    with pytest.raises(opera.RunFolderError, match=r"sampler.npz: does not exist"):
        resume(dataset, cut, "one")


def test_evaluations_are_left_alone(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """Losses over the user's own data set and an evaluator change no draw and no weight."""
    found = []
    for evaluates in (False, True):
        model, more = open_model(static_model), dict[str, Any]()
        args = arguments(tmp_path / str(evaluates), max_steps=4)
        if evaluates:
            args = arguments(tmp_path / "eval", max_steps=4, eval_strategy="steps", eval_steps=2, eval_on_start=True)
            texts = {str(at): text for at, text in enumerate(dataset["answer"])}
            questions = {str(at): text for at, text in enumerate(dataset["question"][:6])}
            evaluator = InformationRetrievalEvaluator(questions, texts, {str(at): {str(at)} for at in range(6)})
            more = {"eval_dataset": dataset, "evaluator": evaluator}
        pruning = PairPruning(model, dataset, "dp", args=args)
        trainer = trainer_of(pruning, args, MultipleNegativesRankingLoss(model), **more)
        trainer.train()
        assert any("eval_loss" in row for row in trainer.state.log_history) == evaluates
        found.append((draws_of(pruning), weights_of(trainer.model)))
    assert found[0] == found[1]


def test_several_data_sets_with_a_loss_and_prompts_each(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    several = DatasetDict({"small": dataset.select(range(14)), "large": dataset.select(range(8, 48))})
    model = open_model(static_model)
    prompts = {"small": {"question": "common1 "}, "large": {"question": "common2 common3 ", "answer": "common4 "}}
    args = arguments(tmp_path, per_device_train_batch_size=4, prompts=prompts)
    pruning = PairPruning(model, several, "dp", args=args)
    losses = {"small": MultipleNegativesRankingLoss(model, scale=10), "large": MultipleNegativesRankingLoss}
    trainer = trainer_of(pruning, args, losses)
    assert {name: loss.temperature for name, loss in trainer.loss.items()} == {"small": 0.1, "large": 0.05}
    trainer.train()
    assert [sampler.trained_steps for sampler in pruning.samplers] == [2 * 4, 2 * 10]
    assert [sampler.plan.max_steps for sampler in pruning.samplers] == [2 * 4, 2 * 10]
    last = trainer.state.log_history[-2]
    assert (last["opera/small_alpha"], last["opera/large_alpha"]) == pytest.approx((5, 5), abs=0.2)


def test_a_loss_without_temperature_and_lora(dataset: Dataset, bert_model: Path, tmp_path: Path) -> None:
    texts, model = dataset["answer"], open_model(bert_model)
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]])
    peft = pytest.importorskip("peft")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    args = arguments(tmp_path, max_steps=2)
    with pytest.raises(opera.SettingError, match=r"^temperature: 'TripletLoss' has neither scale nor temp"):
        PairPruning(model, rows).watch(TripletLoss(model))
    pruning = PairPruning(model, rows, "dp", args=args, temperature=0.05)
    trainer_of(pruning, args, TripletLoss(model)).train()
    assert pruning.samplers[0].trained_steps == 2
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora" in name for name in changed)


@pytest.mark.parametrize(
    ("changed", "lag"),
    [({"gradient_accumulation_steps": 4}, 5), ({"dataloader_num_workers": 1}, 4), ({}, 2)],
)
def test_the_lag_is_the_least_that_the_arguments_allow(
    changed: dict[str, Any], lag: int, dataset: Dataset, static_model: Path, tmp_path: Path
) -> None:
    model, args = open_model(static_model), arguments(tmp_path, num_train_epochs=3, **changed)
    pruning = PairPruning(model, dataset, "dp", args=args)
    trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
    sampler = pruning.samplers[0]
    assert sampler.lag == lag
    assert sampler.trained_steps == sampler.plan.max_steps == 18


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ({"per_device_train_batch_size": 40}, {}, "per_device_train_batch_size=40: dataset has only 24 distinct"),
        ({}, {"loss": None}, "PairPruning: no loss is watched"),
        ({}, {"train_dataset": None}, "PairPruning: the trainer does not train on pruning.dataset; pass train_datas"),
        ({}, {"train_dataset": None, "callback": None}, "PairPruning: the batch has no pair ids; pass train_dataset"),
        ({}, {"callback": None}, "PairPruning: a training .* without its callback; pass callbacks"),
        ({"prompts": {"question": "common1 "}}, {"args": None}, "args.prompts=.*: the pairs were scored with None"),
        ({"eval_strategy": "steps", "eval_on_start": True}, {"eval_dataset": None}, "PairPruning: dataset is read aga"),
    ],
)  # fmt: skip
def test_scripts_that_do_not_train_on_what_is_drawn(
    changed: dict[str, Any], more: dict[str, Any], message: str, dataset: Dataset, model: Any, tmp_path: Path
) -> None:
    """``more`` names what the script does not take from OPERA, or takes where it must not."""
    args, loss = arguments(tmp_path, **changed), MultipleNegativesRankingLoss(model)
    pruning = PairPruning(model, dataset, "dp", args=None if "args" in more else args)
    args.batch_sampler = pruning.sampler
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=dataset if "train_dataset" in more else pruning.dataset,
        eval_dataset=pruning.dataset if "eval_dataset" in more else None,
        loss=loss if "loss" in more else pruning.watch(loss),
        callbacks=[] if "callback" in more else [pruning.callback],
    )
    with pytest.raises((opera.SettingError, opera.TrainingError), match=f"^{message}"):
        trainer.train()


def test_another_sampler_is_refused(dataset: Dataset, model: Any, tmp_path: Path) -> None:
    with pytest.raises(opera.SettingError, match=r"^args.batch_sampler=.*: PairPruning samples the batches itself"):
        PairPruning(model, dataset, args=arguments(tmp_path, batch_sampler="no_duplicates"))


def test_saved_and_copied_arguments_hold_no_model(dataset: Dataset, model: Any, tmp_path: Path) -> None:
    args = arguments(tmp_path)
    pruning = PairPruning(model, dataset, args=args)
    assert len(pickle.dumps(pickle.loads(pickle.dumps(args.batch_sampler)))) < 200
    assert deepcopy(args).batch_sampler == pruning.sampler


def column(values: list[Any]) -> Dataset:
    return Dataset.from_dict({"q": values, "d": ["x"] * len(values)})


LABELLED = {"query": ["a", "b", "c"], "label": [0, 1, 1]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.to_iterable_dataset(), "dataset: must be a datasets.Dataset, got IterableDataset: a method"),
        (lambda d: {"x": [1]}, r"dataset\['x'\]: must be a datasets.Dataset or"),
        (lambda d: DatasetDict(), "dataset: must hold at least one data set"),
        (lambda d: d.select_columns(["answer"]), "dataset: must have two text columns"),
        (lambda d: d.select([]), "dataset: must have at least one row"),
        (lambda d: column(["a", " "]), "dataset: row 1, column 'q': must be a text that is not empty, got ' '"),
        (
            lambda d: d.add_column("n", [["a"]] * 47 + [[]]),
            "dataset: row 47, column 'n': must be a list of at least one text",
        ),
        (lambda d: d.add_column("year", [1999] * 48), "dataset: row 0, column 'year': must be a text, got 1999; "),
        (lambda d: Dataset.from_dict({**LABELLED, "d": ["d", "e", " "]}), "dataset: row 2, column 'd': must be a text"),
        (
            lambda d: Dataset.from_dict({**LABELLED, "d": ["d", "e", "f"], "n": [["x"], ["y", "z"], [None]]}),
            "dataset: row 2, column 'n': must be a list of at least one text",
        ),
    ],
)
def test_data_that_are_no_pairs(make: Callable[[Dataset], Any], message: str, dataset: Dataset, model: Any) -> None:
    """Rows are counted in the user's data set, also behind rows that are left out."""
    with pytest.raises(opera.DataError, match=f"^{message}"):
        PairPruning(model, make(dataset))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "dpp"}, "unknown method 'dpp'; did you mean 'dp'"),
        ({"method": "dp", "alpha": 3}, r"unknown setting 'alpha'; did you mean 'alpha_end'\?"),
        ({"method": "sp", "k": 0.001}, r"k=0.001: must keep at least one pair, but ⌊0.001·48⌋ = 0"),
        ({"method": {}}, "method: must be a name such as 'denoise', got 'dict'; pass the trainer's arguments as args="),
        ({"temperature": "warm"}, "temperature: must be a number above 0, got 'warm'"),
        ({"args": {}}, "args: must be SentenceTransformerTrainingArguments, got {}"),
    ],
)
def test_settings(settings: dict[str, Any], message: str, dataset: Dataset, model: Any) -> None:
    with pytest.raises(opera.SettingError, match=f"^{message}"):
        PairPruning(model, dataset, **settings)


def test_models_and_losses_that_do_not_fit(dataset: Dataset, model: Any, static_model: Path) -> None:
    with pytest.raises(opera.ModelError, match=r"^model: must be a SentenceTransformer, got 'Linear'"):
        PairPruning(torch.nn.Linear(2, 2), dataset)
    pruning = PairPruning(model, dataset, "auto", temperature=np.float32(0.1))
    assert pruning.method.name == "denoise"
    with pytest.raises(opera.SettingError, match=r"^loss: MultipleNegativesRankingLoss has another model"):
        pruning.watch(MultipleNegativesRankingLoss(open_model(static_model)))
    with pytest.raises(opera.SettingError, match=r"^loss: must be a loss or its class, got None"):
        pruning.watch(None)
    assert pruning.watch(MultipleNegativesRankingLoss).temperature == pytest.approx(0.1)


def test_it_says_which_rows_look_false(static_model: Path, tmp_path: Path) -> None:
    """Of 500 rows about 12 topics, 200 have the answer of another row. 20 rows before them are not relevant."""
    rng = np.random.default_rng(0)
    topics, false = rng.integers(12, size=500), np.arange(500) % 5 < 2
    answered = np.where(false, rng.permutation(topics), topics)
    question, answer = (
        [" ".join(f"t{topic}w{word}" for word in rng.choice(words, 3, replace=False)) for topic in own]
        for own, words in ((topics, range(4, 8)), (answered, range(4)))
    )
    columns = {"question": ["t0w4"] * 20 + question, "answer": ["t1w0"] * 20 + answer, "label": [0] * 20 + [1] * 500}
    data, own = Dataset.from_dict(columns), open_model(static_model)
    args = arguments(tmp_path, max_steps=80, per_device_train_batch_size=32, learning_rate=0.1)
    pruning = PairPruning(own, data, "denoise", args=args)
    with pytest.raises(opera.SettingError, match=r"^false_pairs: nothing is trained yet"):
        pruning.false_pairs()
    with pytest.raises(opera.SettingError, match=r"^false_pairs: name must be of \[''\], got 'a'"):
        pruning.false_pairs("a")
    trainer_of(pruning, args, MultipleNegativesRankingLoss(own)).train()
    found = pruning.false_pairs()
    assert found is not None
    assert found.low < found.share < found.high
    assert str(found).startswith("FalsePairs(share=0.")
    listed = found.probability[found.suspicious]
    assert (np.diff(listed) <= 0).all()
    assert len(listed) == (found.probability > 0.5).sum() > 100
    assert np.isnan(found.probability[:20]).all()
    wrong, probability = topics != answered, found.probability[20:]
    assert np.nanmean(probability[wrong]) > np.nanmean(probability[~wrong]) + 0.2
    assert pruning.review(tmp_path / "review.html").read_text().startswith("<!doctype html>")
    with pruning.review(tmp_path / "review.csv", items=50).open(newline="") as file:
        items = list(csv.DictReader(file))
    assert len(items) == 50
    for item in items:
        row = data[int(item["query_id"])]
        assert (item["query"], item["document"]) == (row["question"], row["answer"])


def test_a_document_is_ranked_among_those_that_were_trained_as_it_was(static_model: Path, tmp_path: Path) -> None:
    """Never before, or before. A pair that nothing was comparable with is not ranked later, when it was trained."""
    things = [f"t{topic}w{word}" for topic in range(4) for word in range(3)]
    rows = Dataset.from_dict(
        {"q": [thing for thing in things for _ in range(4)], "d": [f"{a} {b}" for a in things for b in things[:4]]}
    )
    model = open_model(static_model)
    args = arguments(tmp_path, num_train_epochs=3, per_device_train_batch_size=4)
    pruning = PairPruning(model, rows, "ft", args=args)
    observed = Observed(pruning)
    trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
    seen, trained, ranked = set[str](), set[int](), set[int]()
    for own, _, _, p in observed.batches:
        before = [rows[row]["d"] in seen for row in own]
        for row, value, own_before in zip(own, p, before, strict=True):
            others = before.count(own_before) - 1
            assert np.isnan(value) == (others == 0)
            if others:  # (a + 1/2) / (b + 1), a a whole number: nothing scores the same
                assert value * (others + 1) % 1 == pytest.approx(0.5, abs=1e-5)
                ranked |= {row} - trained
        trained.update(own)
        seen.update(rows[row]["d"] for row in own)
    visited = set(pruning.batches[0].rows.rows(np.flatnonzero(pruning.samplers[0].all_visits().visited)))
    assert visited == ranked < trained
