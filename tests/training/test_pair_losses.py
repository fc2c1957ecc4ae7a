"""What is seen and weighed of sentence-transformers' losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    CosineSimilarityLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import dot_score

import opera
from opera.training.pair_losses import LossWatch, temperature_of
from own_scripts import LOSSES, open_model

TEXTS = [["t0w4 t0w5", "t1w4", "t2w4 t2w5", "t3w4"], ["t0w1 common1", "t1w1", "t2w2", "t3w0 t3w1"]]
WEIGHTS = torch.tensor([1.0, 3.0, 1.0, 0.5])


@pytest.fixture
def model(bert_model: Path) -> SentenceTransformer:
    return open_model(bert_model).train()


def run(model: SentenceTransformer, loss: Any) -> tuple[float, torch.Tensor]:
    """The loss of a batch of four pairs, and its gradients in one row."""
    model.zero_grad()
    value = loss([model.preprocess(column) for column in TEXTS], None)
    value.backward()
    return value.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def alone() -> torch.Tensor:
    """No document of the batch is a known positive of another's query."""
    return torch.eye(4, dtype=torch.bool)


@pytest.mark.parametrize("kind", [*LOSSES])
def test_similarity_and_infonce_are_seen_under_every_loss(
    kind: str, model: SentenceTransformer, bert_model: Path
) -> None:
    queries, documents = (torch.nn.functional.normalize(model(model.preprocess(column))["sentence_embedding"], dim=1)
                          for column in TEXTS)  # fmt: skip
    cosines = (queries @ documents.T).detach()
    losses = torch.nn.functional.cross_entropy(cosines / 0.05, torch.arange(4), reduction="none")
    loss, seen = LOSSES[kind](model, open_model(bert_model)), []
    watch = LossWatch(model, loss, None, lambda queries: None, lambda *values: seen.append(values), alone)
    assert watch.temperature == 0.05
    assert watch.weighs == ("gist" not in kind)
    run(model, loss)
    torch.testing.assert_close(seen[0][0], cosines.diagonal(), rtol=0, atol=1e-6)
    torch.testing.assert_close(seen[0][1], losses, rtol=0, atol=1e-4)
    above = (cosines > cosines.diagonal()[:, None]).sum(1)
    torch.testing.assert_close(seen[0][2], (above + 0.5) / 4)


@pytest.mark.parametrize("matryoshka", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_weights_multiply_each_pairs_loss(cached: bool, matryoshka: bool, model: SentenceTransformer) -> None:
    loss: Any = MultipleNegativesRankingLoss(model)
    if cached:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    if matryoshka:
        loss = MatryoshkaLoss(model, loss, [32, 8])
    watch = LossWatch(model, loss, None, lambda queries: WEIGHTS, lambda *seen: None, alone)
    value, gradient = run(model, loss)
    watch.begin = lambda queries: None
    _, plain = run(model, loss)

    def expected(features: Any, labels: None) -> torch.Tensor:
        queries, documents = (model(part)["sentence_embedding"] for part in features)
        total = torch.zeros(())
        for size in [32, 8] if matryoshka else [32]:
            short = [torch.nn.functional.normalize(part[:, :size]) for part in (queries, documents)]
            logits = short[0] @ short[1].T * 20
            losses = torch.nn.functional.cross_entropy(logits, torch.arange(4), reduction="none")
            total = total + (losses * WEIGHTS).mean()
        return total

    its_value, its_gradient = run(model, expected)
    assert value == pytest.approx(its_value, rel=1e-5)
    torch.testing.assert_close(gradient, its_gradient, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(plain, its_gradient, rtol=1e-2)


@pytest.mark.parametrize("options", [{"similarity_fct": dot_score}, {"directions": ("query_to_doc", "doc_to_query")}])
def test_losses_that_are_no_mean_of_infonce_cannot_weigh(options: dict[str, Any], model: SentenceTransformer) -> None:
    loss = MultipleNegativesRankingLoss(model, **options)
    assert not LossWatch(model, loss, None, lambda queries: None, lambda *seen: None, alone).weighs


def test_losses_without_a_temperature_are_named(model: SentenceTransformer) -> None:
    with pytest.raises(opera.SettingError, match=r"^temperature: 'CosineSimilarityLoss' has neither scale nor temp"):
        temperature_of(CosineSimilarityLoss(model))
