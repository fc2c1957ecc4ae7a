"""Distillation: train the model to score a positive and its explicit negatives like a teacher."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from opera.config.optimisation import LOSSES
from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.data.identity import teacher_by_text
from opera.training.build import TrainingSet
from opera.training.loss import InfoNCELoss
from opera.training.sampler import Batch


def divergences(
    similarity: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float
) -> tuple[Tensor, Tensor]:
    r"""Kullback-Leibler divergence between the softmaxes of teacher and student over a row's
    documents.

    With documents j, teacher scores t, cosines s and the temperatures T and τ::

        p_j = softmax_j(t / T)     q_j = softmax_j(s / τ)     KL = Σ_j p_j (log p_j - log q_j)

    Both softmaxes exclude documents without a teacher score (NaN). The gradient equals that of
    FlagEmbedding's ``kl_div``, the cross-entropy ``-Σ p log q``, and that of
    sentence-transformers' ``DistillKLDivLoss``.

    Args:
        similarity: float ``[m, k]`` cosines.
        teacher: float ``[m, k]`` scores.
        temperature: of the student, τ.
        teacher_temperature: of the teacher, T.

    Returns:
        float ``[m]`` in nats, 0 where ``usable`` is false; and ``usable``, bool ``[m]``: whether
        the teacher scored the positive (the first document) and at least one negative.
    """
    scored = ~torch.isnan(teacher)
    usable = scored[:, 0] & (scored.sum(dim=1) > 1)
    scored = scored | ~usable[:, None]  # a row without documents has no softmax
    p = F.log_softmax(
        (teacher.nan_to_num() / teacher_temperature).masked_fill(~scored, -torch.inf), dim=1
    )
    q = F.log_softmax((similarity / temperature).masked_fill(~scored, -torch.inf), dim=1)
    terms = torch.where(
        scored, p.exp() * (p.masked_fill(~scored, 0) - q.masked_fill(~scored, 0)), 0.0
    )
    return terms.sum(dim=1) * usable, usable


class DistillationLoss(InfoNCELoss):
    r"""The weighted sum of InfoNCE and the divergence from a teacher.

    With the weight w (``distill_weight``)::

        loss = w KL + (1 - w) InfoNCE

    if the teacher scored the positive and at least one explicit negative; otherwise InfoNCE alone.
    KL excludes explicit negatives without a score and the documents of other pairs. It includes
    known positives among the explicit negatives, because the teacher scores their relevance.

    Methods observe InfoNCE: it estimates the same loss as the scores of the base model, and its
    scale is the same for pairs with and without teacher scores.
    """

    def prepare(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Load the teacher's scores; log how many pairs have one."""
        data = training_set.data
        assert data.teacher is not None
        self.teacher = teacher_by_text(data, data.teacher)
        self.query_group = data.query_group[training_set.train.query_rows]
        self.document_group = data.document_group
        self.weight = settings.distill_weight
        self.teacher_temperature = (
            resolved(settings.temperature) if self.teacher.are_cosines else 1.0
        )
        pairs, listed = training_set.pairs, training_set.negatives.lists
        kinds: dict[str, tuple[IntArray, IntArray]] = {
            "training pairs": (pairs.pair_query, pairs.pair_doc)
        }
        if listed is not None:
            kind = f"{training_set.negatives.kind} negatives"
            kinds[kind] = (listed.queries, listed.doc_rows)
        for kind, (queries, doc_rows) in kinds.items():
            scored = ~np.isnan(self._lookup(queries, doc_rows))
            log.info("the teacher scored %d of %d %s", scored.sum(), len(scored), kind)

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """The weighted sum."""
        info_nce = self.pair_losses(similarity, excluded, batch.local.start)
        # The columns are all positives, then all first negatives, and so on.
        rows = torch.arange(len(similarity), device=similarity.device)[:, None]
        blocks = torch.arange(batch.doc_rows.shape[1], device=similarity.device)
        cosines = similarity[rows, batch.local.start + rows + blocks * len(batch.pair_ids)]
        scores = self._lookup(batch.queries[batch.local][:, None], batch.doc_rows[batch.local])
        kl, usable = divergences(
            cosines,
            torch.from_numpy(scores).to(cosines),
            self.temperature,
            self.teacher_temperature,
        )
        return torch.where(usable, self.weight * kl + (1 - self.weight) * info_nce, info_nce)

    def observed(
        self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor
    ) -> Tensor:
        """InfoNCE, without the teacher."""
        return self.pair_losses(similarity.detach(), excluded, batch.local.start)

    def _lookup(self, queries: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
        """Return the teacher's scores, NaN for missing scores."""
        return self.teacher.lookup(self.query_group[queries], self.document_group[doc_rows])


LOSSES.update(distill=DistillationLoss)
