"""The loss, against the formula and against sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import opera
from opera.core.errors import TrainingError
from opera.data import load_data
from opera.methods import METHODS, Plan
from opera.retrieval.models import load_model
from opera.training.dataset import text_dataset
from opera.training.loss import InfoNCELoss, info_nce_losses
from opera.training.sampler import PairSampler
from opera.training_set.documents import DocumentPool, KnownPositives
from opera.training_set.negatives import RandomNegatives
from small_runs import SMALL, weights


def test_matches_the_formula() -> None:
    similarity = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    excluded = torch.zeros(3, 5, dtype=torch.bool)
    excluded[0, 4] = excluded[2, 0] = True
    got = info_nce_losses(similarity, 0.1, excluded)
    for row in range(3):
        kept = [column for column in range(5) if not excluded[row, column]]
        logits = similarity[row, kept] / 0.1
        expected = torch.logsumexp(logits, 0) - similarity[row, row] / 0.1
        assert got[row].item() == pytest.approx(expected.item())


def make_batch(
    beir: Path, static_model: Path, n_negatives: int
) -> tuple[SentenceTransformer, PairSampler, list, torch.Tensor]:
    data, model = load_data(beir), load_model(static_model, "cpu").double()  # what is observed is rounded to float32
    training = data.training_split()
    pairs = training.pairs()
    method = METHODS["ft"](pairs, Plan(0, 4, 16), None)
    sampler = PairSampler(method, pairs, RandomNegatives(DocumentPool(len(data.corpus))), n_negatives, 16)
    dataset = text_dataset(data, training.query_rows, n_negatives, "title_text")
    items = dataset.__getitems__(next(iter(sampler)))
    columns = [name for name in items[0] if name != "label"]
    features = [model.preprocess([item[name] for item in items]) for name in columns]
    return model, sampler, features, torch.tensor([item["label"] for item in items])


@pytest.mark.parametrize("n_negatives", [0, 1, 3])
def test_unmasked_it_is_sentence_transformers_own(beir: Path, static_model: Path, n_negatives: int) -> None:
    model, sampler, features, labels = make_batch(beir, static_model, n_negatives)
    seen: list[tuple] = []
    ours = InfoNCELoss(model, sampler, 0.05, None, lambda *args: seen.append(args))
    loss = ours([dict(f) for f in features], labels)
    loss.backward()
    gradient = model[0].embedding.weight.grad.clone()
    model.zero_grad()
    theirs = MultipleNegativesRankingLoss(model, scale=20)([dict(f) for f in features], labels)
    theirs.backward()
    # Sums of at most 16·64 terms below 20 in another order: 1024·20·2⁻⁵³ = 2e-12.
    assert loss.item() == pytest.approx(theirs.item(), rel=0, abs=1e-10)
    torch.testing.assert_close(gradient, model[0].embedding.weight.grad, rtol=0, atol=1e-10)
    step, ids, similarity, losses = seen[0]
    assert step == 0
    assert ids.tolist() == sampler.batch_at(0, 0).pair_ids.tolist()
    assert labels.tolist() == [[0, position] for position in range(16)]
    assert losses.mean(dtype=np.float64) == pytest.approx(loss.item(), rel=2.0**-23)
    assert (np.abs(similarity) <= 1.0001).all()


def test_masked_columns_have_no_say(beir: Path, static_model: Path) -> None:
    model, sampler, features, labels = make_batch(beir, static_model, 2)
    pairs, drawn = sampler.pairs, sampler.batch_at(0, 0)
    known = KnownPositives.of(pairs)
    seen: list[tuple] = []
    InfoNCELoss(model, sampler, 0.05, known, lambda *args: seen.append(args))([dict(f) for f in features], labels)
    queries, *docs = (model(dict(f))["sentence_embedding"] for f in features)
    logits = queries @ torch.cat(docs).T / 0.05
    docs_of_columns = drawn.doc_rows.T.flatten().tolist()
    masked = 0
    for row in range(len(labels)):
        positives = set(pairs.pair_doc[pairs.pair_query == pairs.pair_query[drawn.pair_ids[row]]].tolist())
        keep = [c for c, doc in enumerate(docs_of_columns) if c == row or doc not in positives]
        masked += len(docs_of_columns) - len(keep)
        expected = torch.logsumexp(logits[row, keep], 0) - logits[row, row]
        assert seen[0][3][row] == pytest.approx(expected.item(), rel=2.0**-23)
    assert masked > 0


def test_weights_multiply_the_loss_and_not_what_is_observed(beir: Path, static_model: Path) -> None:
    model, sampler, features, labels = make_batch(beir, static_model, 1)
    weights = np.linspace(0.5, 2, len(labels)).astype(np.float32)
    seen: list[tuple] = []
    loss = InfoNCELoss(model, sampler, 0.05, None, lambda *args: seen.append(args))
    plain = loss([dict(f) for f in features], labels)
    sampler._untrained[0].weights[:] = weights
    mixed = loss([dict(f) for f in features], labels)
    assert np.array_equal(seen[0][3], seen[1][3])
    losses = seen[0][3].astype(np.float64)
    assert plain.item() == pytest.approx(losses.mean(), rel=2.0**-23)
    assert mixed.item() == pytest.approx((losses * weights).mean(), rel=2.0**-23)


def test_a_loss_that_is_no_number_ends_training(beir: Path, static_model: Path) -> None:
    model, sampler, features, labels = make_batch(beir, static_model, 1)
    with torch.no_grad():
        model[0].embedding.weight.fill_(torch.nan)
    loss = InfoNCELoss(model, sampler, 0.05, None, lambda *_: None)
    with pytest.raises(TrainingError, match="step 0: the loss is not a finite number; lower learning_rate"):
        loss([dict(f) for f in features], labels)


def test_infobatch_weights_reach_the_loss(beir: Path, static_model: Path, tmp_path: Path) -> None:
    """With ρ = 0 nothing is left out and every weight is 1; with ρ = 0.5 the same seed trains to other weights."""
    runs = [
        opera.adapt(beir, model=static_model, out=tmp_path / str(rho), method="infobatch", rho=rho, **SMALL)
        for rho in (0.0, 0.5)
    ]
    assert weights(runs[0]) != weights(runs[1])
    thresholds = runs[0].trace()["query_threshold"].to_pylist()
    assert thresholds[0] is None  # nothing seen yet
    assert thresholds[-1] > 0
