"""The contrastive loss of the paper, per pair, with in-batch negatives.

A new loss is a class and a line: a subclass of :class:`InBatchLoss` with ``pair_losses``, and
``@register_loss("name")`` above it, which makes it a value of the setting ``loss``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext
from torch import Tensor, nn
from torch.nn import functional as F

from opera.config.optimisation import LOSSES
from opera.config.training import TrainSettings
from opera.encoder.forward import Column, embed_columns, pads, token_features
from opera.engine.distributed import gather_embeddings
from opera.engine.sampler import Batch
from opera.labels.ranks import p_values
from opera.training_set.build import TrainingSet
from opera.training_set.documents import KnownPositives

if TYPE_CHECKING:
    from opera.engine.pruning import Pruning


def info_nce_losses(
    similarity: Tensor, temperature: float, excluded: Tensor | None, first: int = 0
) -> Tensor:
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
    return F.cross_entropy(
        logits, first + torch.arange(len(logits), device=logits.device), reduction="none"
    )


class InBatchLoss(CachedLossMixin, nn.Module, ABC):  # type: ignore[misc]
    """A loss of each pair over the cosine similarities of its batch.

    With several processes a batch is theirs together: documents are gathered with their gradients.

    With ``gradient_cache`` texts are embedded that many at a time, twice: without gradients for the
    loss, then, with the same dropout, for the gradients that the loss has sent back to the
    embeddings (GradCache, arXiv:2101.06983, by sentence-transformers). Loss and gradients are those
    of the whole batch.

    Args:
        model: the model that trains.
        temperature: of the softmax.
        known: the known positives of each query.
        masks: whether known positives are left out of a query's negatives; not in the paper.
        gradient_cache: texts per forward pass; ``None`` for all of a column at once.
        sizes: first dimensions of the embeddings that the loss is also taken of (arXiv:2205.13147):
            the loss is the mean over them and the whole; what is observed is of the whole.

    Attributes:
        pruning: knows the documents and weights of each batch, and takes what is observed;
            :meth:`opera.engine.pruning.Pruning.watch` sets it.
    """

    model: SentenceTransformer
    pruning: Pruning
    packs = True
    """Whether texts may be packed: not where the model is compiled."""

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float,
        known: KnownPositives,
        *,
        masks: bool = True,
        gradient_cache: int | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.model, self.temperature = model, temperature
        self.known, self.sizes, self.masks = known, tuple(sizes), masks
        self.uses_gradient_cache, self.mini_batch_size = (
            gradient_cache is not None,
            gradient_cache or 0,
        )

    @abstractmethod
    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """Return the loss of each pair, float ``[m]``; arguments as for :func:`info_nce_losses`."""

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """Return the loss of each pair of this process's part of a batch: float ``[m]``.

        For losses that need to know which pairs and documents these are; others define
        :meth:`pair_losses`.

        Args:
            similarity: float ``[m, M]`` cosines; columns are the documents
                ``batch.doc_rows.T.ravel()``.
            excluded: bool ``[m, M]``, documents to leave out of a row.
            batch: pair ids, documents and weights.
        """
        return self.pair_losses(similarity, excluded, batch.local.start)

    def use(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Take what a loss needs beside its batches; called once, before training. This one needs
        nothing."""

    def observed(
        self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor
    ) -> Tensor:
        """Return what methods observe as the loss of each pair, float ``[m]``: ``losses``, without
        their graph."""
        return losses.detach()

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor) -> Tensor:
        """Return the mean of loss times weight over a batch; what is observed has no weights.

        Args:
            sentence_features: columns, anchor, positive, negatives: tensors as the model takes
                them, or token ids as a :class:`opera.engine.dataset.TokenCollator` gives them.
            labels: int64 ``[m]``, the pair ids.

        Raises:
            TrainingError: if a loss is not a finite number.
        """
        if self.uses_gradient_cache:
            loss: Tensor = CachedLossMixin.forward_cached(
                self, self._whole(sentence_features), labels
            )
            return loss
        return self.loss_of(labels, self.embed(sentence_features))

    def embed(self, sentence_features: Iterable[dict[str, Any]]) -> list[Tensor]:
        """Return the embeddings of each column, float ``[m, dimension]``: queries, positives,
        negatives."""
        columns = list(sentence_features)
        if _are_token_ids(columns):
            return embed_columns(
                self.model, [_column(features) for features in columns], may_pack=self.packs
            )
        return [self.model(features)["sentence_embedding"] for features in columns]

    def _whole(self, sentence_features: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what the model takes for each column; a pass of the gradient cache then takes some
        of its texts."""
        columns = list(sentence_features)
        if not _are_token_ids(columns):
            return columns
        bare: SentenceTransformer = extract_model_from_parallel(
            self.model, keep_torch_compile=False
        )
        packed = self.packs and not pads(bare)
        made = [token_features(bare, *_column(features), packed=packed) for features in columns]
        return [
            {
                name: part.to(bare.device) if isinstance(part, Tensor) else part
                for name, part in features.items()
            }
            for features in made
        ]

    def embed_minibatch(self, *args: Any, **kwargs: Any) -> tuple[Tensor, RandContext | None]:
        """Embed some texts; in half precision the gradients that are kept of them would be too
        small to hold."""
        embeddings, random_state = super().embed_minibatch(*args, **kwargs)
        return at_least_float32(embeddings), random_state

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of embeddings ``[texts of a pass, dimension]`` per column and pass, for
        gradient caching."""
        assert labels is not None
        loss = self.loss_of(labels, [torch.cat(column) for column in reps])
        if with_backward:
            torch.autograd.backward(loss)
        return loss.detach() if with_backward else loss

    def loss_of(self, labels: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """Return the mean of loss times weight, from the embeddings of each column; report what is
        observed.

        Args:
            labels: int64 ``[m]``, the pair ids.
            embeddings: float ``[m, dimension]`` per column, those of this process.
        """
        batch = self.pruning.batch(labels)
        device = embeddings[0].device
        with torch.autocast(
            device.type, enabled=False
        ):  # cosines in float32 even from half precision
            queries, *documents = (at_least_float32(part) for part in embeddings)
            everyones = torch.cat([gather_embeddings(part) for part in documents])
            known = self._known(batch, device)
            excluded = known if self.masks else None
            similarity = batch_cosines(queries, everyones)
            losses = self.batch_losses(similarity, excluded, batch)
            observed = self.observed(similarity, excluded, batch, losses)
            self._observe(labels, batch, similarity.detach(), observed, known)
            for size in self.sizes:
                losses = losses + self.batch_losses(
                    batch_cosines(queries[:, :size], everyones[:, :size]), excluded, batch
                )
        weights = torch.from_numpy(batch.weights[batch.local]).to(device)
        return (losses * weights).mean() / (1 + len(self.sizes))

    def _known(self, batch: Batch, device: torch.device) -> Tensor:
        """Mark the known positives among a query's negatives: bool ``[m, M]``."""
        queries = batch.queries[batch.local]
        columns = batch.doc_rows.T.ravel()  # all positives, then all first negatives, ...
        known = self.known.contains(queries[:, None], columns)
        rows = np.arange(len(queries))
        known[rows, batch.local.start + rows] = False
        return torch.from_numpy(known).to(device)

    def _observe(
        self, pair_ids: Tensor, batch: Batch, similarity: Tensor, losses: Tensor, known: Tensor
    ) -> None:
        """Pass on each pair's cosine, loss and p-value: of ``similarity [m, M]``, ``losses [m]``
        and ``known [m, M]``."""
        # A row's positive is at its own place among the columns.
        of_positives = similarity[:, batch.local].diagonal()
        # A document of another data set is no random one of its own.
        columns = np.tile(batch.sets, batch.doc_rows.shape[1])
        others = torch.from_numpy(batch.sets[batch.local][:, None] != columns).to(known.device)
        p = p_values(similarity, known | others, batch.local.start)
        self.pruning.observe(pair_ids, of_positives, losses, p)


class InfoNCELoss(InBatchLoss):
    """The paper's loss: cross-entropy of the positive against the batch (Section 2.1)."""

    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first: int) -> Tensor:
        """InfoNCE."""
        return info_nce_losses(similarity, self.temperature, excluded, first)


def _are_token_ids(columns: Sequence[dict[str, Any]]) -> bool:
    """Whether columns are as a :class:`opera.engine.dataset.TokenCollator` gives them."""
    return all(isinstance(features.get("input_ids"), list) for features in columns)


def _column(features: dict[str, Any]) -> Column:
    return Column(features["input_ids"], features["prompt_length"])


def batch_cosines(queries: Tensor, documents: Tensor) -> Tensor:
    """Compute the cosine of each query ``[m, dimension]`` with each document ``[M, dimension]``:
    float ``[m, M]``."""
    return F.normalize(queries, dim=-1) @ F.normalize(documents, dim=-1).T


def at_least_float32(embeddings: Tensor) -> Tensor:
    """Return embeddings in float32, or in their own precision where it is higher."""
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


LOSSES.ship(infonce=InfoNCELoss)

Loss = TypeVar("Loss", bound=type[InBatchLoss])


def register_loss(name: str) -> Callable[[Loss], Loss]:
    """Return a class decorator that makes ``name`` a value of the setting ``loss``.

    Raises:
        ValueError: if another loss has the name, in any case.
    """
    return LOSSES.registers(name)
