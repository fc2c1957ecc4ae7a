"""The loss: against the formula, against sentence-transformers, and with gradient caching that of the whole batch."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.base.losses.gradcache import _create_minibatch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor

from distinct import known_of, pool_of
from opera.config.training import TrainSettings
from opera.data import load_data
from opera.methods import METHODS, Plan
from opera.retrieval.models import load_model
from opera.training import loss as module
from opera.training.build import PairDataset
from opera.training.loss import InfoNCELoss, p_values
from opera.training.negatives import RandomNegatives
from opera.training.sampler import DataSetSampler, Observations, Sampler

BATCH, ROUNDED = 12, 2.0**-23
"""Pairs of a batch, and what float32 rounds off: what is observed is in float32."""


class Step:
    """One batch of a BERT in float64 with dropout, and its gradients under a loss."""

    def __init__(self, beir: Path, bert_model: Path, n_negatives: int = 2) -> None:
        data, self.model = load_data(beir), load_model(bert_model, "cpu").double().train()
        training = data.training_split()
        self.pairs = training.pairs()
        self.known = known_of(self.pairs)
        method = METHODS["ft"](self.pairs, Plan(0, 1, BATCH), None)
        negatives = RandomNegatives(pool_of(len(data.corpus)))
        sets = [DataSetSampler(method, negatives)]
        self.sampler = Sampler(sets, self.pairs, method.plan, BATCH, n_negatives=n_negatives)
        self.sampler.observe = self.observe
        dataset = PairDataset(training.query_rows, n_negatives, data.queries.texts, data.corpus.texts)
        self.batch, items = dataset.__getitems__(next(iter(self.sampler)))
        self.features = [self.model.preprocess([item[name] for item in items]) for name in items[0]]
        self.seen: list[Observations] = []

    def loss(self, **settings: Any) -> InfoNCELoss:
        training_set = SimpleNamespace(negatives=SimpleNamespace(known=self.known, kind="random"), passages=None)
        parsed = TrainSettings.parse({"temperature": 0.05, **settings})
        return InfoNCELoss(self.model, training_set, self.sampler, parsed)

    def observe(self, step: int, observations: Observations) -> None:
        """Keep what is observed; the step is trained again."""
        self.seen.append(observations)

    def value(self, loss: Any, seed: int = 1) -> Tensor:
        """The loss of the batch, with the dropout of a seed."""
        torch.manual_seed(seed)
        value = loss([dict(part) for part in self.features], self.batch)
        return value

    def gradients(self, value: Tensor) -> Tensor:
        """Backward from twice the loss, as a gradient scaler would; the gradients of all parameters in one row."""
        (2 * value).backward()
        gradient = torch.cat([part.grad.flatten() for part in self.model.parameters() if part.grad is not None])
        self.model.zero_grad()
        return gradient


@pytest.fixture(scope="module")
def step(beir, bert_model) -> Step:
    return Step(beir, bert_model)


@pytest.mark.parametrize("n_negatives", [0, 2])
def test_without_a_mask_the_loss_is_that_of_sentence_transformers(beir, bert_model, n_negatives):
    step = Step(beir, bert_model, n_negatives)
    step.model.eval()  # theirs embeds all documents in one pass, with other dropout
    ours, theirs = (
        step.value(loss)
        for loss in (step.loss(mask_known_positives=False), MultipleNegativesRankingLoss(step.model, scale=20))
    )
    # Sums of at most 1,000 terms below 20 in another order: 1024·20·2⁻⁵³ = 2e-12.
    assert ours.item() == pytest.approx(theirs.item(), rel=0, abs=1e-10)
    torch.testing.assert_close(step.gradients(ours), step.gradients(theirs), rtol=0, atol=1e-10)
    ids, similarity, losses, _ = step.seen[0]
    assert ids.tolist() == step.batch.pair_ids.tolist() == step.sampler.sampled[0].tolist()
    assert losses.mean(dtype=np.float64) == pytest.approx(ours.item(), rel=ROUNDED)
    assert (np.abs(similarity) <= 1.0001).all()


def test_masked_documents_do_not_change_the_loss(step):
    step.seen.clear()
    step.model.eval()
    step.value(step.loss())
    embedded = (step.model(dict(part))["sentence_embedding"] for part in step.features)
    queries, *docs = (torch.nn.functional.normalize(part, dim=-1) for part in embedded)
    step.model.train()
    logits, drawn, pairs = queries @ torch.cat(docs).T / 0.05, step.batch, step.pairs
    columns, masked = drawn.doc_rows.T.flatten().tolist(), 0
    for row in range(BATCH):
        positives = set(pairs.pair_doc[pairs.pair_query == pairs.pair_query[drawn.pair_ids[row]]].tolist())
        keep = [column for column, doc in enumerate(columns) if column == row or doc not in positives]
        masked += len(columns) - len(keep)
        expected = torch.logsumexp(logits[row, keep], 0) - logits[row, row]
        assert step.seen[0][2][row] == pytest.approx(expected.item(), rel=4 * ROUNDED)
    assert masked > 0


def test_weights_multiply_the_loss_and_not_what_is_observed(step):
    step.seen.clear()
    weights, drawn = np.linspace(0.5, 2, BATCH).astype(np.float32), step.batch.weights
    plain = step.value(step.loss())
    drawn[:] = weights
    mixed = step.value(step.loss())
    drawn[:] = 1
    assert np.array_equal(step.seen[0][2], step.seen[1][2])
    losses = step.seen[0][2].astype(np.float64)
    assert plain.item() == pytest.approx(losses.mean(), rel=ROUNDED)
    assert mixed.item() == pytest.approx((losses * weights).mean(), rel=ROUNDED)


@pytest.mark.parametrize("random", [True, False])
def test_mined_negatives_of_the_query_do_not_count_in_the_rank(random, step, monkeypatch):
    marked = []
    monkeypatch.setattr(module, "p_values", lambda *values: marked.append(values[1]) or p_values(*values))
    loss = step.loss()
    loss.negatives_are_random = random
    step.value(loss)
    rows, columns = torch.arange(BATCH), range(BATCH, marked[0].shape[1], BATCH)
    assert len(columns) > 0
    assert all(marked[0][rows, first + rows].all() for first in columns) is not random


@pytest.mark.parametrize(("texts", "sizes"), [(5, None), (1, "8,4"), (BATCH, None)])
def test_cached_gradients_are_those_of_the_whole_batch(step, texts, sizes):
    """In float64, with the dropout that the passes drew: sums of a few thousand terms in another order."""
    step.seen.clear()
    cached = step.value(step.loss(gradient_cache=texts, matryoshka=sizes))
    of_cached = step.gradients(cached)
    torch.manual_seed(1)
    embeddings = [
        torch.cat(
            [step.model(_create_minibatch(part, at, at + texts))["sentence_embedding"] for at in range(0, BATCH, texts)]
        )
        for part in step.features
    ]
    uncached = step.loss(matryoshka=sizes).loss_of(step.batch, embeddings)
    of_uncached = step.gradients(uncached)
    assert cached.item() == pytest.approx(uncached.item(), rel=1e-12)
    assert of_uncached.abs().max() > 0.01
    torch.testing.assert_close(of_cached, of_uncached, rtol=0, atol=1e-12)
    for one, other in zip(*step.seen, strict=True):
        np.testing.assert_array_equal(one, other)
    if texts == BATCH:  # one pass draws the random numbers of no cache
        torch.testing.assert_close(of_cached, step.gradients(step.value(step.loss())), rtol=0, atol=1e-12)


def test_a_matryoshka_loss_is_the_mean_over_the_sizes_and_the_whole_is_observed(step):
    step.model.eval()
    embeddings = step.loss().embed([dict(part) for part in step.features])
    step.model.train()
    parts = [step.loss().loss_of(step.batch, [column[:, :size] for column in embeddings]) for size in (8, 4, 32)]
    together = step.loss(matryoshka="8,4").loss_of(step.batch, embeddings)
    assert together.item() == pytest.approx(sum(part.item() for part in parts) / 3, rel=1e-12)
    for one, other in zip(*step.seen[-2:], strict=True):
        np.testing.assert_array_equal(one, other)
