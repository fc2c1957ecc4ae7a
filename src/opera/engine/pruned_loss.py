"""A loss of sentence-transformers over rows that carry their pair ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import extract_model_from_parallel
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

from opera.core.errors import SettingError, TrainingError
from opera.core.processes import process_index
from opera.core.terminal import shown
from opera.engine.distributed import gather_embeddings, gather_values
from opera.engine.loss import at_least_float32, batch_cosines, info_nce_losses
from opera.labels.ranks import p_values

if TYPE_CHECKING:
    from opera.engine.pair_pruning import PairPruning

CELLS = 2**24
"""Similarities computed at once."""
Gather = Callable[[Tensor], Tensor]
"""Makes one tensor of those of all processes."""


class PrunedLoss(nn.Module):
    """Takes the pair ids from the label column, lets a loss compute with the user's own labels, and
    reports similarity, InfoNCE loss and p-value of each pair. After the training, and in an
    evaluation, it is the loss alone.

    A hook on the model's last module sees the embeddings. That module runs once for each text under
    every loss: Matryoshka losses shorten what it gave, and cached losses run it again, with
    gradients, after they have returned.

    Args:
        pruning: knows the weights of each batch, and takes what is observed.
        model: the model that trains.
        loss: a loss of sentence-transformers over (anchor, positive, negatives).
        temperature: of the reported InfoNCE.
    """

    def __init__(
        self,
        pruning: PairPruning,
        model: SentenceTransformer,
        loss: nn.Module,
        temperature: float,
    ) -> None:
        super().__init__()
        self.pruning, self.temperature = pruning, temperature
        self.model, self.loss = model, loss  # the trainer puts a distributed model in both
        self.across = compares_processes(loss)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Any) -> Any:
        """Return the loss of a batch, as the inner loss returns it.

        Raises:
            TrainingError: if the batch was not drawn, or has no pair ids.
        """
        features, pair_ids = list(sentence_features), labels
        trains = torch.is_grad_enabled() and self._bare.training
        if self.pruning.ended or not trains:
            return self.loss(features, labels)
        if pair_ids is None or pair_ids.ndim != 1 or pair_ids.is_floating_point():
            raise TrainingError(
                "PairPruning: the rows of the batch have no pair ids; pass "
                "train_dataset=pruning.dataset to the trainer"
            )
        batch, labels = self.pruning.batch(pair_ids), self.pruning.labels(pair_ids)
        factors = torch.from_numpy(batch.weights[batch.local])
        # Processes that compare their documents must compute the same, whatever their own weights.
        together = self.across and self.pruning.method.weighs
        weighs = bool((factors != 1).any()) or together
        weighed = weighing(weighable(self.loss), factors) if weighs else nullcontext()
        with embeddings_of(self._bare) as embedded, weighed:
            value = self.loss(features, labels)
        # Cosines in float32 even from half precision.
        with torch.no_grad(), torch.autocast(self._bare.device.type, enabled=False):
            observed = self._observations(pair_ids, embedded, len(features))
        self.pruning.observe(pair_ids, *observed)
        return value

    @property
    def _bare(self) -> SentenceTransformer:
        model: SentenceTransformer = extract_model_from_parallel(
            self.model, keep_torch_compile=False
        )
        return model

    def _observations(
        self, pair_ids: Tensor, embedded: list[Tensor], columns: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return similarity, loss and p-value of each pair ``[m]``, from the embeddings in the
        order they were made; p-values are among the positives of this process."""
        rows = sum(map(len, embedded))
        if rows != len(pair_ids) * columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {rows} texts of "
                f"{len(pair_ids)} rows and {columns} columns; it must embed every text of the "
                "batch once, a column after another"
            )
        parts = torch.cat([at_least_float32(part) for part in embedded]).chunk(columns)
        size = max(1, CELLS // (columns * len(parts[0])))
        gather = gather_values if self.across else None
        left_out = torch.from_numpy(self.pruning.not_comparable(pair_ids)).to(parts[0].device)
        observed = []
        for part, cosines, losses in row_losses(parts, self.temperature, size, gather):
            p = p_values(cosines, left_out[part], part.start)
            observed.append((cosines[:, part].diagonal(), losses, p))
        similarity, losses, p = (torch.cat(values) for values in zip(*observed, strict=True))
        return similarity, losses, p


@contextmanager
def embeddings_of(model: SentenceTransformer) -> Iterator[list[Tensor]]:
    """Collect what the model's last module returns in the block, without gradients."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: dict[str, Tensor]) -> None:
        embedded.append(output["sentence_embedding"].detach())

    hook = model[-1].register_forward_hook(keep)
    try:
        yield embedded
    finally:
        hook.remove()


def row_losses(
    columns: Sequence[Tensor], temperature: float, size: int, gather: Gather | None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield ``size`` rows at a time with their cosines to this process's positives ``[size, m]``
    and the InfoNCE losses of their pairs.

    Args:
        columns: embeddings of the queries, of their positives and of negatives, each ``[m,
            dimension]``.
        temperature: divides the cosines.
        size: rows at a time.
        gather: compares with the documents of all processes; ``None``: with this one's alone.
    """
    queries, *documents = columns
    first = process_index() * len(queries) if gather else 0
    candidates = torch.cat([gather(part) for part in documents] if gather else documents)
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        cosines = batch_cosines(queries[rows], candidates)
        losses = info_nce_losses(cosines, temperature, None, first + start)
        yield rows, cosines[:, first : first + len(queries)], losses


def weighable(loss: nn.Module) -> Any | None:
    """Return the part of a loss whose pairs can be weighed, if there is one.

    They can under the mean of InfoNCE over cosines: MultipleNegativesRankingLoss from queries to
    documents, alone or under a Matryoshka loss.
    """
    part: Any = chain_of(loss)[-1]
    can = (
        type(part) is MultipleNegativesRankingLoss
        and part.similarity_fct is cos_sim
        and part.directions == ("query_to_doc",)
        and not part.hardness_mode
        and not any(isinstance(outer, CachedLossMixin) for outer in chain_of(loss))
    )
    return part if can else None


@contextmanager
def weighing(ranking: Any, factors: Tensor) -> Iterator[None]:
    """Let a :func:`weighable` loss multiply the loss of each pair by a factor, ``[m]``, in the
    block."""
    gather = gather_embeddings if ranking.gather_across_devices else None

    def weighted(embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        ((_, _, losses),) = row_losses(embeddings, 1 / ranking.scale, len(factors), gather)
        return torch.mean(losses * factors.to(losses.device))

    ranking.compute_loss_from_embeddings = weighted
    try:
        yield
    finally:
        del ranking.compute_loss_from_embeddings


def chain_of(loss: nn.Module) -> list[nn.Module]:
    """Return a loss and those that it wraps, as Matryoshka losses do."""
    parts = [loss]
    while isinstance(inner := getattr(parts[-1], "loss", None), nn.Module) and inner not in parts:
        parts.append(inner)
    return parts


def compares_processes(loss: nn.Module) -> bool:
    """Whether a loss compares queries with the documents of all processes."""
    return any(getattr(part, "gather_across_devices", False) for part in chain_of(loss))


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
