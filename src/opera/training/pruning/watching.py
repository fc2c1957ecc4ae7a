"""See what a loss of sentence-transformers embeds: hooks on the loss and on the model's last module.

The last module runs once for each text under every loss: Matryoshka losses shorten what it gave, and cached losses run
it again, with gradients, after they have returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from opera.core.errors import SettingError, TrainingError
from opera.core.terminal import shown
from opera.training.distributed import gather_values
from opera.training.loss import at_least_float32, batch_cosines, info_nce_losses
from opera.training.pruning.weighted import chain_of, first_column, let_weigh

CELLS = 2**24
"""Similarities computed at once."""

Begin = Callable[[dict[str, Tensor]], Tensor | None]
"""Called with the tokenised queries before a loss of training; returns weights of the pairs, ``[m]``, or ``None``."""
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
        if self._weights is not None and not self.weighs:
            raise TrainingError(
                f"PairPruning: the method weighs pairs, and {type(self.loss).__name__} cannot"
            )
        self._embedded, self._columns = [], len(features)
        self._hook = self.model[-1].register_forward_hook(self._see)

    def _see(self, module: nn.Module, inputs: Any, output: dict[str, Tensor]) -> None:
        self._embedded.append(output["sentence_embedding"].detach())

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._hook is None:
            return
        self._hook.remove()
        self._hook, self._weights = None, None
        embedded, self._embedded = self._embedded, []
        if output is not None:  # else it raised an exception
            with torch.autocast(
                self.model.device.type, enabled=False
            ):  # cosines in float32 even from half precision
                seen = self._observations(embedded)
            self.observe(*seen)

    @torch.no_grad()
    def _observations(self, embedded: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return similarity and loss of each pair ``[m]``, from the embeddings in the order they were made."""
        rows = sum(map(len, embedded))
        if rows == 0 or rows % self._columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {rows} texts in {self._columns} columns; it must "
                "embed every text of the batch once, a column after another"
            )
        queries, *columns = torch.cat([at_least_float32(part) for part in embedded]).chunk(
            self._columns
        )
        first = first_column(queries, self.across)
        documents = torch.cat([gather_values(part) for part in columns] if self.across else columns)
        size = max(1, CELLS // len(documents))
        parts = []
        for start in range(0, len(queries), size):
            cosines = batch_cosines(queries[start : start + size], documents)
            losses = info_nce_losses(cosines, self.temperature, None, first + start)
            parts.append((cosines[:, first + start :].diagonal(), losses))
        return torch.cat([part for part, _ in parts]), torch.cat([part for _, part in parts])


def checked_temperature(value: Any) -> float | None:
    """Return a temperature that a caller gave, or ``None`` for that of the loss.

    Raises:
        SettingError: unless it is a finite number above 0.
    """
    if value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    ):
        return value
    raise SettingError(f"temperature: must be a number above 0, got {shown(value)}")


def temperature_of(loss: nn.Module) -> float:
    """Return the temperature of a loss.

    Raises:
        SettingError: if it has none.
    """
    for part in chain_of(loss):
        if isinstance(scale := getattr(part, "scale", None), int | float) and scale > 0:
            return 1 / float(scale)
        if (
            isinstance(temperature := getattr(part, "temperature", None), int | float)
            and temperature > 0
        ):
            return float(temperature)
    raise SettingError(
        f"temperature: {shown(type(loss).__name__)} has neither scale nor temperature, by which the method compares "
        "pairs; give PairPruning(..., temperature=0.05), or use another loss"
    )
