"""``opera.PairPruning`` under sentence-transformers' own trainer; what cannot work is refused in a line."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    GISTEmbedLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
)

import opera
from opera.methods import METHODS
from opera.training.pair_losses import chain_of
from opera.training.pair_pruning import PairPruning
from own_scripts import arguments, open_model, pairs_of, trainer_of
from processes import DEADLINE, torchrun


@pytest.fixture(scope="module")
def dataset(beir: Path) -> Dataset:
    return pairs_of(opera.load_data(str(beir)))


@pytest.fixture(scope="module")
def several(dataset: Dataset) -> DatasetDict:
    return DatasetDict({"a": dataset.select(range(28)), "b/b": dataset.select(range(24, 48))})


@pytest.fixture
def model(static_model: Path) -> SentenceTransformer:
    return open_model(static_model)


@pytest.mark.parametrize("method", [*METHODS])
def test_what_is_observed_is_what_was_drawn(method: str, dataset: Dataset, model: Any, tmp_path: Path) -> None:
    """At the first step the model is untrained: similarity and loss of each pair can be computed from its texts."""
    args, (queries, documents) = (
        arguments(tmp_path, max_steps=6),
        (model.encode(dataset[c]) for c in ("question", "answer")),
    )
    pruning = PairPruning(model, dataset, method, args=args)
    trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model))
    (part,) = pruning._sets
    seen, plain = [], part.train
    part.train = lambda *given: (seen.append(given[1:]), plain(*given))[1]  # type: ignore[method-assign]
    trainer.train()
    assert len(seen) == part.sampler.method.plan.max_steps == 6
    rows, (_, similarity, loss, _) = part.rows.rows(seen[0][0]), seen[0]
    cosines = torch.from_numpy(queries[rows] @ documents[rows].T)
    np.testing.assert_allclose(similarity, cosines.diagonal(), atol=1e-6)
    expected = torch.nn.functional.cross_entropy(cosines / 0.05, torch.arange(len(rows)), reduction="none")
    np.testing.assert_allclose(loss, expected, atol=1e-4)
    log = trainer.state.log_history
    assert log[0]["coverage"] == len(set(rows)) / len(dataset)
    assert pruning.curves()["coverage"] == log[-2]["coverage"]
    if method == "dp":
        alphas = [5 - 3 * (1 + np.cos(np.pi * step / 6)) / 2 for step in range(6)]
        assert [row["alpha"] for row in log[:-1]] == pytest.approx(alphas)


def test_a_loss_is_watched_once_and_auto_is_a_method(dataset: Dataset, model: Any) -> None:
    pruning, loss = PairPruning(model, dataset, "auto", temperature=0.1), MultipleNegativesRankingLoss(model)
    assert pruning.method.name == "denoise"
    assert pruning.watch(pruning.watch(loss)) is loss
    (watch,) = pruning._watches.values()
    assert watch.temperature == 0.1


@pytest.mark.parametrize("column", ["label", "score"])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_rows_with_label_0_do_not_train(
    column: str, kind: type, dataset: Dataset, model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = [kind(row % 3 > 0) for row in range(len(dataset))]
    rows = dataset.add_column(column, labels)
    args = arguments(tmp_path, per_device_train_batch_size=4, num_train_epochs=3)
    pruning = PairPruning(model, rows, "ft", args=args)
    trainer = trainer_of(pruning, args, rows, MultipleNegativesRankingLoss(model))
    assert caplog.messages == ["dataset: 16 of 48 rows are not relevant, by their label 0, and do not train"]
    trainer.train()
    (part,) = pruning._sets
    assert trainer.state.max_steps == 3 * 32 / 4
    assert set(part.rows.row_of_pair) == {row for row, label in enumerate(labels) if label}
    assert part.sampler.trained.shape == (32,)


@pytest.mark.parametrize("labels", [[0] * 48, [1] * 48, [0.0, 0.5] * 24, [None, "no"] * 24, [[0.0, 1.0]] * 48])
def test_other_labels_leave_no_row_out(labels: list[Any], dataset: Dataset, model: Any) -> None:
    (part,) = PairPruning(model, dataset.add_column("label", labels), "ft")._sets
    assert sorted(part.rows.row_of_pair) == list(range(48))


def test_a_wrong_row_behind_rows_left_out_is_named(dataset: Dataset, model: Any) -> None:
    rows = {"query": ["a", "b", "c"], "document": ["d", "e", " "], "negatives": [["x"], ["y", "z"], ["x"]]}
    with pytest.raises(opera.DataError, match=r"^dataset: row 2, column 'document': must be a text that is not empty"):
        PairPruning(model, Dataset.from_dict({**rows, "label": [0, 1, 1]}), "ft")
    rows["document"][2], rows["negatives"][2] = "f", [None]
    with pytest.raises(opera.DataError, match=r"^dataset: row 2, column 'negatives': must be a text, got None"):
        PairPruning(model, Dataset.from_dict({**rows, "label": [0, 1, 1]}), "ft")


def train(dataset: Any, model: Path, out: Path, stop: int | None = None, resume: bool = False, **changed: Any) -> Any:
    """Train; ``stop`` breaks off when that step's checkpoint is saved."""
    args = arguments(out, **{"save_strategy": "steps", "save_steps": 5, **changed})
    own = open_model(model)
    pruning = PairPruning(own, dataset, "dp", args=args)
    trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(own))
    save = pruning.callback.on_save

    def broken(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        save(args, state, control, **kwargs)
        if state.global_step == stop:
            raise KeyboardInterrupt

    pruning.callback.on_save = broken  # type: ignore[method-assign]
    try:
        trainer.train(resume_from_checkpoint=True if resume else None)
    except KeyboardInterrupt:
        assert stop is not None
    return pruning, trainer


SIX = {"num_train_epochs": 3, "per_device_train_batch_size": 6}


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("bert", {"num_train_epochs": 1, "save_steps": 3}),
        ("one", {"num_train_epochs": 3, "save_steps": 6}),  # after an epoch
        ("one", {"num_train_epochs": 5, "gradient_accumulation_steps": 4, "save_steps": 6}),
        ("one", {"num_train_epochs": 3, "ignore_data_skip": True, "save_steps": 10}),
        ("several", {**SIX, "save_steps": 10}),
        ("several", {**SIX, "multi_dataset_batch_sampler": "round_robin", "save_steps": 10}),
    ],
)
def test_a_resumed_training_ends_the_same(
    kind: str,
    changed: dict[str, Any],
    dataset: Dataset,
    several: DatasetDict,
    bert_model: Path,
    static_model: Path,
    tmp_path: Path,
) -> None:
    """The same draws, the same bytes of weights, the same log."""
    own, model = several if kind == "several" else dataset, bert_model if kind == "bert" else static_model
    stop = changed["save_steps"]
    whole, trainer = train(own, model, tmp_path / "whole", **changed)
    train(own, model, tmp_path / "cut", stop=stop, **changed)
    resumed, again = train(own, model, tmp_path / "cut", resume=True, **changed)
    assert again.state.global_step == trainer.state.global_step > stop
    for first, second in zip(whole._sets, resumed._sets, strict=True):
        assert first.sampler.trained_steps == second.sampler.trained_steps
        trained = first.sampler.trained_steps * first.sampler.batch_size
        draws = [np.concatenate(part.sampler.drawn)[:trained] for part in (first, second)]
        np.testing.assert_array_equal(*draws)
    weights = zip(trainer.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    assert all((one == other).all() for one, other in weights)
    # the epoch starts again where nothing is skipped
    logs = [[{**row, "epoch": 0} for row in each.state.log_history[:-1]] for each in (trainer, again)]
    assert logs[0] == logs[1]


def test_checkpoints_of_another_training(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """The state must be that of the checkpoint whose weights are loaded, which may lie elsewhere."""
    for name, rate in (("one", 0.05), ("other", 0.01)):
        train(dataset, static_model, tmp_path / name, save_steps=4, learning_rate=rate)
    cut, other = (tmp_path / name / "checkpoint-4" for name in ("one", "other"))
    whole = (cut / "opera_pruning.npz").read_bytes()

    def resume(rows: Dataset, checkpoint: Path, out: str, method: str = "dp") -> None:
        args, own = arguments(tmp_path / out), open_model(static_model)
        loss = MultipleNegativesRankingLoss(own)
        trainer_of(PairPruning(own, rows, method, args=args), args, rows, loss).train(
            resume_from_checkpoint=str(checkpoint)
        )

    with pytest.raises(opera.RunFolderError, match=r"npz: cannot be resumed \(its weights are of another training"):
        resume(dataset, other, "one")
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: cannot be resumed .* with the same data set"):
        resume(dataset.select(range(41)), other, "other")
    with pytest.raises(
        opera.RunFolderError, match=r"cannot be resumed \(it is of another method than ft\); .* method and arg"
    ):
        resume(dataset, other, "other", "ft")
    (cut / "opera_pruning.npz").write_bytes(whole[:-100])
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: "):
        resume(dataset, cut, "one")
    (cut / "opera_pruning.npz").unlink()
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: does not exist"):
        resume(dataset, cut, "one")


def test_evaluations_are_left_alone(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """Losses over an evaluation's data set and an evaluator change no draw and no weight."""
    kept = []
    for evaluates in (False, True):
        model, more = open_model(static_model), dict[str, Any]()
        args = arguments(tmp_path / str(evaluates), max_steps=4)
        if evaluates:
            args = arguments(tmp_path / "eval", max_steps=4, eval_strategy="steps", eval_steps=2, eval_on_start=True)
            texts = {str(at): text for at, text in enumerate(dataset["answer"])}
            questions = {str(at): text for at, text in enumerate(dataset["question"][:6])}
            evaluator = InformationRetrievalEvaluator(questions, texts, {str(at): {str(at)} for at in range(6)})
            more = {"eval_dataset": dataset.select(range(20)), "evaluator": evaluator}
        pruning = PairPruning(model, dataset, "dp", args=args)
        trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model), **more)
        trainer.train()
        assert any("eval_loss" in row for row in trainer.state.log_history) == evaluates
        kept.append((np.concatenate(pruning._sets[0].sampler.drawn), trainer.model.state_dict()))
    np.testing.assert_array_equal(kept[0][0], kept[1][0])
    assert all((kept[0][1][name] == value).all() for name, value in kept[1][1].items())


def test_several_data_sets_with_a_loss_and_prompts_each(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    several = DatasetDict({"small": dataset.select(range(14)), "large": dataset.select(range(8, 48))})
    model = open_model(static_model)
    prompts = {"small": {"question": "common1 "}, "large": {"question": "common2 common3 ", "answer": "common4 "}}
    args = arguments(tmp_path, per_device_train_batch_size=4, prompts=prompts)
    pruning = PairPruning(model, several, "dp", args=args)
    losses = {"small": MultipleNegativesRankingLoss(model, scale=10), "large": MultipleNegativesRankingLoss}
    trainer = trainer_of(pruning, args, several, losses)
    assert {name: watch.temperature for name, watch in pruning._watches.items()} == {"small": 0.1, "large": 0.05}
    trainer.train()
    assert [part.sampler.trained_steps for part in pruning._sets] == [2 * 4, 2 * 10]
    assert [part.sampler.method.plan.max_steps for part in pruning._sets] == [2 * 4, 2 * 10]
    last = trainer.state.log_history[-2]
    assert (last["small_alpha"], last["large_alpha"]) == pytest.approx((5, 5), abs=0.2)


def test_a_loss_without_temperature_negatives_a_label_and_lora(
    dataset: Dataset, bert_model: Path, tmp_path: Path
) -> None:
    texts, model = dataset["answer"], open_model(bert_model)
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]]).add_column("label", [0] * len(texts))
    if peft := pytest.importorskip("peft"):
        model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    args = arguments(tmp_path, max_steps=2)
    pruning = PairPruning(model, rows, "dp", args=args, temperature=0.05)
    trainer_of(pruning, args, rows, TripletLoss(model)).train()
    assert pruning._sets[0].sampler.trained_steps == 2
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
    def pruned(less: int) -> PairPruning:
        model, args = open_model(static_model), arguments(tmp_path, num_train_epochs=3, **changed)
        pruning = PairPruning(model, dataset, "dp", args=args)
        begin = pruning.begin

        def begin_with_less(*given: Any) -> None:
            begin(*given)
            pruning._sets[0].sampler.lag -= less

        pruning.begin = begin_with_less  # type: ignore[method-assign]
        trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model)).train()
        return pruning

    sampler = pruned(0)._sets[0].sampler
    assert sampler.lag == lag
    assert sampler.trained_steps == sampler.method.plan.max_steps == 18
    with pytest.raises(opera.TrainingError, match="read further ahead of training than the lag"):
        pruned(1)


