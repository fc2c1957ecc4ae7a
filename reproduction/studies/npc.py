"""NPC, the noisy pair corrector (Zhang et al. 2023, arXiv:2311.03798), as a loss: ``loss=npc``.

    OPERA_EXTENSIONS=npc PYTHONPATH=reproduction/studies opera train DATA --model M --set loss=npc --out run

The model trains with InfoNCE until the first scoring pass. A scoring pass computes the perplexity of every training
pair: its InfoNCE loss against random documents. A mixture of two normal distributions is fitted to the perplexities.
A pair is noisy if its probability to belong to the lower component is below one half. From then on a clean pair trains
with InfoNCE, and a noisy pair with the divergence of the model's distribution over the documents of the batch from
that of a teacher. The teacher is an exponential moving average of the model.

The abstract, the summary of Figure 3 and the definition of the perplexity were at hand, the paper's other details were
not. So these are assumptions:

- The perplexity is the logarithm, -log p. Perplexities are scaled to 0..1 before the mixture is fitted, and the fit
  stops early (:data:`MIXTURE`). This was chosen in NPC's favour, with the true labels in view, on EntailmentBank and
  ToolLens with seed 0: a fit until convergence took about two thirds of their pairs for noisy at 30% random noise.
- All pairs share the same :data:`RANDOM_DOCUMENTS` random documents in a scoring pass; known positives are left out.
- An epoch draws every query once. A static model's epochs have few steps, so a scoring pass follows at most
  :data:`MOST_PASSES` times in a run, and the warm-up is at least as long as the time between two passes.
- The teacher starts as a copy of the model at the first scoring pass. Its decay is :data:`DECAY` for each step, and its
  softmax has the model's temperature.
- A noisy pair's own document stays among the documents of both distributions, and stays a negative of other queries.
- Both losses have weight 1, and the loss is their mean over the batch.

The public interface of losses has no place for a loss's settings (they are constants here), for state in a checkpoint
(a resumed run starts with a new teacher, and takes every pair for clean until the next scoring pass), or for results in
the run folder (a program reads them from :attr:`NoisyPairLoss.trainings`). The loss works in one process, and without a
gradient cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar
from warnings import catch_warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sentence_transformers import SentenceTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.nn import functional as F

from opera.config.training import TrainSettings
from opera.core.arrays import FloatArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import resolved
from opera.training.build import TrainingSet
from opera.training.loss import InBatchLoss, info_nce_losses, register_loss
from opera.training.sampler import Batch

RANDOM_DOCUMENTS = 500
"""Random documents that a pair's perplexity is measured against."""
MIXTURE = {"max_iter": 10, "tol": 0.01, "reg_covar": 5e-4}
"""A few steps of EM from k-means."""
MOST_PASSES = 10
"""Scoring passes in a run, at most."""
DECAY = 0.99
"""Weight of the teacher's former parameters at each step."""
THRESHOLD = 0.5
"""A pair is noisy if its probability to be clean is lower."""


@dataclass(frozen=True)
class Detection:
    """The result of one scoring pass.

    Attributes:
        step: the step that follows, from 0.
        perplexity: float64 ``[N]``, in nats.
        probability_clean: float64 ``[N]``.
    """

    step: int
    perplexity: NDArray[np.float64]
    probability_clean: NDArray[np.float64]

    @property
    def noisy(self) -> NDArray[np.bool_]:
        """Which pairs are noisy: bool ``[N]``."""
        return self.probability_clean < THRESHOLD


def perplexities(
    positive: FloatArray, negative: FloatArray, pair_query: NDArray[np.int32], temperature: float
) -> NDArray[np.float64]:
    """Compute each pair's InfoNCE loss against random documents: float64 ``[N]``, in nats.

    Args:
        positive: float ``[N]``, the cosine of each pair.
        negative: float ``[n, K]``, the cosines of each query with random documents; -inf leaves a document out.
        pair_query: int ``[N]``, the query of each pair.
        temperature: divides the cosines.
    """
    pair = np.asarray(positive, dtype=np.float64) / temperature
    others = logsumexp(np.asarray(negative, dtype=np.float64) / temperature, axis=1)
    loss: NDArray[np.float64] = np.logaddexp(pair, others[pair_query]) - pair
    return loss


def probability_clean(perplexity: FloatArray, seed: int) -> NDArray[np.float64]:
    """Fit two normal distributions; return each pair's probability to belong to the lower one: float64 ``[N]``."""
    low, high = np.min(perplexity), np.max(perplexity)
    scaled = ((np.asarray(perplexity) - low) / max(high - low, np.finfo(np.float64).tiny))[:, None]
    random_state = int(generator(seed, "npc.mixture").integers(2**31))
    mixture = GaussianMixture(2, **MIXTURE, random_state=random_state)
    with catch_warnings(action="ignore", category=ConvergenceWarning):
        mixture.fit(scaled)
    return np.asarray(mixture.predict_proba(scaled)[:, mixture.means_[:, 0].argmin()], dtype=np.float64)


