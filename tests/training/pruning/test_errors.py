"""What cannot work is refused with one line that says what to do; no pair is ever observed as another."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
from sentence_transformers.util import dot_score

import opera
from opera.training.pruning import PairPruning
from own_scripts import arguments, open_model, pairs_of, trainer_of


@pytest.fixture(scope="module")
def dataset(beir: Path) -> Dataset:
    return pairs_of(opera.load_data(str(beir)))


@pytest.fixture
def model(static_model: Path) -> SentenceTransformer:
    return open_model(static_model)


def column(values: list[Any]) -> Dataset:
    return Dataset.from_dict({"q": values, "d": ["x"] * len(values)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda d: d.to_iterable_dataset(),
            "dataset: must be a datasets.Dataset, got IterableDataset: methods draw any",
        ),
        (lambda d: [("a", "b")], "dataset: must be a datasets.Dataset or DatasetDict, got <class 'list'>"),
        (lambda d: DatasetDict({"x": [1]}), r"dataset\['x'\]: must be a datasets.Dataset or"),
        (lambda d: DatasetDict(), "dataset: holds no data set"),
        (lambda d: d.select_columns(["answer"]), "dataset: needs two columns of text"),
        (lambda d: d.select([]), "dataset: has no row: nothing to train on"),
        (lambda d: column(["a", None]), "dataset: row 1, column 'q': must be a text that is not empty, got None"),
        (lambda d: column(["a", " "]), "dataset: row 1, column 'q': must be a text that is not empty, got ' '"),
        (lambda d: column([1, 2]), "dataset: row 0, column 'q': must be a text that is not empty, got 1"),
        (
            lambda d: d.add_column("year", [1999] * len(d)),
            "dataset: row 0, column 'year': must be a text, got 1999; .*remove_columns",
        ),
        (
            lambda d: d.add_column("others", [["a"]] * len(d)),
            r"dataset: row 0, column 'others': must be a text, got \['a'\]",
        ),
    ],
)
def test_data_that_are_no_pairs(
    make: Callable[[Dataset], Any], message: str, dataset: Dataset, model: SentenceTransformer
) -> None:
    with pytest.raises(opera.DataError, match=f"^{message}"):
        PairPruning(model, make(dataset))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "dpp"}, "unknown method 'dpp'; did you mean 'dp'"),
        ({"alpha": 3}, r"unknown setting 'alpha'; did you mean 'alpha_end'\?"),
        ({"method": "ft", "k": 0.5}, "unknown setting 'k'"),
        ({"alpha_end": 0}, "alpha_end: must be greater than or equal to 1, got 0"),
        ({"method": "sp", "k": 0.001}, r"k=0.001 keeps ⌊0.001·48⌋ = 0 of 48 pairs"),
        ({"temperature": 0}, "temperature: must be a number above 0, got 0"),
        ({"temperature": "warm"}, "temperature: must be a number above 0, got 'warm'"),
        ({"args": {}}, "args: must be SentenceTransformerTrainingArguments, got {}"),
    ],
)
def test_settings(settings: dict[str, Any], message: str, dataset: Dataset, model: SentenceTransformer) -> None:
    with pytest.raises(opera.SettingError, match=f"^{message}"):
        PairPruning(model, dataset, **settings)


def test_models_of_other_kinds(dataset: Dataset) -> None:
    with pytest.raises(opera.ModelError, match=r"^model: must be a SentenceTransformer, got 'Linear'"):
        PairPruning(torch.nn.Linear(2, 2), dataset)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"auto_find_batch_size": True}, "args.auto_find_batch_size=True: .* give per_device_train_batch_size"),
        (
            {"accelerator_config": {"split_batches": True}},
            "args.accelerator_config.split_batches=True: .* leave it out",
        ),
        ({"accelerator_config": {"dispatch_batches": True}}, "args.accelerator_config.dispatch_batches=True: "),
    ],
)
def test_arguments_that_take_batches_apart(
    changed: dict[str, Any], message: str, dataset: Dataset, model: SentenceTransformer, tmp_path: Path
) -> None:
    with pytest.raises(opera.SettingError, match=f"^{message}"):
        PairPruning(model, dataset, args=arguments(tmp_path, **changed))


def test_losses_without_a_temperature(dataset: Dataset, model: SentenceTransformer) -> None:
    with pytest.raises(opera.SettingError, match=r"^temperature: 'CosineSimilarityLoss' has neither scale nor temp"):
        PairPruning(model, dataset).watch(CosineSimilarityLoss(model))
    pruning = PairPruning(model, dataset, temperature=0.1)
    assert pruning.watch(MultipleNegativesRankingLoss) is not None
    assert next(iter(pruning._watches.values())).temperature == 0.1


@pytest.mark.parametrize(
    "options",
    [{"similarity_fct": dot_score}, {"directions": ("query_to_doc", "doc_to_query")}],
)
def test_losses_that_cannot_weigh(options: dict[str, Any], dataset: Dataset, model: SentenceTransformer) -> None:
    with pytest.raises(opera.SettingError, match=r"^method=infobatch: weighs each pair's loss"):
        PairPruning(model, dataset, "infobatch").watch(MultipleNegativesRankingLoss(model, **options))


def test_batches_larger_than_the_queries(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args = arguments(tmp_path, per_device_train_batch_size=40)
    trainer = trainer_of(PairPruning(model, dataset), args, dataset, MultipleNegativesRankingLoss(model))
    with pytest.raises(opera.SettingError, match=r"^per_device_train_batch_size=40: more than the .* distinct queries"):
        trainer.train()


def test_a_training_without_a_watched_loss(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args, pruning = arguments(tmp_path), PairPruning(model, dataset)
    args.batch_sampler = pruning.sampler
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=loss)
    with pytest.raises(opera.SettingError, match=r"^PairPruning: no loss is watched"):
        trainer.train()


def test_a_training_with_another_data_set(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args, pruning = arguments(tmp_path), PairPruning(model, dataset)
    trainer = trainer_of(pruning, args, dataset.select(range(20)), MultipleNegativesRankingLoss(model))
    with pytest.raises(
        opera.SettingError, match=r"^train_dataset: is another object than the dataset that PairPruning"
    ):
        trainer.train()


@pytest.mark.parametrize("told", ["callback", "args", "nothing"])
def test_a_training_with_another_sampler(
    told: str, dataset: Dataset, model: SentenceTransformer, tmp_path: Path
) -> None:
    args = arguments(tmp_path, batch_sampler="no_duplicates")
    pruning = PairPruning(model, dataset, "ft", args=args if told == "args" else None)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        loss=pruning.watch(MultipleNegativesRankingLoss(model)),
        callbacks=[pruning.callback] if told == "callback" else [],
    )
    message = r"args.batch_sampler: is BatchSamplers.NO_DUPLICATES, not pruning.sampler; set"
    message = r"PairPruning: the loss got a batch that was not drawn" if told == "nothing" else message
    with pytest.raises((opera.SettingError, opera.TrainingError), match=f"^{message}"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_batches_in_another_order(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    class Swapping(SentenceTransformerTrainer):
        def get_batch_samples(self, *given: Any) -> tuple[list[Any], Any]:
            batches, items = super().get_batch_samples(*given)
            return batches[::-1], items

    args = arguments(tmp_path, gradient_accumulation_steps=2)
    pruning = PairPruning(model, dataset, args=args)
    args.batch_sampler = pruning.sampler
    loss = pruning.watch(MultipleNegativesRankingLoss(model))
    trainer = Swapping(model=model, args=args, train_dataset=dataset, loss=loss)
    with pytest.raises(
        opera.TrainingError, match=r"^PairPruning: the loss got another query than was drawn at row 0 of"
    ):
        trainer.train()


def test_prompts_that_the_pairs_were_scored_without(
    dataset: Dataset, model: SentenceTransformer, tmp_path: Path
) -> None:
    args = arguments(tmp_path, prompts={"question": "common1 "})
    pruning = PairPruning(model, dataset)
    trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model))
    with pytest.raises(
        opera.SettingError, match=r"^args.prompts=.*: the pairs were scored with None; give PairPruning"
    ):
        trainer.train()
    trainer = trainer_of(
        PairPruning(model, dataset), args, dataset, MultipleNegativesRankingLoss(model), callback=False
    )
    with pytest.raises(opera.TrainingError, match=r"^PairPruning: the loss got another query than was drawn"):
        trainer.train()
    trainer_of(PairPruning(model, dataset, args=args), args, dataset, MultipleNegativesRankingLoss(model)).train()


def test_reading_further_ahead_than_was_known(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args = arguments(tmp_path, gradient_accumulation_steps=3)
    trainer = trainer_of(
        PairPruning(model, dataset), args, dataset, MultipleNegativesRankingLoss(model), callback=False
    )
    with pytest.raises(
        opera.TrainingError, match=r"^PairPruning: batches of dataset are read further ahead .* lag of 2"
    ):
        trainer.train()


def test_more_epochs_than_were_known(
    dataset: Dataset, model: SentenceTransformer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args, pruning = arguments(tmp_path, num_train_epochs=2), PairPruning(model, dataset)
    with caplog.at_level(logging.WARNING, "opera"):
        trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model), callback=False).train()
    said = [record.getMessage() for record in caplog.records if record.name == "opera"]
    assert len(said) == 1
    assert said[0].startswith("warning: PairPruning: dataset: the schedule of dp was planned for 6 batches")
    assert pruning.curves()["alpha"] == pytest.approx(5)


def test_a_second_training(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args, pruning = arguments(tmp_path, max_steps=2), PairPruning(model, dataset)
    trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model))
    trainer.train()
    with pytest.raises(
        opera.TrainingError, match=r"^PairPruning: dataset is read again, by a second training or an evaluation; make"
    ):
        trainer.train()


def test_an_evaluation_on_the_object_that_trains(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args = arguments(tmp_path, eval_strategy="steps", eval_steps=2)
    loss = MultipleNegativesRankingLoss(model)
    trainer = trainer_of(PairPruning(model, dataset), args, dataset, loss, eval_dataset=dataset)
    with pytest.raises(opera.TrainingError, match=r"^PairPruning: dataset is read again, by"):
        trainer.train()


@pytest.mark.parametrize("batch_size", [8, 48])
def test_an_evaluation_on_it_before_training(
    batch_size: int, dataset: Dataset, model: SentenceTransformer, tmp_path: Path
) -> None:
    args = arguments(tmp_path, eval_on_start=True, eval_strategy="steps", per_device_eval_batch_size=batch_size)
    loss = MultipleNegativesRankingLoss(model)
    queries = Dataset.from_dict({"q": [f"word{at}" for at in range(48)], "d": ["text"] * 48})
    trainer = trainer_of(PairPruning(model, queries), args, queries, loss, eval_dataset=queries)
    with pytest.raises(opera.TrainingError, match="evaluate on another object than the one that trains"):
        trainer.train()


def test_an_automatic_method(dataset: Dataset, model: SentenceTransformer) -> None:
    assert PairPruning(model, dataset, "auto").method.name == "ft"


def test_a_loss_of_another_model(dataset: Dataset, model: SentenceTransformer, static_model: Path) -> None:
    with pytest.raises(opera.SettingError, match=r"^loss: MultipleNegativesRankingLoss was made with another model"):
        PairPruning(model, dataset).watch(MultipleNegativesRankingLoss(open_model(static_model)))


def test_a_loss_is_watched_once(dataset: Dataset, model: SentenceTransformer, tmp_path: Path) -> None:
    args, pruning, loss = (
        arguments(tmp_path, max_steps=3),
        PairPruning(model, dataset),
        MultipleNegativesRankingLoss(model),
    )
    pruning.watch(loss)
    trainer_of(pruning, args, dataset, loss).train()
    assert pruning._sets[0].sampler.trained_steps == 3


def test_checkpoints_of_another_training(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    """The state must be that of the checkpoint whose weights are loaded, which may lie elsewhere."""

    def trainer(out: Path, rate: float) -> SentenceTransformerTrainer:
        args, own = arguments(out, save_strategy="steps", save_steps=4, learning_rate=rate), open_model(static_model)
        return trainer_of(PairPruning(own, dataset, args=args), args, dataset, MultipleNegativesRankingLoss(own))

    for name, rate in (("one", 0.05), ("other", 0.01)):
        trainer(tmp_path / name, rate).train()
    with pytest.raises(
        opera.RunFolderError, match=r"one/checkpoint-4: is of another training than the one that is resu"
    ):
        trainer(tmp_path / "one", 0.05).train(resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-4"))
    cut = tmp_path / "one" / "checkpoint-4"
    (cut / "opera_pruning.npz").write_bytes((cut / "opera_pruning.npz").read_bytes()[:-100])
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: "):
        trainer(tmp_path / "one", 0.05).train(resume_from_checkpoint=str(cut))
    own, args, fewer = open_model(static_model), arguments(tmp_path / "other"), dataset.select(range(41))
    again = trainer_of(PairPruning(own, fewer, args=args), args, fewer, MultipleNegativesRankingLoss(own))
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: belongs to other rows than the dataset has"):
        again.train(resume_from_checkpoint=str(tmp_path / "other" / "checkpoint-4"))


def test_resuming_without_the_callback(dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    def trainer(callback: bool, save_steps: int) -> SentenceTransformerTrainer:
        args, own = arguments(tmp_path, save_strategy="steps", save_steps=save_steps), open_model(static_model)
        loss = MultipleNegativesRankingLoss(own)
        return trainer_of(PairPruning(own, dataset, args=args), args, dataset, loss, callback)

    trainer(False, 1).train()
    for step, message in (
        (1, "batches of dataset are read further ahead"),
        (4, "batches of dataset are read further ahead"),
        (6, "the training resumes in epoch 2 and nothing was drawn yet"),
    ):
        with pytest.raises(opera.TrainingError, match=f"^PairPruning: {message}.*pruning.callback"):
            trainer(False, 100).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    with pytest.raises(opera.RunFolderError, match=r"opera_pruning.npz: does not exist"):
        trainer(True, 100).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_saved_arguments_hold_no_model(dataset: Dataset, model: SentenceTransformer) -> None:
    saved = pickle.dumps(PairPruning(model, dataset).sampler)
    assert len(saved) < 200
    with pytest.raises(opera.SettingError, match=r"^args.batch_sampler: was a PairPruning"):
        pickle.loads(saved)(dataset, batch_size=2, drop_last=False)