def test_lists_of_negatives_are_columns(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """As many as the shortest list has; with the prompt of their column, and several data sets in a dictionary."""
    texts = dataset["answer"]
    negatives = [[texts[row - at] for at in range(1, 3 + row % 2)] for row in range(len(texts))]
    columns = {f"neg_{at + 1}": [own[at] for own in negatives] for at in range(2)}
    given = (
        dataset.add_column("neg", negatives),
        Dataset.from_dict({**dataset.to_dict(), **columns}),
    )
    weights = []
    for rows, names in zip(given, (["neg"], columns), strict=True):
        prompts, model = dict.fromkeys(names, "t3w1: "), open_model(static_model)
        args = arguments(tmp_path, max_steps=6, prompts={"a": prompts, "b": prompts})
        sets = {"a": rows.select(range(28)), "b": rows.select(range(20, 48))}
        pruning = PairPruning(model, sets, args=args)
        trainer_of(pruning, args, sets, MultipleNegativesRankingLoss(model)).train()
        assert [part.rows.n_documents for part in pruning._sets] == [3, 3]
        weights.append(model[0].embedding.weight.detach().clone())
    torch.testing.assert_close(*weights)
    assert not torch.equal(weights[0], open_model(static_model)[0].embedding.weight)


def column(values: list[Any]) -> Dataset:
    return Dataset.from_dict({"q": values, "d": ["x"] * len(values)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.to_iterable_dataset(), "dataset: must be a datasets.Dataset, got IterableDataset: methods draw"),
        (lambda d: [("a", "b")], "dataset: must be a datasets.Dataset or DatasetDict, got <class 'list'>"),
        (lambda d: {"x": [1]}, r"dataset\['x'\]: must be a datasets.Dataset or"),
        (lambda d: DatasetDict(), "dataset: holds no data set"),
        (lambda d: d.select_columns(["answer"]), "dataset: needs two columns of text"),
        (lambda d: d.select([]), "dataset: has no row: nothing to train on"),
        (
            lambda d: column(["a", None]),
            r"dataset: row 1, column 'q': must be a text that is not empty, got None; dataset.filter\(lambda row: ",
        ),
        (
            lambda d: Dataset.from_dict({"q": ["a"], "d": [["x"]]}),
            r"dataset: row 0, column 'd': must be a text that is not empty, got \['x'\]; make a row of each text",
        ),
        (lambda d: column(["a", " "]), "dataset: row 1, column 'q': must be a text that is not empty, got ' '"),
        (lambda d: column([1, 2]), "dataset: row 0, column 'q': must be a text that is not empty, got 1"),
        (
            lambda d: d.add_column("n", [["a"]] * (len(d) - 1) + [[]]),
            "dataset: row 47, column 'n': must be a list of",
        ),
        (lambda d: d.add_column("year", [1999] * len(d)), "dataset: row 0, column 'year': must be a text, got 1999; "),
    ],
)
def test_data_that_are_no_pairs(make: Callable[[Dataset], Any], message: str, dataset: Dataset, model: Any) -> None:
    with pytest.raises(opera.DataError, match=f"^{message}"):
        PairPruning(model, make(dataset))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "dpp"}, "unknown method 'dpp'; did you mean 'dp'"),
        ({"method": "dp", "alpha": 3}, r"unknown setting 'alpha'; did you mean 'alpha_end'\?"),
        ({"method": "sp", "k": 0.001}, r"k=0.001 keeps ⌊0.001·48⌋ = 0 of 48 pairs"),
        ({"temperature": 0}, "temperature: must be a number above 0, got 0"),
        (
            {"method": {}},
            "method: must be a name such as 'denoise', got 'dict'; the trainer's arguments are .* args=args",
        ),
        ({"temperature": "warm"}, "temperature: must be a number above 0, got 'warm'"),
        ({"args": {}}, "args: must be SentenceTransformerTrainingArguments, got {}"),
        (
            {"args": {"report_to": "mlflow"}},
            "args.report_to=mlflow: its package is not installed; install it",
        ),
        ({"args": {"auto_find_batch_size": True}}, "args.auto_find_batch_size=True: .* leave it out"),
        ({"args": {"accelerator_config": {"split_batches": True}}}, "args.accelerator_config.split_batches=True"),
        ({"args": {"accelerator_config": {"dispatch_batches": True}}}, "args.accelerator_config.dispatch_batches"),
    ],
)
def test_settings(settings: dict[str, Any], message: str, dataset: Dataset, model: Any, tmp_path: Path) -> None:
    if settings.get("args"):
        settings = {"args": arguments(tmp_path, **settings["args"])}
    with pytest.raises(opera.SettingError, match=f"^{message}"):
        PairPruning(model, dataset, **settings)