def divergences(student: Tensor, teacher: Tensor, temperature: float, excluded: Tensor | None) -> Tensor:
    """Kullback-Leibler divergence of the student's softmax over a row's documents from the teacher's: float ``[m]``.

    Args:
        student: float ``[m, M]`` cosines.
        teacher: float ``[m, M]`` cosines.
        temperature: of both.
        excluded: bool ``[m, M]``, documents to leave out of a row.
    """
    mask = torch.zeros_like(student, dtype=torch.bool) if excluded is None else excluded
    target, prediction = (
        F.log_softmax((cosines / temperature).masked_fill(mask, -torch.inf), dim=1).masked_fill(mask, 0)
        for cosines in (teacher, student)
    )
    return (target.exp().masked_fill(mask, 0) * (target - prediction)).sum(dim=1)


@register_loss("npc")
class NoisyPairLoss(InBatchLoss):
    """InfoNCE for clean pairs, the divergence from a moving average of the model for noisy pairs.

    Attributes:
        detections: the scoring passes so far.
        trainings: the losses of all trainings since the list was last cleared, for programs that read the detections.
    """

    trainings: ClassVar[list[NoisyPairLoss]] = []

    def prepare(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Keep what scoring needs."""
        if self.uses_gradient_cache:
            raise SettingError("gradient_cache: loss=npc does not work with it; leave it out")
        self._training_set, self._settings = training_set, settings
        steps_of_epoch = ceil(resolved(settings.max_steps) / resolved(settings.epochs))
        self._interval = max(steps_of_epoch, ceil(resolved(settings.max_steps) / MOST_PASSES))
        self._step = -1
        # In a tuple torch does not take the teacher for a part of the loss, whose parameters train.
        self._teacher: tuple[()] | tuple[SentenceTransformer] = ()
        self._teacher_cosines: Tensor | None = None
        self.detections: list[Detection] = []
        self.trainings.append(self)

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Batch) -> Tensor:
        """Update the teacher and the noisy pairs first, if a step begins."""
        if (step := labels.step) != self._step:
            self._step = step
            self._update_teacher()
            if step and step % self._interval == 0:
                self._detect(step)
        return super().forward(sentence_features, labels)

    def embed(self, sentence_features: Iterable[dict[str, Any]]) -> list[Tensor]:
        """Embed the batch with the model, and keep the teacher's cosines of it."""
        columns = [dict(features) for features in sentence_features]
        if self._teacher:
            student = self.model
            (self.model,) = self._teacher
            with torch.no_grad():
                queries, *documents = super().embed([dict(features) for features in columns])
            self.model = student
            self._teacher_cosines = self.similarity(queries, torch.cat(documents))
        return super().embed(columns)

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """InfoNCE, or the divergence from the teacher for noisy pairs."""
        info_nce = self.pair_losses(similarity, excluded, batch.local.start)
        if self._teacher_cosines is None:
            return info_nce
        noisy = torch.from_numpy(self.detections[-1].noisy[batch.pair_ids[batch.local]]).to(similarity.device)
        corrected = divergences(similarity, self._teacher_cosines, self.temperature, excluded)
        return torch.where(noisy, corrected, info_nce)

    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """InfoNCE."""
        return info_nce_losses(similarity, self.temperature, excluded, first)

    def observed(self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor) -> Tensor:
        """InfoNCE, for all pairs."""
        return self.pair_losses(similarity.detach(), excluded, batch.local.start)

    @torch.no_grad()
    def _update_teacher(self) -> None:
        for teacher in self._teacher:
            for average, current in zip(teacher.parameters(), self.model.parameters(), strict=True):
                average.lerp_(current, 1 - DECAY)

    def _detect(self, step: int) -> None:
        """Score every training pair, and make the teacher after the first pass."""
        training_set, settings = self._training_set, self._settings
        data, pairs = training_set.data, training_set.pairs
        options = {"normalize_embeddings": True, "show_progress_bar": False}
        queries = self.model.encode_query(data.queries.texts(training_set.train.query_rows), **options)
        documents = self.model.encode_document(data.corpus.texts(), **options)
        self.model.train()
        random_rows = generator(settings.seed, "npc.documents", step).choice(
            len(documents), min(RANDOM_DOCUMENTS, len(documents)), replace=False
        )
        negative = queries @ documents[random_rows].T
        negative[self.known.contains(np.arange(len(queries))[:, None], random_rows)] = -np.inf
        positive = (queries[pairs.pair_query] * documents[pairs.pair_doc]).sum(axis=1)
        perplexity = perplexities(positive, negative, pairs.pair_query, self.temperature)
        self.detections.append(Detection(step, perplexity, probability_clean(perplexity, settings.seed)))
        if not self._teacher:
            self._teacher = (deepcopy(self.model).requires_grad_(False),)
