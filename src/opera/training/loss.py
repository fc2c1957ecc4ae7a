"""The losses, per pair: the paper's contrastive loss with in-batch negatives, and distillation.

To add a loss, define ``pair_losses`` in a subclass of :class:`InBatchLoss` and decorate the class
with ``@register_loss("name")``. The name becomes a value of the setting ``loss``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.gradcache import CachedLossMixin, RandContext
from torch import Tensor, nn
from torch.nn import functional as F

from opera.config.negatives import RANDOM_KINDS
from opera.config.optimisation import LOSSES
from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.data.copies import teacher_by_text
from opera.encoder import TokenModel
from opera.labels.estimate import calibrated
from opera.retrieval.device import gather_columns, gather_embeddings
from opera.retrieval.kinds import encoding_kind_of
from opera.training.build import TrainingSet
from opera.training.sampler import Batch, Observations, Sampler


def info_nce_losses(
    similarity: Tensor, temperature: float, excluded: Tensor | None, first_column: int = 0
) -> Tensor:
    """InfoNCE: cross-entropy of each query's positive against the other documents of the batch.

    Args:
        similarity: float ``[m, M]``; row i's positive is column ``first_column`` + i.
        temperature: divides the similarities (the paper's 0.02).
        excluded: bool ``[m, M]``, documents to exclude from a row; never the row's positive.
        first_column: column of the first row's positive; earlier columns belong to earlier
            processes.

    Returns:
        float ``[m]``, in nats.
    """
    logits = similarity / temperature
    if excluded is not None:
        logits = logits.masked_fill(excluded, -torch.inf)
    return F.cross_entropy(
        logits, first_column + torch.arange(len(logits), device=logits.device), reduction="none"
    )


class InBatchLoss(CachedLossMixin, nn.Module, ABC):  # type: ignore[misc]
    """Base class of losses that compare each query with all documents of its batch, by the
    similarity of the model.

    Several processes share a batch: each gathers the documents of all, with their gradients.

    With ``gradient_cache``, a forward pass embeds only that many texts, which saves memory. First
    passes, without gradients, give the loss. Second passes, with the same dropout, give the
    gradients (GradCache, arXiv:2101.06983). Loss and gradients equal
    those of a single pass.

    Args:
        model: the model that trains.
        training_set: the training pairs, with the known positives of each query.
        sampler: receives the observations.
        settings: the run's settings, automatic ones resolved.

    Attributes:
        temperature: of the softmax.
        known: the known positives of each query.
        masks: whether known positives are excluded from a query's negatives; not in the paper.
        sizes: shorter embedding lengths (Matryoshka, arXiv:2205.13147). The loss is the mean over
            these lengths and the full length; methods observe the loss at the full length.
        negatives_are_random: whether the query's own negatives are random documents, so that
            p-values can use them.
        reads_passages: whether each query reads the best passages of its documents, so that a
            random document ranks too high among the documents of other queries.
        labels_of_document: int ``[documents]``, the training pairs of each document, if the model
            reads passages.
        packs: whether texts may be packed; a compiled model does not allow it.
    """

    model: SentenceTransformer

    def __init__(
        self,
        model: SentenceTransformer,
        training_set: TrainingSet,
        sampler: Sampler,
        settings: TrainSettings,
    ) -> None:
        super().__init__()
        negatives = training_set.negatives
        self.model, self.sampler = model, sampler
        self.temperature = resolved(settings.temperature)
        self.known, self.masks = negatives.known, settings.mask_known_positives
        self.sizes = settings.matryoshka or ()
        self.kind = encoding_kind_of(bare_model(model))
        self.penalty_weights = (
            settings.query_regularizer_weight,
            settings.document_regularizer_weight,
        )
        self.negatives_are_random = negatives.kind in RANDOM_KINDS
        self.reads_passages = training_set.passages is not None
        if self.reads_passages:
            groups, pairs = self.known.document_group, training_set.pairs
            self.labels_of_document = np.bincount(groups[pairs.pair_doc], minlength=len(groups))[
                groups
            ]
        self.packs = not (settings.trainer or {}).get("torch_compile")
        self.uses_gradient_cache = settings.gradient_cache is not None
        self.mini_batch_size = settings.gradient_cache or 0
        self.prepare(training_set, settings)

    def similarity(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the model's similarity of embeddings ``[m, ...]`` and ``[M, ...]``: float
        ``[m, M]``."""
        return self.kind.compare(bare_model(self.model), queries, documents)

    @abstractmethod
    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first_column: int) -> Tensor:
        """Return the loss of each pair, float ``[m]``; see :func:`info_nce_losses`."""

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """Return the loss of each pair of this process: float ``[m]``.

        Override this instead of :meth:`pair_losses` if a loss needs the pair ids or the documents.

        Args:
            similarity: float ``[m, M]``, with the documents ``batch.doc_rows.T.ravel()``.
            excluded: bool ``[m, M]``, documents to exclude from a row.
            batch: pair ids, documents and weights.
        """
        return self.pair_losses(similarity, excluded, batch.local.start)

    def prepare(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Prepare the loss, before training, with data that batches lack."""

    def observed(
        self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor
    ) -> Tensor:
        """Return the losses that methods observe, float ``[m]``, without gradients."""
        return losses.detach()

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Batch) -> Tensor:
        """Return the mean of loss times weight over a batch; methods observe unweighted losses.

        Args:
            sentence_features: the columns anchor, positive and negatives, as the model's inputs or
                as token ids from :func:`opera.training.build.collate_tokens`.
            labels: the batch.

        Raises:
            TrainingError: if a loss is not a finite number.
        """
        if self.uses_gradient_cache:
            features = self._model_inputs(sentence_features)
            return CachedLossMixin.forward_cached(self, features, labels)
        return self.loss_of(labels, self.embed(sentence_features))

    def embed(self, sentence_features: Iterable[dict[str, Any]]) -> list[Tensor]:
        """Return the embeddings of each column, float ``[m, dimension]``."""
        columns = list(sentence_features)
        if _are_token_ids(columns):
            return TokenModel(self.model, may_pack=self.packs).embed_columns(
                [(features["input_ids"], features["prompt_length"]) for features in columns]
            )
        return [self.kind.forward(self.model, features) for features in columns]

    def _model_inputs(self, sentence_features: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the model's inputs for each column, which the gradient cache cuts into passes."""
        columns = list(sentence_features)
        if not _are_token_ids(columns):
            return columns
        token_model = TokenModel(self.model, may_pack=self.packs)
        return [
            token_model.features(features["input_ids"], features["prompt_length"])
            for features in columns
        ]

    def embed_minibatch(self, *args: Any, **kwargs: Any) -> tuple[Tensor, RandContext | None]:
        """Embed a part of the texts, in float32 because the stored gradients would vanish in half
        precision."""
        embeddings, random_state = super().embed_minibatch(*args, **kwargs)
        return at_least_float32(embeddings), random_state

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Batch | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss; ``reps`` has ``[texts, dimension]`` per column and mini-batch."""
        assert labels is not None
        loss = self.loss_of(labels, [torch.cat(column) for column in reps])
        if with_backward:
            torch.autograd.backward(loss)
        return loss.detach() if with_backward else loss

    def loss_of(self, batch: Batch, embeddings: Sequence[Tensor]) -> Tensor:
        """Return the mean of loss times weight, and report the observations.

        Args:
            batch: the pairs of all processes.
            embeddings: float ``[m, dimension]`` per column, of this process.
        """
        device = embeddings[0].device
        # Similarities are float32, even those of embeddings in half precision.
        with torch.autocast(device.type, enabled=False):
            query_embeddings, *columns = map(at_least_float32, embeddings)
            document_embeddings = self.kind.join_columns(list(map(gather_embeddings, columns)))
            marked = self.known.among_negatives(
                batch.queries[batch.local], batch.doc_rows, batch.local.start
            )
            known = torch.from_numpy(marked).to(device)
            excluded = known if self.masks else None
            similarity = self.similarity(query_embeddings, document_embeddings)
            losses = self.batch_losses(similarity, excluded, batch)
            observed = self.observed(similarity, excluded, batch, losses)
            self._observe(batch, similarity.detach(), observed, known)
            for size in self.sizes:
                shorter = self.similarity(query_embeddings[:, :size], document_embeddings[:, :size])
                losses = losses + self.batch_losses(shorter, excluded, batch)
            penalty = self._penalty(query_embeddings, columns)
        weights = torch.from_numpy(batch.weights[batch.local]).to(device)
        return (losses * weights).mean() / (1 + len(self.sizes)) + penalty

    def _penalty(self, queries: Tensor, columns: Sequence[Tensor]) -> Tensor | float:
        """Return the weighted penalties of the embeddings of queries and documents."""
        if not self.kind.has_penalty:
            return 0.0
        of_queries, of_documents = self.penalty_weights
        documents = self.kind.penalty(self.kind.join_columns(columns))
        return of_queries * self.kind.penalty(queries) + of_documents * documents

    def _observe(self, batch: Batch, similarity: Tensor, losses: Tensor, known: Tensor) -> None:
        """Report each pair's similarity, loss ``[m]`` and p-value, from ``similarity [m, M]`` and
        ``known [m, M]``."""
        # p-values compare a document with random documents of the same data set only.
        document_sets = np.tile(batch.sets, batch.doc_rows.shape[1])
        foreign = torch.from_numpy(batch.sets[batch.local][:, None] != document_sets)
        excluded, first_column = known | foreign.to(known.device), batch.local.start
        positions = torch.arange(len(known), device=known.device)
        of_query = [
            block_start + first_column + positions
            for block_start in range(len(batch.doc_rows), known.shape[1], len(batch.doc_rows))
        ]
        if self.reads_passages or not self.negatives_are_random:
            for columns in of_query:  # a random document ranks below mined ones
                excluded[positions, columns] = True
        p = p_values(similarity, excluded, first_column)
        similarities, observed, p_of_batch = gather_columns(
            similarity[:, batch.local].diagonal(), losses, p
        )
        if self.reads_passages:
            excluded[positions, first_column + positions] = True
            null = [
                p_values(similarity, excluded, int(columns[0])).masked_fill(
                    known[positions, columns], torch.nan
                )
                for columns in of_query
                if self.negatives_are_random
            ]
            random = gather_columns(*null).T if null else np.empty((len(p_of_batch), 0))
            labels = self.labels_of_document[batch.doc_rows[:, 1 : 1 + random.shape[1]]]
            p_of_batch = calibrated(p_of_batch, random, labels, batch.sets)
        observations = Observations(batch.pair_ids, similarities, observed, p_of_batch)
        self.sampler.observe(batch.step, observations)


class InfoNCELoss(InBatchLoss):
    """The paper's loss: cross-entropy of the positive against the batch (Section 2.1)."""

    def pair_losses(self, similarity: Tensor, excluded: Tensor | None, first_column: int) -> Tensor:
        """InfoNCE."""
        return info_nce_losses(similarity, self.temperature, excluded, first_column)


def p_values(similarity: Tensor, excluded: Tensor | None, first_column: int = 0) -> Tensor:
    """Rank each pair's document among the other documents of the batch, scaled to (0, 1).

    If a of b other documents score higher, the result is (a + ½)/(b + 1). An equal score counts
    half. For a random document, the result is uniform.

    Args:
        similarity: float ``[m, M]``; row i's positive is column ``first_column`` + i.
        excluded: bool ``[m, M]``, the documents to exclude, such as known positives.
        first_column: column of the first row's positive.

    Returns:
        float32 ``[m]``; NaN if no document is left to compare with.
    """
    positions = torch.arange(len(similarity), device=similarity.device)
    is_compared = torch.ones_like(similarity, dtype=torch.bool) if excluded is None else ~excluded
    is_compared[positions, first_column + positions] = False
    gap = similarity - similarity[positions, first_column + positions][:, None]
    above = (0.5 * (torch.sign(gap) + 1) * is_compared).sum(1)
    count = is_compared.sum(1)
    return torch.where(count > 0, (above + 0.5) / (count + 1), torch.nan)


def _are_token_ids(columns: Sequence[dict[str, Any]]) -> bool:
    """Whether the columns come from :func:`opera.training.build.collate_tokens`."""
    return all(isinstance(features.get("input_ids"), list) for features in columns)


def bare_model(model: nn.Module) -> SentenceTransformer:
    """Return a model without what distributes or compiles it."""
    return extract_model_from_parallel(model, keep_torch_compile=False)


def at_least_float32(embeddings: Tensor) -> Tensor:
    """Convert embeddings to float32, unless their precision is higher."""
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


def divergences(
    similarity: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float
) -> tuple[Tensor, Tensor]:
    r"""Kullback-Leibler divergence between the softmaxes of teacher and student over a row's
    documents.

    With documents j, teacher scores t, cosines s and the temperatures T and τ::

        p_j = softmax_j(t / T)     q_j = softmax_j(s / τ)     KL = Σ_j p_j (log p_j - log q_j)

    Both softmaxes exclude documents without a teacher score (NaN). The gradient equals that of
    FlagEmbedding's ``kl_div``, the cross-entropy ``-Σ p log q``, and that of
    sentence-transformers' ``DistillKLDivLoss``.

    Args:
        similarity: float ``[m, k]`` cosines.
        teacher: float ``[m, k]`` scores.
        temperature: of the student, τ.
        teacher_temperature: of the teacher, T.

    Returns:
        float ``[m]`` in nats, 0 where ``usable`` is false; and ``usable``, bool ``[m]``: whether
        the teacher scored the positive (the first document) and at least one negative.
    """
    scored = ~torch.isnan(teacher)
    usable = scored[:, 0] & (scored.sum(dim=1) > 1)
    scored = scored | ~usable[:, None]  # a row without documents has no softmax
    p = F.log_softmax(
        (teacher.nan_to_num() / teacher_temperature).masked_fill(~scored, -torch.inf), dim=1
    )
    q = F.log_softmax((similarity / temperature).masked_fill(~scored, -torch.inf), dim=1)
    terms = torch.where(
        scored, p.exp() * (p.masked_fill(~scored, 0) - q.masked_fill(~scored, 0)), 0.0
    )
    return terms.sum(dim=1) * usable, usable


class DistillationLoss(InfoNCELoss):
    r"""The weighted sum of InfoNCE and the divergence from a teacher.

    With the weight w (``distill_weight``)::

        loss = w KL + (1 - w) InfoNCE

    if the teacher scored the positive and at least one explicit negative; otherwise InfoNCE alone.
    KL excludes explicit negatives without a score and the documents of other pairs. It includes
    known positives among the explicit negatives, because the teacher scores their relevance.

    Methods observe InfoNCE: it estimates the same loss as the scores of the base model, and its
    scale is the same for pairs with and without teacher scores.
    """

    def prepare(self, training_set: TrainingSet, settings: TrainSettings) -> None:
        """Load the teacher's scores; log how many pairs have one."""
        data = training_set.data
        assert data.teacher is not None
        self.teacher = teacher_by_text(data, data.teacher)
        self.query_group = data.query_group[training_set.train.query_rows]
        self.document_group = data.document_group
        self.weight = settings.distill_weight
        self.teacher_temperature = (
            resolved(settings.temperature) if self.teacher.are_cosines else 1.0
        )
        pairs, listed = training_set.pairs, training_set.negatives.lists
        kinds: dict[str, tuple[IntArray, IntArray]] = {
            "training pairs": (pairs.pair_query, pairs.pair_doc)
        }
        if listed is not None:
            kind = f"{training_set.negatives.kind} negatives"
            kinds[kind] = (listed.queries, listed.doc_rows)
        for kind, (query_indices, doc_rows) in kinds.items():
            scored = ~np.isnan(self._lookup(query_indices, doc_rows))
            log.info("the teacher scored %d of %d %s", scored.sum(), len(scored), kind)

    def batch_losses(self, similarity: Tensor, excluded: Tensor | None, batch: Batch) -> Tensor:
        """The weighted sum."""
        info_nce = self.pair_losses(similarity, excluded, batch.local.start)
        # The columns are all positives, then all first negatives, and so on.
        positions = torch.arange(len(similarity), device=similarity.device)[:, None]
        columns = torch.arange(batch.doc_rows.shape[1], device=similarity.device)
        cosines = similarity[
            positions, batch.local.start + positions + columns * len(batch.pair_ids)
        ]
        scores = self._lookup(batch.queries[batch.local][:, None], batch.doc_rows[batch.local])
        kl, usable = divergences(
            cosines,
            torch.from_numpy(scores).to(cosines),
            self.temperature,
            self.teacher_temperature,
        )
        return torch.where(usable, self.weight * kl + (1 - self.weight) * info_nce, info_nce)

    def observed(
        self, similarity: Tensor, excluded: Tensor | None, batch: Batch, losses: Tensor
    ) -> Tensor:
        """InfoNCE, without the teacher."""
        return self.pair_losses(similarity.detach(), excluded, batch.local.start)

    def _lookup(self, query_indices: IntArray, doc_rows: IntArray) -> NDArray[np.float32]:
        """Return the teacher's scores, NaN for missing scores."""
        return self.teacher.lookup(self.query_group[query_indices], self.document_group[doc_rows])


LOSSES.update(infonce=InfoNCELoss, distill=DistillationLoss)

Loss = TypeVar("Loss", bound=type[InBatchLoss])


def register_loss(name: str) -> Callable[[Loss], Loss]:
    """Return a class decorator that makes ``name`` a value of the setting ``loss``.

    Raises:
        ValueError: if a loss has this name; upper and lower case do not differ.

    Examples:
        >>> from opera.training.loss import LOSSES, InfoNCELoss
        >>> @register_loss("my-infonce")
        ... class MyInfoNCE(InfoNCELoss):
        ...     pass
        >>> "my-infonce" in LOSSES
        True
    """
    return LOSSES.decorator(name)