def test_models_and_losses_that_do_not_fit(dataset: Dataset, model: Any, static_model: Path, bert_model: Path) -> None:
    with pytest.raises(opera.ModelError, match=r"^model: must be a SentenceTransformer, got 'Linear'"):
        PairPruning(torch.nn.Linear(2, 2), dataset)
    with pytest.raises(opera.SettingError, match=r"^loss: MultipleNegativesRankingLoss was made with another model"):
        PairPruning(model, dataset).watch(MultipleNegativesRankingLoss(open_model(static_model)))
    with pytest.raises(opera.SettingError, match=r"^loss: must be a loss or its class, got None"):
        PairPruning(model, dataset, temperature=np.float32(0.1)).watch(None)
    bert = open_model(bert_model)
    with pytest.raises(opera.SettingError, match=r"^method=infobatch: weighs each pair's loss, and GISTEmbedLoss"):
        PairPruning(bert, dataset, "infobatch").watch(GISTEmbedLoss(bert, bert))


class Swapping(SentenceTransformerTrainer):  # type: ignore[misc]
    """Trains on the batches of an optimizer step in another order."""

    def get_batch_samples(self, *given: Any) -> tuple[list[Any], Any]:
        """Turn them round."""
        batches, items = super().get_batch_samples(*given)
        return batches[::-1], items


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ({"per_device_train_batch_size": 40}, {}, "per_device_train_batch_size=40: more than the .* distinct queries"),
        ({}, {"watched": False}, "PairPruning: no loss is watched"),
        ({}, {"rows": 20}, "PairPruning: the trainer's train_dataset is another object than .* filter"),
        ({"batch_sampler": "no_duplicates"}, {"sampler": False}, "args.batch_sampler: must be pruning.sampler, got "),
        ({"batch_sampler": "no_duplicates"}, {"sampler": False, "callback": False}, "PairPruning: the loss got a batch "
         "that was not drawn"),
        ({}, {"callback": False}, "PairPruning: a training .* callback does not know of; pass callbacks"),
        ({"gradient_accumulation_steps": 2}, {"trainer": Swapping}, "PairPruning: the loss got other queries"),
        ({"prompts": {"question": "common1 "}}, {"args": False}, "args.prompts=.*: the pairs were scored with None"),
        ({"eval_strategy": "steps", "eval_steps": 2}, {"evaluates": True}, "PairPruning: dataset is read again, by"),
        ({"eval_strategy": "steps", "eval_on_start": True}, {"evaluates": True}, "PairPruning: dataset is read again"),
    ],
)  # fmt: skip
def test_trainings_that_are_not_on_what_was_drawn(
    changed: dict[str, Any], more: dict[str, Any], message: str, dataset: Dataset, model: Any, tmp_path: Path
) -> None:
    args, loss = arguments(tmp_path, **changed), MultipleNegativesRankingLoss(model)
    pruning = PairPruning(model, dataset, "dp", args=args if more.get("args", True) else None)
    if more.get("sampler", True):
        args.batch_sampler = pruning.sampler
    trainer = more.get("trainer", SentenceTransformerTrainer)(
        model=model,
        args=args,
        train_dataset=dataset.select(range(20)) if "rows" in more else dataset,
        eval_dataset=dataset if "evaluates" in more else None,
        loss=pruning.watch(loss) if more.get("watched", True) else loss,
        callbacks=[pruning.callback] if more.get("callback", True) else [],
    )
    with pytest.raises((opera.SettingError, opera.TrainingError), match=f"^{message}"):
        trainer.train()


