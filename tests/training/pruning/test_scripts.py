"""What scripts do besides: evaluators, several data sets and losses, LoRA, negatives, loader workers, weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    CosineSimilarityLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    TripletLoss,
)

import opera
from opera.training.pruning import PairPruning
from opera.training.pruning.batches import Timetable
from own_scripts import arguments, open_model, pairs_of, trainer_of


@pytest.fixture(scope="module")
def dataset(beir: Path) -> Dataset:
    return pairs_of(opera.load_data(str(beir)))


def test_evaluations_are_left_alone(dataset: Dataset, bert_model: Path, tmp_path: Path) -> None:
    """Losses over an evaluation's data set and an evaluator change no draw and no weight."""
    kept = []
    for evaluates in (False, True):
        model = open_model(bert_model)
        more: dict[str, Any] = {}
        args = arguments(tmp_path / str(evaluates))
        if evaluates:
            args = arguments(tmp_path / "eval", eval_strategy="steps", eval_steps=2, eval_on_start=True)
            texts = dict(enumerate(dataset["answer"]))
            questions = {str(at): text for at, text in enumerate(dataset["question"][:6])}
            documents = {str(at): text for at, text in texts.items()}
            evaluator = InformationRetrievalEvaluator(questions, documents, {str(at): {str(at)} for at in range(6)})
            more = {"eval_dataset": dataset.select(range(20)), "evaluator": evaluator}
        pruning = PairPruning(model, dataset, args=args)
        trainer = trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model), **more)
        trainer.train()
        assert any("eval_loss" in row for row in trainer.state.log_history) == evaluates
        kept.append((np.concatenate(pruning._sets[0].sampler.drawn), trainer.model.state_dict()))
    np.testing.assert_array_equal(kept[0][0], kept[1][0])
    assert all((kept[0][1][name] == value).all() for name, value in kept[1][1].items())


def test_several_data_sets_with_a_loss_and_prompts_each(dataset: Dataset, bert_model: Path, tmp_path: Path) -> None:
    several = DatasetDict({"small": dataset.select(range(14)), "large": dataset.select(range(8, 48))})
    model = open_model(bert_model)
    prompts = {"small": {"question": "common1 "}, "large": {"question": "common2 common3 ", "answer": "common4 "}}
    args = arguments(tmp_path, per_device_train_batch_size=4, prompts=prompts)
    pruning = PairPruning(model, several, args=args)
    losses = {"small": MultipleNegativesRankingLoss(model, scale=10), "large": MultipleNegativesRankingLoss}
    trainer = trainer_of(pruning, args, several, losses)
    trainer.train()
    assert {name: watch.temperature for name, watch in pruning._watches.items()} == {"small": 0.1, "large": 0.05}
    assert [part.sampler.trained_steps for part in pruning._sets] == [2 * 4, 2 * 10]
    assert [part.sampler.method.plan.max_steps for part in pruning._sets] == [2 * 4, 2 * 10]
    last = trainer.state.log_history[-2]
    assert last["small_alpha"] == pytest.approx(5, abs=0.2)
    assert last["large_alpha"] == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("loss", [TripletLoss, CosineSimilarityLoss])
def test_any_loss_with_a_temperature_given(loss: Any, dataset: Dataset, static_model: Path, tmp_path: Path) -> None:
    texts, model = dataset["answer"], open_model(static_model)
    rows = dataset.add_column("score", [1.0] * len(texts))
    if loss is TripletLoss:
        rows = dataset.add_column("other", [*texts[5:], *texts[:5]])
    args = arguments(tmp_path, max_steps=2)
    pruning = PairPruning(model, rows, args=args, temperature=0.05)
    trainer_of(pruning, args, rows, loss(model)).train()
    assert pruning._sets[0].sampler.trained_steps == 2


