"""See and weigh what a loss of sentence-transformers trains on.

Hooks on the loss and on the model's last module see the embeddings. That module runs once for each
text under every loss: Matryoshka losses shorten what it gave, and cached losses run it again, with
gradients, after they have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.losses.matryoshka import CachedLossDecorator
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

from opera.core.errors import SettingError, TrainingError
from opera.core.processes import process_index
from opera.core.terminal import shown
from opera.training.distributed import gather_embeddings, gather_values
from opera.training.loss import at_least_float32, batch_cosines, info_nce_losses, p_values

CELLS = 2**24
"""Similarities computed at once."""
WATCH = "opera_watch"
"""Attribute of a loss that names its watch."""

Begin = Callable[[dict[str, Tensor]], Tensor | None]
"""Called with the tokenised queries before a loss of training; returns weights of the pairs,
``[m]``, or ``None``.
"""
Observe = Callable[[Tensor, Tensor, Tensor], None]
"""Called with the similarity, loss and p-value of each pair, ``[m]``."""


class LossWatch:
    """Reports similarity and InfoNCE loss of the pairs that a loss trains on.

    Args:
        model: the model that trains.
        loss: a loss of sentence-transformers over (anchor, positive, negatives).
        temperature: of the reported InfoNCE; ``None`` for that of the loss.
        begin: called before each loss of training.
        observe: called after it.
        not_ranked: returns which positives of the batch each pair's is not ranked among, ``[m,
            m]``.

    Attributes:
        weighs: whether pairs can have weights under this loss.
        across: whether documents of all processes are compared.

    Raises:
        SettingError: if the loss has no temperature and none is given.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module,
        temperature: float | None,
        begin: Begin,
        observe: Observe,
        not_ranked: Callable[[], Tensor],
    ) -> None:
        self.model, self.loss, self.begin, self.observe = model, loss, begin, observe
        self.not_ranked = not_ranked
        self.temperature = temperature if temperature is not None else temperature_of(loss)
        self.across = any(getattr(part, "gather_across_devices", False) for part in chain_of(loss))
        self._embedded: list[Tensor] = []
        self._hook: Any = None
        self._weights: Tensor | None = None
        if isinstance(earlier := getattr(loss, WATCH, None), LossWatch):
            earlier.end()
        self._unweigh = let_weigh(loss, lambda: self._weights)
        self.weighs = self._unweigh is not None
        setattr(loss, WATCH, self)
        self._handles = (
            loss.register_forward_pre_hook(self._before),
            loss.register_forward_hook(self._after, always_call=True),
        )

    def end(self) -> None:
        """Leave the loss as it was; another watch of it ends this one.

        Nothing then keeps the loss from being freed, and with it a distributed model, whose process
        group must be gone before the interpreter is.
        """
        for handle in self._handles:
            handle.remove()
        if self._unweigh is not None:
            self._unweigh()
            self._unweigh = None
        if getattr(self.loss, WATCH, None) is self:
            delattr(self.loss, WATCH)

    def _before(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not (torch.is_grad_enabled() and self.model.training):  # an evaluation
            return
        self._weights, self._embedded = self.begin(inputs[0][0]), []
        self._hook = self.model[-1].register_forward_hook(
            lambda module, inputs, output: self._embedded.append(
                output["sentence_embedding"].detach()
            )
        )

    def _after(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if self._hook is None:
            return
        self._hook.remove()
        self._hook, self._weights = None, None
        if output is None:  # it raised an exception
            return
        # Cosines in float32 even from half precision.
        with torch.no_grad(), torch.autocast(self.model.device.type, enabled=False):
            seen = self._observations(len(inputs[0]))
        self.observe(*seen)

    def _observations(self, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return similarity, loss and p-value of each pair ``[m]``, from the embeddings in the
        order they were made; p-values are among the positives of this process."""
        embedded, self._embedded = self._embedded, []
        rows = sum(map(len, embedded))
        if rows == 0 or rows % columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {rows} texts in {columns} "
                "columns; it must embed every text of the batch once, a column after another"
            )
        parts = torch.cat([at_least_float32(part) for part in embedded]).chunk(columns)
        size = max(1, CELLS // (columns * len(parts[0])))
        gather = gather_values if self.across else None
        not_ranked = self.not_ranked().to(parts[0].device)
        found = []
        for part, cosines, losses in pair_losses(parts, self.temperature, size, gather):
            p = p_values(cosines, not_ranked[part], part.start)
            found.append((cosines[:, part].diagonal(), losses, p))
        similarity, losses, p = (torch.cat(values) for values in zip(*found, strict=True))
        return similarity, losses, p


def pair_losses(
    columns: Sequence[Tensor],
    temperature: float,
    size: int,
    gather: Callable[[Tensor], Tensor] | None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield ``size`` rows at a time with their cosines to this process's positives ``[size, m]``
    and the InfoNCE losses of their pairs.

    Args:
        columns: embeddings of the queries, of their positives and of negatives, each ``[m,
            dimension]``.
        temperature: divides the cosines.
        size: rows at a time.
        gather: makes one tensor of those of all processes; ``None`` compares with this one's
            documents alone.
    """
    queries, *documents = columns
    first = process_index() * len(queries) if gather else 0
    candidates = torch.cat([gather(part) for part in documents] if gather else documents)
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        cosines = batch_cosines(queries[rows], candidates)
        losses = info_nce_losses(cosines, temperature, None, first + start)
        yield rows, cosines[:, first : first + len(queries)], losses


def let_weigh(loss: nn.Module, weights: Callable[[], Tensor | None]) -> Callable[[], None] | None:
    """Let a loss weigh its pairs where ``weights`` returns some, ``[m]``; return what undoes it, or
    ``None`` if the loss cannot.

    It can where it is the mean of InfoNCE over cosines: MultipleNegativesRankingLoss and its cached
    form, alone or under a Matryoshka loss, over the documents of the batch alone.
    """
    for part in chain_of(loss):
        cached = type(part) is CachedMultipleNegativesRankingLoss
        inner: Any = part.loss if cached else part
        if (
            type(inner) is MultipleNegativesRankingLoss
            and inner.similarity_fct is cos_sim
            and inner.directions == ("query_to_doc",)
            and not inner.hardness_mode
        ):
            return _weigh(part, cached, weights)
    return None


def _weigh(loss: Any, cached: bool, weights: Callable[[], Tensor | None]) -> Callable[[], None]:
    """Replace what makes a loss of embeddings by the mean of loss times weight; a cached loss gets
    them in passes, and sends gradients back chunk by chunk. Return what puts it back."""
    owner, name = loss, "calculate_loss" if cached else "compute_loss_from_embeddings"
    if cached and isinstance(loss.calculate_loss, CachedLossDecorator):
        owner, name = loss.calculate_loss, "fn"
    own, plain = name in vars(owner), getattr(owner, name)
    gather = gather_embeddings if loss.gather_across_devices else None

    def weighted(embeddings: list[Any], labels: Tensor | None = None, **how: bool) -> Tensor:
        factors = weights()
        if factors is None:
            unweighted: Tensor = plain(embeddings, labels, **how)
            return unweighted
        columns = [torch.cat(column) for column in embeddings] if cached else embeddings
        size = loss.mini_batch_size if cached else len(factors)
        total = torch.zeros((), device=columns[0].device)
        for rows, _, losses in pair_losses(columns, 1 / loss.scale, size, gather):
            part = torch.sum(losses * factors[rows].to(losses.device)) / len(factors)
            if how.get("with_backward"):
                part.backward()  # type: ignore[no-untyped-call]
                part = part.detach()
            total = total + part
        return total

    def put_back() -> None:
        if vars(owner).get(name) is not weighted:  # another has replaced it since
            return
        if own:
            setattr(owner, name, plain)
        else:
            delattr(owner, name)

    setattr(owner, name, weighted)
    return put_back


def chain_of(loss: nn.Module) -> list[nn.Module]:
    """Return a loss and those that it wraps, as Matryoshka losses do."""
    parts = [loss]
    while isinstance(inner := getattr(parts[-1], "loss", None), nn.Module) and inner not in parts:
        parts.append(inner)
    return parts


def temperature_of(loss: nn.Module) -> float:
    """Return the temperature of a loss.

    Raises:
        SettingError: if it has none.
    """
    for part in chain_of(loss):
        scale, temperature = getattr(part, "scale", None), getattr(part, "temperature", None)
        if isinstance(scale, int | float) and scale > 0:
            return 1 / float(scale)
        if isinstance(temperature, int | float) and temperature > 0:
            return float(temperature)
    raise SettingError(
        f"temperature: {shown(type(loss).__name__)} has neither scale nor temperature, by which "
        "the method compares pairs; give PairPruning(..., temperature=0.05), or use another loss"
    )


def token_rows(features: dict[str, Tensor]) -> list[list[int]]:
    """Return the token ids of each row of a tokenised column, without padding."""
    ids, mask = features["input_ids"], features.get("attention_mask")
    starts = features.get("offsets")  # of a static model: rows one after the other
    if "cu_seq_lens_q" in features:  # of a transformer without padding; the last is their end
        starts = features["cu_seq_lens_q"][:-1]
    if starts is not None:
        return [row.tolist() for row in ids.ravel().tensor_split(starts[1:].cpu())]
    kept = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    return [row[keep].tolist() for row, keep in zip(ids, kept, strict=True)]
