"""Distillation, against sentence-transformers' own loss, and where a teacher's scores are missing."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss
from torch.nn import functional as F

import opera
from distinct import known_of
from opera.config.training import TrainSettings
from opera.data import TeacherScores
from opera.data.pairs import TrainingPairs
from opera.training.loss import DistillationLoss, divergences, info_nce_losses
from opera.training.sampler import Batch
from small_runs import SMALL

ROWS = np.array([[0, 5, 6], [2, 7, 8], [1, 5, 9], [0, 6, 4]])
QUERIES = np.array([10, 11, 12])
PAIRS = TrainingPairs.from_arrays(np.array([0, 1, 2]), np.array([0, 1, 2]))
DRAWN = np.array([0, 2, 1, 0])
SCORED = [(0, 0), (0, 5), (0, 6), (0, 4), (2, 2), (2, 7), (1, 5), (1, 9)]  # 2 lacks document 8, 1 its positive


def make_batch() -> Batch:
    """A batch of four pairs."""
    queries, sets = PAIRS.pair_query[DRAWN], np.zeros(4, dtype=np.int64)
    return Batch(0, DRAWN, ROWS, np.ones(4, dtype=np.float32), queries, sets, {}, slice(0, 4))


def make_loss(seen: list[Any], **values: Any) -> DistillationLoss:
    """Make a loss that keeps in ``seen`` what is observed."""
    query, doc = np.array(SCORED).T
    teacher = TeacherScores.from_arrays(QUERIES[query], doc, np.linspace(-3, 4, len(SCORED)))
    model = SentenceTransformer(modules=[torch.nn.Identity()], device="cpu", similarity_fn_name="cosine")
    sampler = SimpleNamespace(observe=lambda step, observations: seen.append(observations))
    groups = {name: np.arange(100) for name in ("query_group", "document_group")}
    training_set = SimpleNamespace(
        data=SimpleNamespace(teacher=teacher, **groups),
        train=SimpleNamespace(query_rows=QUERIES),
        pairs=PAIRS,
        negatives=SimpleNamespace(lists=None, kind="random", known=known_of(PAIRS)),
        passages=None,
    )
    settings = TrainSettings.parse({"temperature": 0.1, "mask_known_positives": False, **values})
    loss = DistillationLoss(model, training_set, sampler, settings)
    loss.teacher_temperature = 2
    return loss


@pytest.fixture(scope="module")
def teacher_file(beir, static_model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("teacher") / "teacher.parquet"
    opera.score(beir, model=static_model, negatives=4, out=path)
    return path


def embeddings() -> list[torch.Tensor]:
    drawn = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [part.clone().requires_grad_() for part in F.normalize(drawn, dim=-1)]


def test_the_divergence_is_that_of_sentence_transformers():
    """Their loss has a factor τ², and no rows without scores."""
    parts = embeddings()
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    similarity = torch.stack([(parts[0] * part).sum(dim=-1) for part in parts[1:]], dim=1)
    ours, usable = divergences(similarity, scores, temperature=0.1, teacher_temperature=2)
    (gradient,) = torch.autograd.grad(ours.mean(), parts[0], retain_graph=True)
    model = None
    theirs = DistillKLDivLoss(model, student_temperature=0.1, teacher_temperature=2)
    expected = theirs.compute_loss_from_embeddings(parts, scores)
    (its_gradient,) = torch.autograd.grad(expected, parts[0], retain_graph=True)
    # Sums of 12 terms below 100 in another order: 12·100·2⁻⁵³ = 1.3e-13, over τ² = 0.01.
    torch.testing.assert_close(ours.mean(), expected / 0.01, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradient, its_gradient / 0.01, rtol=0, atol=1e-9)
    assert usable.all()
    cross_entropy = -(torch.softmax(scores / 2, dim=1) * torch.log_softmax(similarity / 0.1, dim=1)).sum(dim=1).mean()
    (of_flagembedding,) = torch.autograd.grad(cross_entropy, parts[0])
    torch.testing.assert_close(gradient, of_flagembedding, rtol=0, atol=1e-9)


def test_documents_and_rows_without_scores_are_left_out():
    nan = torch.nan
    similarity = torch.tensor([[0.5, 0.1, 0.9], [0.5, 0.1, 0.9], [0.5, 0.1, 0.9]], requires_grad=True)
    teacher = torch.tensor([[2.0, 1.0, nan], [nan, 1.0, 2.0], [2.0, nan, nan]])
    losses, usable = divergences(similarity, teacher, 0.1, 1.0)
    assert usable.tolist() == [True, False, False]
    alone, _ = divergences(similarity[:1, :2], teacher[:1, :2], 0.1, 1.0)
    assert losses[0].item() == pytest.approx(alone[0].item())
    assert losses[1:].tolist() == [0, 0]
    losses.sum().backward()
    assert torch.isfinite(similarity.grad).all()
    assert (similarity.grad[1:] == 0).all()
    assert similarity.grad[0, 2] == 0


def test_the_loss_is_the_weighted_sum_and_infonce_is_observed():
    seen = []
    parts = embeddings()
    loss = make_loss(seen, distill_weight=0.25)
    mean = loss.loss_of(make_batch(), parts)
    similarity = parts[0] @ torch.cat(parts[1:]).T
    info_nce = info_nce_losses(similarity, 0.1, None)
    teacher = torch.from_numpy(loss.teacher.lookup(QUERIES[PAIRS.pair_query[DRAWN]][:, None], ROWS))
    of_rows = torch.stack([similarity[row, [row, row + 4, row + 8]] for row in range(4)])
    kl, usable = divergences(of_rows, teacher.double(), 0.1, 2)
    assert usable.tolist() == [True, True, False, True]
    expected = torch.where(usable, 0.25 * kl + 0.75 * info_nce, info_nce)
    torch.testing.assert_close(mean, expected.mean())
    assert np.allclose(seen[0].loss, info_nce.detach().numpy(), rtol=1e-6)


def test_a_run_learns_from_a_file_and_resumes_with_no_other(train, beir, static_model, tmp_path, teacher_file):
    teacher = Path(shutil.copy(teacher_file, tmp_path / "teacher.parquet"))
    settings = {**SMALL, "loss": "distill", "teacher_scores": str(teacher), "train_group_size": 3, "guard": False}
    run = train(**settings)
    assert run.settings["negatives"] == "teacher"
    other = train("hard", negatives="hard", **settings)
    assert other.trace()["loss"] != run.trace()["loss"]
    opera.score(beir, model=static_model, negatives=2, out=teacher, overwrite=True)
    with pytest.raises(opera.RunFolderError, match="teacher_fingerprint"):
        train(resume=True, **settings)


def test_gradient_caching_and_matryoshka_train_on_the_same_loss(train, bert_model, teacher_file):
    settings = {
        **SMALL,
        "max_steps": 2,
        "loss": "distill",
        "teacher_scores": str(teacher_file),
        "precision": "fp32",
        "guard": False,
        "dropout": 0,
    }
    losses = {}
    for name, more in {"plain": {}, "cached": {"gradient_cache": 4}, "sizes": {"matryoshka": "16,8"}}.items():
        run = train(name, model=bert_model, **settings, **more)
        losses[name] = run.trace()["loss"].to_pylist()
    # The same texts padded to other lengths: sums of some 1,000 terms in another order, 1000·2⁻²³ = 1.2e-4.
    assert losses["cached"] == pytest.approx(losses["plain"], rel=1e-3)
    assert losses["sizes"][0] == pytest.approx(losses["plain"][0], rel=1e-6)  # observed: InfoNCE of the whole
