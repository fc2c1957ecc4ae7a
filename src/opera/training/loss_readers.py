"""Read the score and the loss of each pair from a loss of sentence-transformers, and weigh pairs.

:data:`READERS` lists the losses of each kind of model that OPERA can read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from sentence_transformers.cross_encoder import losses as reranker_losses
from sentence_transformers.multi_vector_encoder import losses as multi_vector_losses
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor, nn
from torch.nn import functional as F

from opera.core.errors import SettingError, TrainingError
from opera.core.processes import process_index
from opera.core.terminal import counted
from opera.retrieval.device import gather_values
from opera.retrieval.kinds import Dense, Kind, MultiVector, Reranker, Sparse
from opera.training.loss import at_least_float32, info_nce_losses
from opera.training.weighable_losses import (
    MULTI_VECTOR_SIMILARITIES,
    SPARSE_SIMILARITIES,
    RowLosses,
    Similarity,
    chain_of,
    replaced,
    row_losses,
    similarity_name_of,
    temperature_of,
    weigh_gradient,
    weighable,
    weighing,
)

BLOCK_SIMILARITIES = 2**24
"""Bounds the size of a block of similarities."""


@dataclass(frozen=True)
class Changes:
    """How OPERA changes the losses of a batch.

    Attributes:
        factors: float ``[rows]``, multiply the loss of each row.
        known: bool ``[m, M]``, the known positives among the negatives of each pair.
        across: whether the loss compares queries with the documents of all processes.
    """

    factors: Tensor
    known: Tensor
    across: bool


@dataclass
class Seen:
    """What a loss computed for a batch, without gradients.

    Attributes:
        outputs: embeddings or scores, in the order of the forward passes.
        columns: the documents that were scored, after the positives: int ``[m]`` per pass.
        losses: the loss of each row ``[rows]``, if the loss has computed it.
    """

    outputs: list[Tensor] = field(default_factory=list)
    columns: list[Tensor] = field(default_factory=list)
    losses: Tensor = field(default_factory=lambda: torch.empty(0))


class LossReader(ABC):
    """Reads the score and the loss of each pair from a loss of sentence-transformers.

    Args:
        loss: the user's loss.
        temperature: of the losses that the method observes; ``None`` for that of the loss.

    Attributes:
        weighs: whether OPERA can multiply the loss of each pair by a factor.
        masks: whether OPERA can exclude known positives from the negatives of their queries.
        advice: a loss that OPERA can weigh.
    """

    weighs: bool = True
    masks: bool = True
    advice: ClassVar[str] = ""

    def __init__(self, loss: nn.Module, temperature: float | None) -> None:
        self.loss = loss
        self.inner: Any = chain_of(loss)[-1]
        self.temperature = self._temperature() if temperature is None else temperature

    def _temperature(self) -> float:
        return temperature_of(self.loss)

    def similarity_name(self) -> str:
        """Return the ``similarity_fn_name`` by which the base model scores pairs.

        Raises:
            SettingError: if OPERA does not know the function that the loss compares by.
        """
        return "cosine"

    @abstractmethod
    def watching(self, model: nn.Module, changes: Changes) -> AbstractContextManager[Seen]:
        """Weigh pairs, exclude known positives, and collect what the loss computes."""

    def scored(self, seen: Seen, rows: int, columns: int) -> Tensor | None:
        """Return which documents the loss compared with which query, bool ``[m, M]``; ``None`` for
        all."""
        return None

    @abstractmethod
    def row_losses(
        self, seen: Seen, rows: int, columns: int, excluded: Tensor | None, across: bool
    ) -> RowLosses:
        """Yield blocks of rows with their scores and losses.

        Args:
            seen: of the batch.
            rows: pairs of the batch.
            columns: text columns of the batch.
            excluded: bool ``[m, M]``, the documents that the losses leave out.
            across: whether the loss compares queries with the documents of all processes.
        """


class DenseReader(LossReader):
    """Reads a loss over embeddings, one vector per text.

    A hook on the model's last module collects the embeddings. That module runs once per text with
    every loss: Matryoshka losses shorten its output, and cached losses repeat it only in the
    backward pass.
    """

    advice = "MultipleNegativesRankingLoss over cosines in one direction"

    def __init__(self, loss: nn.Module, temperature: float | None) -> None:
        super().__init__(loss, temperature)
        self.weighs = self.masks = weighable(loss) is not None
        is_cosine = self.similarity_name() == "cosine"
        self.similarity: Similarity = cos_sim if is_cosine else dot_score

    @contextmanager
    def watching(self, model: nn.Module, changes: Changes) -> Iterator[Seen]:
        """Collect the embeddings. A batch without weights and known positives stays as it is."""
        factors, known = changes.factors, changes.known
        # Processes that share documents must all weigh, or they would not gather in step.
        is_changed = changes.across or bool((factors != 1).any() or known.any())
        changed = self.weighs and is_changed
        with (
            outputs_of(model, "sentence_embedding") as outputs,
            weighing(self.inner, factors, known) if changed else nullcontext(),
        ):
            yield Seen(outputs)

    def row_losses(
        self, seen: Seen, rows: int, columns: int, excluded: Tensor | None, across: bool
    ) -> RowLosses:
        """Yield blocks of rows, compared by :meth:`similarity_name`."""
        if (texts := sum(map(len, seen.outputs))) != rows * columns:
            raise TrainingError(
                f"PairPruning: {type(self.loss).__name__} embedded {counted(texts, 'text')}, but a "
                f"batch of {counted(rows, 'row')} and {counted(columns, 'column')} has "
                f"{rows * columns:,}; use a loss that embeds each text once, column by column"
            )
        embeddings = torch.cat([at_least_float32(part) for part in seen.outputs]).chunk(columns)
        size = max(1, BLOCK_SIMILARITIES // (columns * len(embeddings[0])))
        gather = gather_values if across else None
        return row_losses(embeddings, self.temperature, size, gather, excluded, self.similarity)


class SparseReader(DenseReader):
    """Reads a loss over sparse embeddings, which compares their products or cosines."""

    advice = (
        "SparseMultipleNegativesRankingLoss over products in one direction, inside SpladeLoss, "
        "CachedSpladeLoss or CSRLoss"
    )

    def __init__(self, loss: nn.Module, temperature: float | None) -> None:
        if isinstance(loss, SparseMultipleNegativesRankingLoss):
            raise SettingError(
                f"loss: sentence-transformers does not train with {type(loss).__name__} alone; put "
                "it inside SpladeLoss, CachedSpladeLoss or CSRLoss"
            )
        super().__init__(loss, temperature)

    def similarity_name(self) -> str:
        """Return ``dot`` or ``cosine``."""
        return similarity_name_of(self.inner, SPARSE_SIMILARITIES)


class MaxSimReader(LossReader):
    """Reads the scores that a multi-vector loss computes.

    OPERA multiplies the gradients of a pair's scores by its weight, so the gradient is that of the
    mean of loss times weight. The trainer logs the mean without weights.
    """

    def similarity_name(self) -> str:
        """Return ``maxsim`` or ``meanmaxsim``."""
        return similarity_name_of(self.inner, MULTI_VECTOR_SIMILARITIES)

    @contextmanager
    def watching(self, model: nn.Module, changes: Changes) -> Iterator[Seen]:
        """Wrap the loss's ``similarity_fct``, which scores blocks of queries in order."""
        seen, compare, first = Seen(), self.inner.similarity_fct, 0
        factors, known = changes.factors, changes.known

        def similarity(queries: Tensor, documents: Tensor, **masks: Tensor) -> Tensor:
            nonlocal first
            scores: Tensor = compare(queries, documents, **masks)
            seen.outputs.append(scores.detach())
            rows = slice(first, first + len(queries))
            first += len(queries)
            of_rows = regrouped(known[rows], documents.shape[1])
            weigh_gradient(scores, factors[rows])
            return scores.masked_fill(of_rows, -torch.inf)

        with replaced(self.inner, "similarity_fct", similarity):
            yield seen

    def row_losses(
        self, seen: Seen, rows: int, columns: int, excluded: Tensor | None, across: bool
    ) -> RowLosses:
        """Yield all rows, with the loss's own scores."""
        by_query = torch.cat([at_least_float32(scores) for scores in seen.outputs])
        scores = regrouped(by_query, by_query.shape[1] // (columns - 1))
        first = process_index() * rows if across else 0
        losses = info_nce_losses(scores, self.temperature, excluded, first)
        yield slice(0, rows), scores[:, first : first + rows], losses


class RerankerReader(LossReader):
    """Reads the logits of a cross-encoder, which compares a query with some documents of the batch.

    OPERA weighs a pair as in :class:`MaxSimReader`.
    """

    masks = False
    criterion: ClassVar[str] = "cross_entropy_loss"

    @contextmanager
    def watching(self, model: nn.Module, changes: Changes) -> Iterator[Seen]:
        """Collect logits and documents, and weigh where the loss passes them to its criterion."""

        def weigh(module: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
            scores, targets = inputs
            with torch.autocast(scores.device.type, enabled=False):
                seen.losses = self.losses_of(at_least_float32(scores.detach()), targets)
            weigh_gradient(scores, changes.factors)

        hook = getattr(self.inner, self.criterion).register_forward_pre_hook(weigh)
        try:
            with outputs_of(model, "scores") as outputs:
                seen = Seen(outputs)
                with self.noting_documents(seen):
                    yield seen
        finally:
            hook.remove()

    @contextmanager
    def noting_documents(self, seen: Seen) -> Iterator[None]:
        """Let the loss choose numbers of documents instead of texts, by the same random numbers."""
        choose = self.inner.get_in_batch_negatives

        def negatives(queries: list[str], documents: list[list[str]]) -> Iterator[list[str]]:
            texts = [text for column in documents for text in column]
            numbers = torch.arange(len(texts)).view(len(documents), -1).tolist()
            for chosen in choose(queries, numbers):
                seen.columns.append(torch.tensor(chosen))
                yield [texts[number] for number in chosen]
            seen.columns.extend(map(torch.tensor, numbers[1:]))  # each row's own negatives

        with replaced(self.inner, "get_in_batch_negatives", negatives):
            yield

    def activated(self, logits: Tensor) -> Tensor:
        """Return the scores that the loss compares, without its scale."""
        activation = self.inner.activation_fn
        return activation(logits) if activation else logits

    def losses_of(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row from what the criterion gets."""
        return F.cross_entropy(
            scores / ((self.inner.scale or 1) * self.temperature), targets, reduction="none"
        )

    def base_losses(self, logits: Tensor, labels: Tensor | None) -> Tensor:
        """Return the loss of each pair ``[N]`` from the logits of its document and of random
        documents ``[N, 1 + count]``; -inf leaves a document out."""
        scores = self.activated(logits).masked_fill(logits == -torch.inf, -torch.inf)
        targets = torch.zeros(len(logits), dtype=torch.long)
        return F.cross_entropy(scores / self.temperature, targets, reduction="none")

    def base_negatives(self) -> int:
        """The number of random documents to compare a pair with before training."""
        count = self.inner.num_negatives
        return DEFAULT_NEGATIVES if count is None else int(count)

    def scored(self, seen: Seen, rows: int, columns: int) -> Tensor:
        """Return the documents that the model read with each query."""
        scored = torch.zeros(rows, rows * (columns - 1), dtype=torch.bool)
        return scored.scatter(1, self._columns(seen, rows), True)

    def row_losses(
        self, seen: Seen, rows: int, columns: int, excluded: Tensor | None, across: bool
    ) -> RowLosses:
        """Yield all rows; the score is 0 for documents that were not scored."""
        logits = torch.cat([at_least_float32(part.reshape(-1)) for part in seen.outputs])
        numbers = self._columns(seen, rows).to(logits.device)
        values = logits[: numbers.numel()].view(-1, rows).T
        scores = values.new_zeros(rows, rows * (columns - 1)).scatter(1, numbers, values)
        yield slice(0, rows), scores[:, :rows], seen.losses[:rows]

    def _columns(self, seen: Seen, rows: int) -> Tensor:
        """The document of each score: int ``[m, scores]``."""
        return torch.stack([torch.arange(rows), *seen.columns], dim=1)


class BinaryReader(RerankerReader):
    """Reads a cross-encoder's loss over single pairs. There are no negatives to mask or to rank."""

    masks = True
    criterion = "bce_with_logits_loss"

    def _temperature(self) -> float:
        return 1.0

    @contextmanager
    def noting_documents(self, seen: Seen) -> Iterator[None]:
        """Do nothing, since the loss chooses no documents."""
        yield

    def base_negatives(self) -> int:
        """None: the loss compares a pair with no other."""
        return 0

    def losses_of(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy of each row."""
        criterion = self.inner.bce_with_logits_loss
        return F.binary_cross_entropy_with_logits(
            scores, targets, criterion.weight, pos_weight=criterion.pos_weight, reduction="none"
        )

    def base_losses(self, logits: Tensor, labels: Tensor | None) -> Tensor:
        """Return the binary cross-entropy of each pair."""
        assert labels is not None
        return self.losses_of(self.activated(logits[:, 0]), labels.float())


DEFAULT_NEGATIVES = 4
"""Random documents per pair before training, if the loss compares a pair with all documents."""
READERS: dict[type[Kind], dict[type[nn.Module], type[LossReader]]] = {
    Dense: {nn.Module: DenseReader},
    Sparse: {nn.Module: SparseReader},
    MultiVector: {
        multi_vector_losses.MultiVectorMultipleNegativesRankingLoss: MaxSimReader,
        multi_vector_losses.CachedMultiVectorMultipleNegativesRankingLoss: MaxSimReader,
    },
    Reranker: {
        reranker_losses.MultipleNegativesRankingLoss: RerankerReader,
        reranker_losses.CachedMultipleNegativesRankingLoss: RerankerReader,
        reranker_losses.BinaryCrossEntropyLoss: BinaryReader,
    },
}
"""The readers of each kind's losses."""


def reader_of(kind: type[Kind], loss: nn.Module, temperature: float | None) -> LossReader:
    """Return what reads a loss of a kind of model.

    Raises:
        SettingError: if OPERA cannot read the loss, or its temperature is unknown.
    """
    readers = READERS[kind]
    reader = readers.get(nn.Module) or readers.get(type(loss))
    if reader is None:
        names = ", ".join(loss_class.__name__ for loss_class in readers)
        raise SettingError(
            f"loss: PairPruning cannot read {type(loss).__name__} of a {kind.title}; use {names}"
        )
    return reader(loss, temperature)


def regrouped(documents: Tensor, groups: int) -> Tensor:
    """Turn columns that are grouped by text column into columns grouped by pair, or the reverse.

    OPERA has all positives, then all first negatives; multi-vector losses have the documents of a
    pair side by side.
    """
    return documents.view(len(documents), groups, -1).transpose(1, 2).flatten(1)


@contextmanager
def outputs_of(model: nn.Module, name: str) -> Iterator[list[Tensor]]:
    """Collect an output of the model's last module, without gradients."""
    outputs: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: dict[str, Tensor]) -> None:
        outputs.append(output[name].detach())

    hook = model[-1].register_forward_hook(keep)  # type: ignore[index]
    try:
        yield outputs
    finally:
        hook.remove()
