"""Weights of pairs in losses of sentence-transformers: the same cross-entropies, each times its weight."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

from opera.training.distributed import gather_embeddings
from opera.training.loss import batch_cosines, info_nce_losses

WeightsNow = Callable[[], Tensor | None]
"""Returns the weights of the batch that trains, ``[m]``; ``None`` where it has none."""


def chain_of(loss: nn.Module) -> list[nn.Module]:
    """Return a loss and those that it wraps, as Matryoshka losses do."""
    parts = [loss]
    while isinstance(inner := getattr(parts[-1], "loss", None), nn.Module) and inner not in parts:
        parts.append(inner)
    return parts


def let_weigh(loss: nn.Module, weights: WeightsNow) -> bool:
    """Let a loss weigh its pairs where they have weights; return whether it can.

    It can where it is the mean of InfoNCE over cosines: MultipleNegativesRankingLoss and its cached form, alone or
    under a Matryoshka loss, over the documents of the batch alone.
    """
    for part in chain_of(loss):
        if type(part) is CachedMultipleNegativesRankingLoss and _plain(part.loss):
            _weigh_cached(part, weights)
            return True
        if type(part) is MultipleNegativesRankingLoss and _plain(part):
            _weigh(part, weights)
            return True
    return False


def _plain(loss: MultipleNegativesRankingLoss) -> bool:
    """Whether the loss of a pair is the cross-entropy of its document among those of the batch."""
    return (
        loss.similarity_fct is cos_sim
        and loss.directions == ("query_to_doc",)
        and not loss.hardness_mode
    )


def _weigh(loss: MultipleNegativesRankingLoss, weights: WeightsNow) -> None:
    plain: Callable[..., Tensor] = loss.compute_loss_from_embeddings

    def weighted(embeddings: list[Tensor], labels: Tensor) -> Tensor:
        factors = weights()
        if factors is None:
            return plain(embeddings, labels)
        queries, *columns = embeddings
        documents = torch.cat(
            [gather_embeddings(part) for part in columns] if loss.gather_across_devices else columns
        )
        first = first_column(queries, loss.gather_across_devices)
        losses = info_nce_losses(batch_cosines(queries, documents), 1 / loss.scale, None, first)
        return torch.mean(losses * factors.to(losses.device))

    loss.compute_loss_from_embeddings = weighted


def _weigh_cached(loss: CachedMultipleNegativesRankingLoss, weights: WeightsNow) -> None:
    decorator = (
        loss.calculate_loss if isinstance(loss.calculate_loss, CachedLossDecorator) else None
    )
    plain: Callable[..., Tensor] = loss.calculate_loss if decorator is None else decorator.fn

    def weighted(
        reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        factors = weights()
        if factors is None:
            return plain(reps, labels, with_backward=with_backward)
        queries, *columns = (torch.cat(part) for part in reps)
        documents = torch.cat(
            [gather_embeddings(part) for part in columns] if loss.gather_across_devices else columns
        )
        first, total = (
            first_column(queries, loss.gather_across_devices),
            torch.zeros((), device=queries.device),
        )
        for start in range(0, len(queries), loss.mini_batch_size):
            rows = slice(start, start + loss.mini_batch_size)
            losses = info_nce_losses(
                batch_cosines(queries[rows], documents), 1 / loss.scale, None, first + start
            )
            part = torch.sum(losses * factors[rows].to(losses.device)) / len(queries)
            if with_backward:
                part.backward()  # type: ignore[no-untyped-call]
            total = total + (part.detach() if with_backward else part)
        return total

    if decorator is None:
        loss.calculate_loss = weighted
    else:
        decorator.fn = weighted


def first_column(queries: Tensor, across: bool) -> int:
    """The column of this process's first positive, where documents of all processes are compared."""
    if not (across and torch.distributed.is_initialized()):
        return 0
    return int(torch.distributed.get_rank()) * len(queries)
