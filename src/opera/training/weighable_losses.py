"""Losses over embeddings that OPERA can weigh, and what all losses of a script have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.multi_vector_encoder.scoring import (
    colbert_scores,
    mean_colbert_scores,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sparse_encoder.losses import (
    SparseMultipleNegativesRankingLoss,
    SpladeLoss,
)
from sentence_transformers.util import (
    cos_sim,
    dot_score,
    pairwise_cos_sim,
    pairwise_dot_score,
    similarity_fct_name,
)
from torch import Tensor, nn

from opera.core.errors import SettingError
from opera.core.processes import process_index
from opera.core.terminal import shown
from opera.retrieval.device import gather_embeddings
from opera.training.loss import info_nce_losses

Gather = Callable[[Tensor], Tensor]
"""Concatenates the tensors of all processes."""
Similarity = Callable[[Tensor, Tensor], Tensor]
"""Compares embeddings ``[m, d]`` and ``[M, d]``: ``[m, M]``."""
RowLosses = Iterator[tuple[slice, Tensor, Tensor]]
"""Blocks of rows, their scores with this process's positives ``[size, m]``, and their losses."""
SPARSE_SIMILARITIES = {
    dot_score: "dot",
    pairwise_dot_score: "dot",
    cos_sim: "cosine",
    pairwise_cos_sim: "cosine",
}
MULTI_VECTOR_SIMILARITIES = {colbert_scores: "maxsim", mean_colbert_scores: "meanmaxsim"}
"""The ``similarity_fn_name`` of the base scores by the loss's ``similarity_fct``; the first is that
of losses without one."""
CHUNKS = "chunk_elements"
"""The argument of a similarity that changes memory alone."""


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute or a method of an object."""
    attributes = vars(owner)
    before = {name: attributes[name]} if name in attributes else {}
    attributes[name] = value
    try:
        yield
    finally:
        del attributes[name]
        attributes.update(before)


def weigh_gradient(scores: Tensor, factors: Tensor) -> None:
    """Multiply the gradient of each row of scores ``[m, ...]`` by a factor ``[m]``."""
    if scores.requires_grad and bool((factors != 1).any()):
        by_row = factors.to(scores).view(-1, *[1] * (scores.ndim - 1))
        scores.register_hook(lambda gradient: gradient * by_row)  # type: ignore[no-untyped-call]


def row_losses(
    columns: Sequence[Tensor],
    temperature: float,
    size: int,
    gather: Gather | None,
    excluded: Tensor | None,
    similarity: Similarity = cos_sim,
) -> RowLosses:
    """Yield blocks of ``size`` rows, their similarities with this process's positives
    ``[size, m]``, and their InfoNCE losses.

    Args:
        columns: embeddings of queries, positives and negatives, ``[m, dimension]`` per column.
        temperature: divides the similarities.
        size: rows per block.
        gather: gathers the documents of all processes; ``None`` compares with this process's only.
        excluded: bool ``[m, M]``, the documents to exclude from each row.
        similarity: of the embeddings.
    """
    queries, *documents = columns
    first = process_index() * len(queries) if gather else 0
    candidates = torch.cat([gather(column) for column in documents] if gather else documents)
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        scores = similarity(queries[rows], candidates)
        excluded_of_rows = None if excluded is None else excluded[rows]
        losses = info_nce_losses(scores, temperature, excluded_of_rows, first + start)
        yield rows, scores[:, first : first + len(queries)], losses


WEIGHABLE = {MultipleNegativesRankingLoss: cos_sim, SparseMultipleNegativesRankingLoss: dot_score}
"""The losses over embeddings that OPERA can weigh, with their similarity."""


def weighable(loss: nn.Module) -> Any | None:
    """Return the innermost loss if OPERA can weigh its pairs, or ``None``.

    OPERA can weigh a mean of InfoNCE over cosines (products of sparse embeddings):
    MultipleNegativesRankingLoss from queries to documents, alone or inside another loss. A cached
    loss must compare the whole batch at once, as CachedSpladeLoss does.
    """
    inner: Any = chain_of(loss)[-1]
    is_weighable = (
        type(inner) in WEIGHABLE
        and inner.similarity_fct is WEIGHABLE[type(inner)]
        and inner.directions == ("query_to_doc",)
        and not inner.hardness_mode
        and not any(
            isinstance(outer, CachedLossMixin) and not isinstance(outer, SpladeLoss)
            for outer in chain_of(loss)
        )
    )
    return inner if is_weighable else None


@contextmanager
def weighing(ranking: Any, factors: Tensor, excluded: Tensor | None = None) -> Iterator[None]:
    """Make a :func:`weighable` loss multiply the loss of each pair by a factor ``[m]``, and leave
    out the ``excluded`` documents, bool ``[m, M]``."""
    gather = gather_embeddings if ranking.gather_across_devices else None

    def weighted(embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        temperature, similarity = 1 / ranking.scale, ranking.similarity_fct
        ((_, _, losses),) = row_losses(
            embeddings, temperature, len(factors), gather, excluded, similarity
        )
        return torch.mean(losses * factors.to(losses.device))

    with replaced(ranking, "compute_loss_from_embeddings", weighted):
        yield


def chain_of(loss: nn.Module) -> list[nn.Module]:
    """Return a loss and the losses that it wraps, as Matryoshka losses do."""
    chain = [loss]
    while isinstance(inner := getattr(chain[-1], "loss", None), nn.Module) and inner not in chain:
        chain.append(inner)
    return chain


def temperature_of(loss: nn.Module) -> float:
    """Return the temperature of a loss.

    Raises:
        SettingError: if it has none.
    """
    for inner in chain_of(loss):
        scale, temperature = getattr(inner, "scale", None), getattr(inner, "temperature", None)
        if isinstance(scale, int | float) and scale > 0:
            return 1 / float(scale)
        if isinstance(temperature, int | float) and temperature > 0:
            return float(temperature)
    raise SettingError(
        f"temperature: {shown(type(loss).__name__)} has neither scale nor temperature, which the "
        "method needs; pass PairPruning(..., temperature=0.05), or use another loss"
    )


def similarity_name_of(loss: Any, names: Mapping[Any, str]) -> str:
    """Return the name of the function that a loss compares by.

    Raises:
        SettingError: if ``names`` lacks it.
    """
    compare = getattr(loss, "similarity_fct", next(iter(names)))
    if isinstance(compare, partial) and not compare.args and {*compare.keywords} <= {CHUNKS}:
        compare = compare.func
    name = next((names[function] for function in names if function is compare), None)
    if name is None:
        options = ", ".join(function.__name__ for function in names)
        raise SettingError(
            f"loss: {type(loss).__name__} compares by {similarity_fct_name(compare)}, which "
            f"PairPruning does not know; use {options} as similarity_fct"
        )
    return name
