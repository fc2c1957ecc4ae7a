"""Gradient caching: loss, gradients and observations are those of the whole batch, whatever fits into one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.base.losses.gradcache import _create_minibatch
from torch import Tensor

import opera
from opera.core.errors import SettingError
from opera.data import load_data
from opera.methods import METHODS, Plan
from opera.retrieval.models import load_model
from opera.training.dataset import text_dataset
from opera.training.loss import InfoNCELoss
from opera.training.sampler import PairSampler
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.negatives import RandomNegatives
from small_runs import SMALL

BATCH = 12


class Step:
    """One batch of a BERT in float64 with dropout, and its gradients under a loss."""

    def __init__(self, beir: Path, bert_model: Path) -> None:
        data, self.model = load_data(beir), load_model(bert_model, "cpu").double().train()
        training = data.training_split()
        pairs = training.pairs()
        self.known = KnownPositives.of(pairs)
        method = METHODS["ft"](pairs, Plan(0, 1, BATCH), None)
        self.sampler = PairSampler(method, pairs, RandomNegatives(DocumentPool(len(data.corpus))), 2, BATCH)
        items = text_dataset(data, training.query_rows, 2, "title_text").__getitems__(next(iter(self.sampler)))
        columns = [name for name in items[0] if name != "label"]
        self.features = [self.model.preprocess([item[name] for item in items]) for name in columns]
        self.labels = torch.tensor([item["label"] for item in items])
        self.seen: list[Any] = []

    def loss(self, **more: Any) -> InfoNCELoss:
        return InfoNCELoss(self.model, self.sampler, 0.05, self.known, lambda *values: self.seen.append(values), **more)

    def gradients(self, value: Tensor) -> Tensor:
        """Backward from twice the loss, as a gradient scaler would; the gradients of all parameters in one row."""
        (2 * value).backward()
        found = torch.cat([part.grad.flatten() for part in self.model.parameters() if part.grad is not None])
        self.model.zero_grad()
        return found


@pytest.fixture(scope="module")
def step(beir: Path, bert_model: Path) -> Step:
    return Step(beir, bert_model)


@pytest.mark.parametrize("sizes", [(), (8, 4)])
@pytest.mark.parametrize("texts", [5, 1, BATCH])
def test_gradients_are_those_of_the_whole_batch(step: Step, texts: int, sizes: tuple[int, ...]) -> None:
    """In float64, with the dropout that the passes drew: sums of a few thousand terms in another order."""
    step.seen.clear()
    torch.manual_seed(1)
    cached = step.loss(gradient_cache=texts, sizes=sizes)([dict(part) for part in step.features], step.labels)
    of_cached = step.gradients(cached)
    torch.manual_seed(1)
    embeddings = [
        torch.cat(
            [step.model(_create_minibatch(part, at, at + texts))["sentence_embedding"] for at in range(0, BATCH, texts)]
        )
        for part in step.features
    ]
    whole = step.loss(sizes=sizes).loss_of(step.labels, embeddings)
    of_whole = step.gradients(whole)
    assert cached.item() == pytest.approx(whole.item(), rel=1e-12)
    assert of_whole.abs().max() > 0.01
    torch.testing.assert_close(of_cached, of_whole, rtol=0, atol=1e-12)
    for one, other in zip(*step.seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_with_one_pass_the_random_numbers_are_those_of_no_cache(step: Step) -> None:
    found = []
    for texts in (None, BATCH):
        torch.manual_seed(2)
        loss = step.loss(gradient_cache=texts)([dict(part) for part in step.features], step.labels)
        found.append(step.gradients(loss))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_the_observation_is_of_the_whole_embedding(step: Step) -> None:
    step.model.eval()
    step.seen.clear()
    for sizes in ((), (8,)):
        step.loss(sizes=sizes)([dict(part) for part in step.features], step.labels)
    step.model.train()
    for one, other in zip(*step.seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_matryoshka_loss_is_the_mean_over_the_sizes(step: Step) -> None:
    step.model.eval()
    embeddings = step.loss().embed([dict(part) for part in step.features])
    step.model.train()
    parts = [step.loss().loss_of(step.labels, [column[:, :size] for column in embeddings]) for size in (32, 8, 4)]
    together = step.loss(sizes=(8, 4)).loss_of(step.labels, embeddings)
    assert together.item() == pytest.approx(sum(part.item() for part in parts) / 3, rel=1e-12)


def test_a_run_in_half_precision(beir: Path, bert_model: Path, tmp_path: Path) -> None:
    """bf16 has 8 bits; the cached run embeds other batches, and differs by rounding alone."""
    losses = []
    for texts in (None, 5):
        settings = {**SMALL, "max_steps": 3, "precision": "bf16", "dropout": 0.0, "guard": False}
        out = tmp_path / str(texts)
        run = opera.adapt(beir, model=bert_model, out=out, method="dp", gradient_cache=texts, **settings)
        assert run.settings["gradient_cache"] == texts
        losses.append(run.trace()["loss"].to_numpy())
    np.testing.assert_allclose(*losses, rtol=2e-2)


def test_a_static_model_needs_none(beir: Path, static_model: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="gradient_cache=8: is for transformers; StaticEmbedding keeps nothing"):
        opera.adapt(beir, model=static_model, out=tmp_path / "run", gradient_cache=8)
    assert not (tmp_path / "run").exists()