def interrupt(*given: Any) -> None:
    raise KeyboardInterrupt


def test_a_second_training(dataset: Dataset, model: Any, tmp_path: Path) -> None:
    """It needs another PairPruning, but may have the same loss, and the same arguments."""
    args, loss = arguments(tmp_path, max_steps=2), MultipleNegativesRankingLoss(model)
    for breaks in (False, True, False):
        pruning = PairPruning(model, dataset)
        trainer = trainer_of(pruning, args, dataset, loss)
        if breaks:
            pruning._sets[0].train = interrupt  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                trainer.train()
        else:
            trainer.train()
    plain = SentenceTransformerTrainer(
        model, arguments(tmp_path, max_steps=2), train_dataset=dataset, loss=loss, callbacks=[]
    )
    plain.train()
    assert pruning._sets[0].sampler.trained_steps == plain.state.global_step == 2
    with pytest.raises(opera.TrainingError, match=r"^PairPruning: dataset is read again, by a second training"):
        trainer.train()


@pytest.mark.parametrize("loss_class", [MultipleNegativesRankingLoss, CachedMultipleNegativesRankingLoss])
def test_after_training_the_loss_is_as_before_and_freed(
    loss_class: Any, dataset: Dataset, bert_model: Path, tmp_path: Path
) -> None:
    """It holds the distributed model, whose process group ends a process with SIGABRT if the interpreter ends first."""
    model = open_model(bert_model)
    args, loss = arguments(tmp_path, max_steps=2), MatryoshkaLoss(model, loss_class(model), [8, 4])
    before = [set(vars(part)) for part in chain_of(loss)]
    pruning = PairPruning(model, dataset, "infobatch")
    trainer = trainer_of(pruning, args, dataset, loss)
    assert [set(vars(part)) for part in chain_of(loss)] != before
    trainer.train()
    assert [set(vars(part)) for part in chain_of(loss)] == before
    alive = weakref.ref(loss)
    gc.collect()
    gc.disable()  # what is left to it may be freed too late
    try:
        del loss, trainer
        assert alive() is None
    finally:
        gc.enable()
    assert pruning.curves()["coverage"] > 0


