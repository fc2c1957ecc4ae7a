"""The contrastive loss of the paper, per pair, with in-batch negatives; what it observes goes to the sampler.

A new loss is a class and a line: a subclass of :class:`InBatchLoss` with ``pair_losses``, and
``@register_loss("name")`` above it, which makes it a value of the setting ``loss``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from opera.config.optimisation import LOSSES
from opera.training.distributed import gather_embeddings, gather_values
from opera.training.not_finite import NotFiniteError
from opera.training.sampler import Batch, PairSampler
from opera.training_set.known_positives import KnownPositives

Observer = Callable[[int, NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]], None]
"""Called with the step, pair ids ``[W·m]``, cosine similarities ``[W·m]`` and losses ``[W·m]``."""


def info_nce_losses(similarity: Tensor, temperature: float, excluded: Tensor | None, first: int = 0) -> Tensor:
    """InfoNCE: cross-entropy of each query's positive against every other document of the batch.

    Args:
        similarity: float ``[m, M]`` cosines; row i's positive is column ``first`` + i.
        temperature: divides the cosines (the paper's 0.02).
        excluded: bool ``[m, M]``, documents to leave out of a row; never its own positive.
        first: column of the first row's positive, after those of the processes before this one.

    Returns:
        float ``[m]``, in nats.
    """
    logits = similarity / temperature
    if excluded is not None:
        logits = logits.masked_fill(excluded, -torch.inf)
    return F.cross_entropy(logits, first + torch.arange(len(logits), device=logits.device), reduction="none")


class InBatchLoss(nn.Module, ABC):
    """A loss of each pair over the cosine similarities of its batch.

    With several processes a batch is theirs together: documents are gathered with their gradients, and the observer of
    every process sees every pair.

    Args:
        model: the model that trains.
        sampler: knows the pairs, documents and weights of each batch.
        temperature: of the softmax.
        known: documents to leave out of a query's negatives; ``None`` leaves none out (the paper).
        observer: called for every training batch.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        sampler: PairSampler,
        temperature: float,
        known: KnownPositives | None,
        observer: Observer,
    ) -> None:
        super().__init__()
        self.model, self.sampler, self.temperature = model, sampler, temperature
        self.known, self.observer = known, observer

    @abstractmethod
    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """Return the loss of each pair, float ``[m]``; arguments as for :func:`info_nce_losses`."""

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """Return the loss of each pair of this process's part of a batch: float ``[m]``.

        For losses that need to know which pairs and documents these are; others define :meth:`pair_losses`.

        Args:
            similarity: float ``[m, M]`` cosines; columns are the documents ``batch.doc_rows.T.ravel()``.
            excluded: bool ``[m, M]``, documents to leave out of a row.
            batch: pair ids, documents and weights.
        """
        return self.pair_losses(similarity, excluded, batch.own.start)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean of loss times weight over a batch; the observer sees the losses without weights.

        Args:
            sentence_features: tokenised columns: anchor, positive, negatives.
            labels: int64 ``[m, 2]``: step, and position in the step's draw.

        Raises:
            TrainingError: if a loss is not a finite number.
        """
        return self.loss_of(labels, self.embed(sentence_features))

    def embed(self, sentence_features: Iterable[dict[str, Tensor]]) -> list[Tensor]:
        """Return the embeddings of each column, float ``[m, dimension]``: queries, positives, negatives."""
        return [self.model(features)["sentence_embedding"] for features in sentence_features]

    def loss_of(self, labels: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """Return the mean of loss times weight, from the embeddings of each column; report what is observed.

        Args:
            labels: int64 ``[m, 2]``, as for :meth:`forward`.
            embeddings: float ``[m, dimension]`` per column, those of this process.
        """
        step, position = labels[0].tolist()
        batch = self.sampler.batch_at(step, position)
        with torch.autocast(embeddings[0].device.type, enabled=False):  # cosines in float32 even from half precision
            queries, *documents = (F.normalize(_at_least_float32(part), dim=-1) for part in embeddings)
            similarity = queries @ torch.cat([gather_embeddings(part) for part in documents]).T
            losses = self.batch_losses(similarity, self._excluded(batch, similarity.device), batch)
        first = batch.own.start  # the column of this process's first positive
        positive_similarity = similarity.detach()[:, first : first + len(queries)].diagonal()
        self._observe(step, batch, positive_similarity, losses.detach())
        return (losses * torch.from_numpy(batch.weights[batch.own]).to(losses.device)).mean()

    def _excluded(self, batch: Batch, device: torch.device) -> Tensor | None:
        """Mark the known positives among a query's negatives: bool ``[m, M]``."""
        if self.known is None:
            return None
        queries = self.sampler.pairs.pair_query[batch.pair_ids[batch.own]]
        columns = batch.doc_rows.T.ravel()  # all positives, then all first negatives, ...
        excluded = self.known.contains(queries[:, None], columns)
        own = np.arange(len(queries))
        excluded[own, batch.own.start + own] = False
        return torch.from_numpy(excluded).to(device)

    def _observe(self, step: int, batch: Batch, similarity: Tensor, losses: Tensor) -> None:
        finite = torch.isfinite(losses)
        if not finite.all():
            raise NotFiniteError("the loss", step, batch.pair_ids[batch.own], finite.cpu().numpy())
        observed = gather_values(torch.stack([similarity.float(), losses.float()], dim=1)).cpu().numpy()
        self.observer(step, batch.pair_ids, observed[:, 0], observed[:, 1])


class InfoNCELoss(InBatchLoss):
    """The paper's loss: cross-entropy of the positive against the batch (Section 2.1)."""

    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """InfoNCE."""
        return info_nce_losses(similarity, self.temperature, excluded, first)


def _at_least_float32(embeddings: Tensor) -> Tensor:
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


LOSSES.ship(infonce=InfoNCELoss)

Loss = TypeVar("Loss", bound=type[InBatchLoss])


def register_loss(name: str) -> Callable[[Loss], Loss]:
    """Return a class decorator that makes ``name`` a value of the setting ``loss``.

    Raises:
        ValueError: if another loss has the name, in any case.
    """
    return LOSSES.registers(name)
