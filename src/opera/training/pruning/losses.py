"""See and weigh what a loss of sentence-transformers trains on, and compare it with what was drawn.

Hooks on the loss and on the model's last module see the embeddings. That module runs once for each
text under every loss: Matryoshka losses shorten what it gave, and cached losses run it again, with
gradients, after they have returned.
"""

from __future__ import annotations

import math
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
from opera.core.terminal import shown
from opera.training.distributed import gather_embeddings, gather_values
from opera.training.loss import at_least_float32, batch_cosines, info_nce_losses
from opera.training.pruning.batches import ADVICE, Given
from opera.training.pruning.pair_rows import Prompts, prompt_of

CELLS = 2**24
"""Similarities computed at once."""

Begin = Callable[[dict[str, Tensor]], Tensor | None]
"""Called with the tokenised queries before a loss of training; returns weights of the pairs,
``[m]``, or ``None``.
"""
Observe = Callable[[Tensor, Tensor], None]
"""Called with the similarity and loss of each pair, ``[m]``."""


class LossWatch:
    """Reports similarity and InfoNCE loss of the pairs that a loss trains on.

    Args:
        model: the model that trains.
        loss: a loss of sentence-transformers over (anchor, positive, negatives).
        temperature: of the reported InfoNCE; ``None`` for that of the loss.
        begin: called before each loss of training.
        observe: called after it.

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
    ) -> None:
        self.model, self.loss, self.begin, self.observe = model, loss, begin, observe
        self.temperature = temperature if temperature is not None else temperature_of(loss)
        self.across = any(getattr(part, "gather_across_devices", False) for part in chain_of(loss))
        self._embedded: list[Tensor] = []
        self._columns = 0
        self._hook: Any = None
        self._weights: Tensor | None = None
        self.weighs = let_weigh(loss, lambda: self._weights)
        loss.register_forward_pre_hook(self._before)
        loss.register_forward_hook(self._after, always_call=True)

    def _before(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not (torch.is_grad_enabled() and self.model.training):  # an evaluation
            return
        features = inputs[0]
        self._weights = self.begin(features[0])
        self._embedded, self._columns = [], len(features)
        self._hook = self.model[-1].register_forward_hook(
            lambda module, inputs, output: self._embedded.append(
                output["sentence_embedding"].detach()
            )
        )

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._hook is None:
            return
        self._hook.remove()
        self._hook, self._weights = None, None
        embedded, self._embedded = self._embedded, []
        if output is None:  # it raised an exception
            return
        # Cosines in float32 even from half precision.
        with torch.no_grad(), torch.autocast(self.model.device.type, enabled=False):
            seen = self._observations(embedded)
        self.observe(*seen)

    def _observations(self, embedded: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return similarity and loss of each pair ``[m]``, from the embeddings in the order they
        were made.
        """
        rows = sum(map(len, embedded))
        if rows == 0 or rows % self._columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {rows} texts in {self._columns} "
                f"columns; it must "
                "embed every text of the batch once, a column after another"
            )
        whole = torch.cat([at_least_float32(part) for part in embedded])
        gather = gather_values if self.across else None
        columns = whole.chunk(self._columns)
        size = max(1, CELLS // (len(columns) * len(columns[0])))
        parts = list(pair_losses(columns, self.temperature, size, gather))
        similarity, losses = (torch.cat(values) for values in list(zip(*parts, strict=True))[1:])
        return similarity, losses


def pair_losses(
    columns: Sequence[Tensor],
    temperature: float,
    size: int,
    gather: Callable[[Tensor], Tensor] | None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield ``size`` rows at a time with similarity and InfoNCE loss of their pairs ``[m]``.

    Args:
        columns: embeddings of the queries, of their positives and of negatives, each ``[m,
            dimension]``.
        temperature: divides the cosines.
        size: rows at a time.
        gather: makes one tensor of those of all processes; ``None`` compares with this one's
            documents alone.
    """
    queries, *documents = columns
    first = 0
    if gather is not None and torch.distributed.is_initialized():
        first = int(torch.distributed.get_rank()) * len(queries)
    candidates = torch.cat([gather(part) for part in documents] if gather else documents)
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        cosines = batch_cosines(queries[rows], candidates)
        losses = info_nce_losses(cosines, temperature, None, first + start)
        yield rows, cosines[:, first + start :].diagonal(), losses


def let_weigh(loss: nn.Module, weights: Callable[[], Tensor | None]) -> bool:
    """Let a loss weigh its pairs where ``weights`` returns some, ``[m]``; return whether it can.

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
            (_weigh_cached if cached else _weigh)(part, weights)
            return True
    return False


def _weigh(loss: MultipleNegativesRankingLoss, weights: Callable[[], Tensor | None]) -> None:
    plain: Callable[..., Tensor] = loss.compute_loss_from_embeddings

    def weighted(embeddings: list[Tensor], labels: Tensor) -> Tensor:
        factors = weights()
        if factors is None:
            return plain(embeddings, labels)
        return _weighted(loss, embeddings, factors, len(factors))

    loss.compute_loss_from_embeddings = weighted


def _weigh_cached(
    loss: CachedMultipleNegativesRankingLoss, weights: Callable[[], Tensor | None]
) -> None:
    matryoshka = isinstance(loss.calculate_loss, CachedLossDecorator)
    owner, name = (loss.calculate_loss, "fn") if matryoshka else (loss, "calculate_loss")
    plain: Callable[..., Tensor] = getattr(owner, name)

    def weighted(
        reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        factors = weights()
        if factors is None:
            return plain(reps, labels, with_backward=with_backward)
        columns = [torch.cat(part) for part in reps]
        return _weighted(loss, columns, factors, loss.mini_batch_size, with_backward)

    setattr(owner, name, weighted)


def _weighted(
    loss: Any, columns: Sequence[Tensor], factors: Tensor, size: int, with_backward: bool = False
) -> Tensor:
    """Return the mean of the pairs' losses times their weights; sent back chunk by chunk if
    ``with_backward``.
    """
    gather = gather_embeddings if loss.gather_across_devices else None
    total = torch.zeros((), device=columns[0].device)
    for rows, _, losses in pair_losses(columns, 1 / loss.scale, size, gather):
        part = torch.sum(losses * factors[rows].to(losses.device)) / len(factors)
        if with_backward:
            part.backward()  # type: ignore[no-untyped-call]
        total = total + (part.detach() if with_backward else part)
    return total


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
        f"the method compares "
        "pairs; give PairPruning(..., temperature=0.05), or use another loss"
    )


def checked_temperature(value: Any) -> Any:
    """Return a temperature that a caller gave, or ``None`` for that of the loss.

    Raises:
        SettingError: unless it is a finite number above 0.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (number and 0 < value < math.inf):
        return value
    raise SettingError(f"temperature: must be a number above 0, got {shown(value)}")


def refuse_other_batch(
    queries: dict[str, Tensor],
    given: Given,
    model: SentenceTransformer,
    prompts: Prompts,
    routes: Prompts,
) -> None:
    """Compare the tokenised queries of a batch with the batch that was drawn: their number, the
    first and the last.

    Args:
        queries: as the trainer's collator made them.
        given: the batch that was drawn.
        model: tokenises as the collator does.
        prompts: ``args.prompts``.
        routes: ``args.router_mapping``.

    Raises:
        TrainingError: if they differ.
    """
    if "input_ids" not in queries:  # a model that reads no tokens
        return
    rows, found = given.source.rows, token_rows(queries)
    pair_ids = given.source.sampler.pairs_of(given.step)
    if len(found) != len(pair_ids):
        raise TrainingError(
            f"PairPruning: the loss got a batch of {len(found)} queries where {len(pair_ids)} were "
            f"drawn; {ADVICE}"
        )
    places = [0, len(found) - 1]
    texts, column = rows.queries(pair_ids[places]), rows.columns[0]
    prompt, route = (prompt_of(one, rows.name, column) or None for one in (prompts, routes))
    expected = token_rows(model.preprocess(texts, prompt=prompt, task=route))
    for place, text, tokens in zip(places, texts, expected, strict=True):
        if tokens != found[place]:
            raise TrainingError(
                f"PairPruning: the loss got another query than was drawn at row {place} of draw "
                f"{given.step} "
                f"({shown(text)}); {ADVICE}"
            )


def token_rows(features: dict[str, Tensor]) -> list[list[int]]:
    """Return the token ids of each row of a tokenised column, without padding."""
    ids, mask = features["input_ids"], features.get("attention_mask")
    starts = features.get("offsets")  # of a static model: rows one after the other
    if (
        "cu_seq_lens_q" in features
    ):  # of a transformer without padding, likewise; the last is their end
        starts = features["cu_seq_lens_q"][:-1]
    if starts is not None:
        return [row.tolist() for row in ids.ravel().tensor_split(starts[1:].cpu())]
    kept = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    return [row[keep].tolist() for row, keep in zip(ids, kept, strict=True)]