def test_saved_arguments_hold_no_model(dataset: Dataset, model: Any) -> None:
    saved = pickle.dumps(PairPruning(model, dataset).sampler)
    assert len(saved) < 200
    with pytest.raises(opera.SettingError, match=r"^args.batch_sampler: was a PairPruning"):
        pickle.loads(saved)(dataset, batch_size=2, drop_last=False)


SCRIPT = """
import json, sys
import numpy as np
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from datasets import DatasetDict
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
import opera
from opera.training.pair_pruning import PairPruning
from own_scripts import arguments, open_model, pairs_of, trainer_of

data, model_folder, out = sys.argv[2], sys.argv[3], Path(sys.argv[4])
whole = pairs_of(opera.load_data(data))
several = DatasetDict({"a": whole.select(range(30)), "b": whole.select(range(18, 48))})


def train(name, dataset, stop=None, resume=None, **changed):
    args = arguments(
        out / name, ddp_backend="gloo", per_device_train_batch_size=6, num_train_epochs=3, save_strategy="steps",
        save_steps=stop or 4, **changed,
    )
    model = open_model(model_folder)
    pruning = PairPruning(model, dataset, "dp", args=args)
    across = name.startswith("across")
    loss = MultipleNegativesRankingLoss(model, gather_across_devices=across)
    trainer = trainer_of(pruning, args, dataset, loss)
    if stop:
        saved = pruning.callback.on_save

        def stopping(args, state, control, **kwargs):
            saved(args, state, control, **kwargs)
            control.should_training_stop = True

        pruning.callback.on_save = stopping
    trainer.train(resume_from_checkpoint=resume)
    drawn = [np.concatenate(part.sampler.drawn)[: part.sampler.trained_steps * 6].tolist() for part in pruning._sets]
    scores = [part.sampler.method.scores.similarity.tolist() for part in pruning._sets]
    weights = float(sum(p.detach().double().abs().sum() for p in trainer.model.parameters()))
    return {"steps": trainer.state.global_step, "drawn": drawn, "scores": scores, "weights": weights}


found = {
    "one": train("one", whole),
    "across": train("across", whole, max_steps=3),
    "several": train("several", several, multi_dataset_batch_sampler="round_robin"),
    "cut": train("cut", several, stop=5, multi_dataset_batch_sampler="round_robin"),
    "resumed": train("cut", several, resume=True, multi_dataset_batch_sampler="round_robin"),
}
Path(out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes(beir: Path, static_model: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    tests = str(Path(__file__).parents[1])
    log = tmp_path / "log"
    child = torchrun([str(script), tests, str(beir), str(static_model), str(tmp_path)], log)
    assert child.wait(DEADLINE) == 0, log.read_text()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["one"]["steps"] == 12  # 4 per epoch, as two processes with 6 rows of 48 each take
    assert len(first["one"]["drawn"][0]) == 12 * 2 * 6
    assert (
        first["several"]["steps"] == 12
    )  # 2 batches of each data set per epoch and process: the trainer drops the rest
    assert first["resumed"] == first["several"]
    assert first["cut"]["steps"] == 5
    assert len(set(np.round(first["one"]["scores"][0], 3))) > 5
    assert first["across"]["weights"] != pytest.approx(first["one"]["weights"])


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
    trainer_of(pruning, args, data, MultipleNegativesRankingLoss(own)).train()
    found = pruning.false_pairs()
    assert found is not None
    assert found.low < found.share < found.high
    assert str(found).startswith("FalsePairs(share=0.")
    assert "array" not in str(found)
    listed = found.probability[found.suspicious]
    assert (np.diff(listed) <= 0).all()
    assert len(listed) == (found.probability > 0.5).sum() > 100
    assert np.isnan(found.probability[:20]).all()
    wrong, probability = topics != answered, found.probability[20:]
    assert np.nanmean(probability[wrong]) > np.nanmean(probability[~wrong]) + 0.2


def test_a_document_is_ranked_among_those_that_were_trained_as_it_was(static_model: Path, tmp_path: Path) -> None:
    """Never before, or before. A pair that nothing was comparable with is not ranked later, when it was trained."""
    things = [f"t{topic}w{word}" for topic in range(4) for word in range(3)]
    rows = Dataset.from_dict(
        {"q": [thing for thing in things for _ in range(4)], "d": [f"{a} {b}" for a in things for b in things[:4]]}
    )
    model = open_model(static_model)
    args = arguments(tmp_path, num_train_epochs=3, per_device_train_batch_size=4)
    pruning = PairPruning(model, rows, "ft", args=args)
    trainer = trainer_of(pruning, args, rows, MultipleNegativesRankingLoss(model))
    (part,), seen, ranked = pruning._sets, set[str](), set[int]()
    plain = part.train

    def train(step: int, pairs: Any, similarity: Any, loss: Any, p: Any) -> None:
        own = part.rows.rows(pairs)
        before = [rows[row]["d"] in seen for row in own]
        for value, own_before in zip(p, before, strict=True):
            others = before.count(own_before) - 1
            assert np.isnan(value) == (others == 0)
            if others:  # (a + 1/2) / (b + 1), a a whole number: nothing scores the same
                assert value * (others + 1) % 1 == pytest.approx(0.5, abs=1e-5)
        new = [row for row in own if row not in trained]
        ranked.update(row for row, value in zip(own, p, strict=True) if row in new and not np.isnan(value))
        trained.update(own)
        seen.update(rows[row]["d"] for row in own)
        plain(step, pairs, similarity, loss, p)

    trained = set[int]()
    part.train = train  # type: ignore[method-assign]
    trainer.train()
    visited = set(part.rows.rows(np.flatnonzero(part.sampler.visits().visited)))
    assert visited == ranked < trained
