"""Wrap a loss of sentence-transformers so that it reports what methods observe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim
from torch import Tensor, nn

from opera.core.errors import SettingError, TrainingError
from opera.core.processes import process_count, process_index
from opera.core.terminal import counted, shown
from opera.retrieval.device import gather_columns, gather_embeddings, gather_values
from opera.training.loss import at_least_float32, bare_model, info_nce_losses, p_values
from opera.training.sampler import Observations
from opera.training.trainer_batches import TrainerBatches, batches_with

BLOCK_SIMILARITIES = 2**24
"""Bounds the size of a block of similarities."""
Gather = Callable[[Tensor], Tensor]
"""Concatenates the tensors of all processes."""


class ObservedLoss(nn.Module):
    """Computes the user's loss, and reports the cosine, InfoNCE loss and p-value of each pair.

    The label column holds pair ids; the user's loss gets the user's labels. After training, and in
    an evaluation, the wrapper calls only the user's loss.

    A hook on the model's last module collects the embeddings. That module runs once per text with
    every loss: Matryoshka losses shorten its output, and cached losses repeat it only in the
    backward pass.

    Args:
        data_sets: hold the weights of each batch, and receive the observations.
        model: the model that trains.
        loss: a loss of sentence-transformers over (anchor, positive, negatives).
        temperature: of the reported InfoNCE.

    Attributes:
        ended: whether the training is over.
        masks: whether OPERA excludes known positives from the negatives of their queries.
        shares_with_positives: of each batch, the fraction of rows that the loss compared with a
            known positive.
    """

    def __init__(
        self,
        data_sets: Sequence[TrainerBatches],
        model: SentenceTransformer,
        loss: nn.Module,
        temperature: float,
    ) -> None:
        super().__init__()
        self.masks, self.shares_with_positives = weighable(loss) is not None, list[float]()
        self.data_sets, self.temperature, self.ended = data_sets, temperature, False
        self.model, self.loss = model, loss  # the trainer replaces the model in both if distributed
        # whether the loss compares queries with the documents of all processes
        self.across = any(
            getattr(inner, "gather_across_devices", False) for inner in chain_of(loss)
        )

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Any) -> Any:
        """Return what the user's loss returns.

        Raises:
            TrainingError: if the method did not sample the batch, or the batch has no pair ids.
        """
        features, pair_ids = list(sentence_features), labels
        is_training = torch.is_grad_enabled() and bare_model(self.model).training
        if self.ended or not is_training:
            return self.loss(features, labels)
        if pair_ids is None or pair_ids.ndim != 1 or pair_ids.is_floating_point():
            raise TrainingError(
                "PairPruning: the batch has no pair ids; pass "
                "train_dataset=pruning.dataset to the trainer"
            )
        batches, ids = batches_with(self.data_sets, pair_ids.cpu().numpy())
        factors = torch.from_numpy(batches.batch(ids).weights)
        labels = batches.data_set.labels(ids, pair_ids.device)
        all_ids = gather_values(pair_ids) if self.across else pair_ids
        position = process_index() * len(ids) if self.across else 0
        marks = (
            batches.known_positives(ids, all_ids.cpu().numpy(), position),
            batches.not_comparable(ids),
        )
        known, incomparable = (torch.from_numpy(mark).to(pair_ids.device) for mark in marks)
        # Processes that share documents must all weigh, or they would not gather in step.
        weighs = self.masks and (self.across or bool((factors != 1).any() or known.any()))
        weighed = weighing(weighable(self.loss), factors, known) if weighs else nullcontext()
        with embeddings_of(bare_model(self.model)) as embedded, weighed:
            value = self.loss(features, labels)
        # Cosines are float32, even those of embeddings in half precision.
        with torch.no_grad(), torch.autocast(bare_model(self.model).device.type, enabled=False):
            excluded = known if self.masks else None
            observed = self._observations(embedded, len(features), excluded, incomparable)
        if not self.masks:
            self.shares_with_positives.append(float(known.any(1).float().mean()))
        self._report(pair_ids, *observed)
        return value

    def _report(self, pair_ids: Tensor, *observed: Tensor) -> None:
        """Pass the observations of all processes to the data sets, a batch at a time."""
        all_ids, columns = gather_values(pair_ids).cpu().numpy(), gather_columns(*observed)
        by_process = (np.split(values, process_count(), axis=-1) for values in (all_ids, columns))
        for batch_ids, batch_columns in zip(*by_process, strict=True):
            batches, ids = batches_with(self.data_sets, batch_ids)
            batches.observe(Observations(ids, *batch_columns))

    def _observations(
        self,
        embedded: list[Tensor],
        columns: int,
        excluded: Tensor | None,
        incomparable: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return cosine, loss and p-value of each pair ``[m]``, from embeddings by column.

        The loss leaves out the ``excluded`` documents, bool ``[m, M]``. The p-value ranks a
        document among this process's positives, without the ``incomparable`` ones, bool ``[m, m]``.
        """
        texts, rows = sum(map(len, embedded)), len(incomparable)
        if texts != rows * columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {counted(texts, 'text')}, but a "
                f"batch of {counted(rows, 'row')} and {counted(columns, 'column')} has "
                f"{rows * columns:,}; use a loss that embeds each text once, column by column"
            )
        embeddings = torch.cat([at_least_float32(column) for column in embedded]).chunk(columns)
        size = max(1, BLOCK_SIMILARITIES // (columns * len(embeddings[0])))
        gather = gather_values if self.across else None
        observed = []
        for block, cosines, losses in row_losses(
            embeddings, self.temperature, size, gather, excluded
        ):
            p = p_values(cosines, incomparable[block], block.start)
            observed.append((cosines[:, block].diagonal(), losses, p))
        similarity, losses, p = (torch.cat(values) for values in zip(*observed, strict=True))
        return similarity, losses, p


@contextmanager
def embeddings_of(model: SentenceTransformer) -> Iterator[list[Tensor]]:
    """Collect the embeddings that the model's last module returns, without gradients."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: dict[str, Tensor]) -> None:
        embedded.append(output["sentence_embedding"].detach())

    hook = model[-1].register_forward_hook(keep)
    try:
        yield embedded
    finally:
        hook.remove()


def row_losses(
    columns: Sequence[Tensor],
    temperature: float,
    size: int,
    gather: Gather | None,
    excluded: Tensor | None,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield blocks of ``size`` rows, their cosines with this process's positives ``[size, m]``, and
    their InfoNCE losses.

    Args:
        columns: embeddings of queries, positives and negatives, ``[m, dimension]`` per column.
        temperature: divides the cosines.
        size: rows per block.
        gather: gathers the documents of all processes; ``None`` compares with this process's only.
        excluded: bool ``[m, M]``, the documents to exclude from each row.
    """
    queries, *documents = columns
    first = process_index() * len(queries) if gather else 0
    candidates = torch.cat([gather(column) for column in documents] if gather else documents)
    for start in range(0, len(queries), size):
        rows = slice(start, start + size)
        cosines = cos_sim(queries[rows], candidates)
        excluded_of_rows = None if excluded is None else excluded[rows]
        losses = info_nce_losses(cosines, temperature, excluded_of_rows, first + start)
        yield rows, cosines[:, first : first + len(queries)], losses


def weighable(loss: nn.Module) -> Any | None:
    """Return the innermost loss if OPERA can weigh its pairs, or ``None``.

    OPERA can weigh a mean of InfoNCE over cosines: MultipleNegativesRankingLoss from queries to
    documents, alone or inside a Matryoshka loss.
    """
    inner: Any = chain_of(loss)[-1]
    is_weighable = (
        type(inner) is MultipleNegativesRankingLoss
        and inner.similarity_fct is cos_sim
        and inner.directions == ("query_to_doc",)
        and not inner.hardness_mode
        and not any(isinstance(outer, CachedLossMixin) for outer in chain_of(loss))
    )
    return inner if is_weighable else None


@contextmanager
def weighing(ranking: Any, factors: Tensor, excluded: Tensor | None = None) -> Iterator[None]:
    """Make a :func:`weighable` loss multiply the loss of each pair by a factor ``[m]``, and leave
    out the ``excluded`` documents, bool ``[m, M]``."""
    gather = gather_embeddings if ranking.gather_across_devices else None

    def weighted(embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        ((_, _, losses),) = row_losses(
            embeddings, 1 / ranking.scale, len(factors), gather, excluded
        )
        return torch.mean(losses * factors.to(losses.device))

    ranking.compute_loss_from_embeddings = weighted
    try:
        yield
    finally:
        del ranking.compute_loss_from_embeddings


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