def test_lora_trains_and_is_observed(dataset: Dataset, bert_model: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = open_model(bert_model)
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
    args = arguments(tmp_path)
    pruning = PairPruning(model, dataset, args=args)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model)).train()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora" in name for name in changed)
    assert pruning.curves()["coverage"] > 0.3


@pytest.mark.parametrize("changed", [{"gradient_accumulation_steps": 4}, {"dataloader_num_workers": 1}])
def test_the_lag_is_the_least_that_the_arguments_allow(
    changed: dict[str, Any], dataset: Dataset, static_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(static_model)
    args = arguments(tmp_path, num_train_epochs=3, **changed)
    pruning = PairPruning(model, dataset, args=args)
    trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model)).train()
    sampler = pruning._sets[0].sampler
    assert sampler.lag == (5 if "gradient_accumulation_steps" in changed else 4)
    assert sampler.trained_steps == sampler.method.plan.max_steps == 18
    lag = Timetable.lag
    monkeypatch.setattr(Timetable, "lag", lambda self, processes: lag(self, processes) - 1)
    model = open_model(static_model)
    pruning = PairPruning(model, dataset, args=args)
    with pytest.raises(opera.TrainingError, match="read further ahead of training than the lag"):
        trainer_of(pruning, args, dataset, MultipleNegativesRankingLoss(model)).train()


def test_negatives_are_candidates_of_every_query(dataset: Dataset, bert_model: Path, tmp_path: Path) -> None:
    """Three columns and a label: the observed loss is the loss of training, whose mean it is."""
    texts = dataset["answer"]
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]]).add_column("label", [0] * len(texts))
    model = open_model(bert_model)
    args = arguments(tmp_path, max_steps=3)
    pruning = PairPruning(model, rows, "ft", args=args)
    seen: list[np.ndarray] = []
    plain = pruning._sets[0].train
    pruning._sets[0].train = lambda *given: (seen.append(given[-1]), plain(*given))[1]  # type: ignore[method-assign]
    trainer = trainer_of(pruning, args, rows, MultipleNegativesRankingLoss(model))
    trainer.train()
    logged = [row["loss"] for row in trainer.state.log_history[:-1]]
    np.testing.assert_allclose([part.mean() for part in seen], logged, rtol=1e-5)


@pytest.mark.parametrize("matryoshka", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_weights_multiply_each_pairs_loss(
    cached: bool, matryoshka: bool, dataset: Dataset, bert_model: Path, tmp_path: Path
) -> None:
    """Where a weight is 3, gradients are those of a batch in which the pair's loss counts three times."""
    model = open_model(bert_model)
    loss: Any = MultipleNegativesRankingLoss(model)
    if cached:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    if matryoshka:
        loss = MatryoshkaLoss(model, loss, [32, 8])
    pruning = PairPruning(model, dataset, "infobatch")
    watched = pruning.watch(loss)
    weights = torch.tensor([1.0, 3.0, 1.0, 0.5])
    watch = next(iter(pruning._watches.values()))
    features = lambda: [model.preprocess(dataset[column][:4]) for column in ("question", "answer")]  # noqa: E731
    found = {}
    model.train()
    for name, factors in (("weighted", weights), ("plain", None)):
        watch.begin, watch.observe = lambda queries, factors=factors: factors, lambda *seen: None
        model.zero_grad()
        value = watched(features(), None)
        value.backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found[name] = value.item(), gradient
    model.zero_grad()
    queries, documents = (model(part)["sentence_embedding"] for part in features())
    expected: Any = 0.0
    for size in [32, 8] if matryoshka else [32]:
        short = [torch.nn.functional.normalize(part[:, :size]) for part in (queries, documents)]
        cosines = short[0] @ short[1].T
        losses = torch.nn.functional.cross_entropy(cosines * 20, torch.arange(4), reduction="none")
        expected = expected + (losses * weights).mean()
    expected.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert found["weighted"][0] == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(found["weighted"][1], gradient, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found["plain"][1], gradient, rtol=1e-2)
