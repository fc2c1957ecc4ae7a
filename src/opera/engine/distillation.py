"""Distillation: the student's ranking of a positive and its explicit negatives follows a
teacher's."""

from __future__ import annotations

import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from opera.config.optimisation import LOSSES
from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.settings import resolved
from opera.data.identity import teacher_by_text
from opera.engine.loss import InBatchLoss, info_nce_losses
from opera.engine.sampler import Batch
from opera.training_set.build import TrainingSet
from opera.training_set.prepare import is_cosines

log = logging.getLogger("opera")


def divergences(
    similarity: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float
) -> tuple[Tensor, Tensor]:
    r"""Kullback-Leibler divergence of the student's softmax over a row's documents from the
    teacher's.

    With documents j, teacher scores t, cosines s and the temperatures T and τ::

        p_j = softmax_j(t / T)     q_j = softmax_j(s / τ)     KL = Σ_j p_j (log p_j - log q_j)

    Documents that the teacher did not score, NaN, are left out of both. Its gradient is that of the
    cross-entropy ``-Σ p log q`` of FlagEmbedding's ``kl_div``, and that of sentence-transformers'
    ``DistillKLDivLoss``.

    Args:
        similarity: float ``[m, k]`` cosines.
        teacher: float ``[m, k]`` scores.
        temperature: of the student, τ.
        teacher_temperature: of the teacher, T.

    Returns:
        float ``[m]`` in nats, 0 where ``usable`` is false; and ``usable``, bool ``[m]``: whether
        the teacher scored the first document, the positive, and at least one other.
    """
    scored = ~torch.isnan(teacher)
    usable = scored[:, 0] & (scored.sum(dim=1) > 1)
    scored = scored | ~usable[:, None]  # a row without documents would have no softmax
    p = F.log_softmax(
        (teacher.nan_to_num() / teacher_temperature).masked_fill(~scored, -torch.inf), dim=1
    )
    q = F.log_softmax((similarity / temperature).masked_fill(~scored, -torch.inf), dim=1)
    terms = torch.where(
        scored, p.exp() * (p.masked_fill(~scored, 0) - q.masked_fill(~scored, 0)), 0.0
    )
    return terms.sum(dim=1) * usable, usable


class DistillationLoss(InBatchLoss):
    r"""InfoNCE and the divergence from a teacher, weighted.

    For a pair whose positive and at least one explicit negative have a teacher's score, with the
    weight λ (``distill_weight``)::

        loss = λ KL + (1 - λ) InfoNCE

    and InfoNCE alone for any other pair. Explicit negatives without a score are left out of KL, and
    so are other pairs' documents. Known positives among the explicit negatives stay in KL: the
    teacher says how relevant they are.

    What methods observe is InfoNCE: the pretrained losses that it takes the place of are estimates
    of it, and it is on one scale for pairs with and without scores.
    """

    def use(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Take the teacher's scores; log how many pairs have one."""
        data = training_set.data
        assert data.teacher is not None
        self.teacher = teacher_by_text(data, data.teacher)
        self.query_group = data.query_group[training_set.query_rows]
        self.document_group = data.document_group
        self.weight = settings.distill_weight
        cosines = is_cosines(self.teacher)
        self.teacher_temperature = resolved(settings.temperature) if cosines else 1.0
        self._log_coverage(training_set)

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """The weighted sum."""
        info_nce = info_nce_losses(similarity, self.temperature, excluded, batch.local.start)
        documents = len(
            batch.pair_ids
        )  # columns per place of a row: all positives, all first negatives, ...
        rows = torch.arange(len(similarity), device=similarity.device)[:, None]
        places = torch.arange(batch.doc_rows.shape[1], device=similarity.device)
        cosines = similarity[rows, batch.local.start + rows + places * documents]
        kl, usable = divergences(
            cosines,
            self._scores(batch).to(cosines),
            self.temperature,
            self.teacher_temperature,
        )
        return torch.where(usable, self.weight * kl + (1 - self.weight) * info_nce, info_nce)

    def observed(
        self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor
    ) -> Tensor:
        """InfoNCE, without the teacher."""
        return info_nce_losses(similarity.detach(), self.temperature, excluded, batch.local.start)

    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """InfoNCE: the teacher's part needs to know the documents."""
        return info_nce_losses(similarity, self.temperature, excluded, first)

    def _scores(self, batch: Batch) -> Tensor:
        """The teacher's scores of this process's part of a batch: float32 ``[m, 1 + negatives]``,
        NaN where absent."""
        queries = batch.queries[batch.local][:, None]
        return torch.from_numpy(self._lookup(queries, batch.doc_rows[batch.local]))

    def _lookup(self, queries: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
        return self.teacher.lookup(self.query_group[queries], self.document_group[doc_rows])

    def _log_coverage(self, training_set: TrainingSet) -> None:
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


LOSSES.ship(distill=DistillationLoss)
