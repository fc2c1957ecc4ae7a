"""The contrastive loss of the paper, one value a pair, and what it saw on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from opera.core.errors import TrainingError
from opera.data.pairs import TrainingPairs
from opera.training.distributed import gather_numbers, gather_with_gradient, rank
from opera.training_set.known_positives import KnownPositives

Observer = Callable[[int, NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]], None]
"""Called with the step, pair ids ``[B]``, cosine similarities ``[B]`` and losses ``[B]``."""


def info_nce_losses(similarity: Tensor, temperature: float, excluded: Tensor | None, first: int = 0) -> Tensor:
    """Cross-entropy of each query's positive against every other document of the batch.

    Args:
        similarity: float ``[B, M]`` cosines; row i's positive is column ``first`` + i.
        temperature: divides the cosines (the paper's 0.02).
        excluded: bool ``[B, M]``, documents to leave out of a row; never its own positive.
        first: column of the first row's positive: behind those of the processes before this one.

    Returns:
        float ``[B]``, in nats.
    """
    logits = similarity / temperature
    if excluded is not None:
        logits = logits.masked_fill(excluded, -torch.inf)
    return F.cross_entropy(logits, first + torch.arange(len(logits), device=logits.device), reduction="none")


class InfoNCELoss(nn.Module):
    """In-batch contrastive loss over cosine similarities that tells an observer what each pair got.

    With several processes a batch is theirs together: documents are gathered with their gradients, and every process's
    observer is told of every pair.

    Args:
        model: the model that trains.
        pairs: the training pairs, for the documents and queries behind the ids in the labels.
        temperature: of the softmax.
        known: documents to leave out of a query's negatives; ``None`` leaves none out (the paper's way).
        observer: told of every training batch.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        pairs: TrainingPairs,
        temperature: float,
        known: KnownPositives | None,
        observer: Observer,
    ) -> None:
        super().__init__()
        self.model, self.pairs, self.temperature = model, pairs, temperature
        self.known, self.observer = known, observer

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean of loss times weight over a batch; the observer is told the losses without weights.

        Args:
            sentence_features: tokenised columns: anchor, positive, negatives.
            labels: int64 ``[B, 3 + documents]``: step, pair, bits of the float32 weight, corpus rows of the positive
                and the negatives.

        Raises:
            TrainingError: if a loss is not a finite number.
        """
        vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
        with torch.autocast(vectors[0].device.type, enabled=False):  # cosines in float32 even from half precision
            queries, *documents = (F.normalize(_at_least_float32(vector), dim=-1) for vector in vectors)
            similarity = queries @ torch.cat([gather_with_gradient(part) for part in documents]).T
            numbers = labels.cpu().numpy()
            every_number, _ = gather_numbers(numbers, np.empty((len(numbers), 0), dtype=np.float32))
            first = rank() * len(numbers)  # the column of this process's first positive
            excluded = self._excluded(numbers, every_number, first, similarity.device)
            losses = info_nce_losses(similarity, self.temperature, excluded, first)
        own = similarity.detach()[:, first : first + len(numbers)].diagonal()
        self._tell(numbers, own, losses.detach())
        weights = torch.from_numpy(numbers[:, 2].astype(np.int32).view(np.float32)).to(losses.device)
        return (losses * weights).mean()

    def _excluded(
        self, numbers: NDArray[np.int64], every_number: NDArray[np.int64], first: int, device: torch.device
    ) -> Tensor | None:
        if self.known is None:
            return None
        queries = self.pairs.pair_query[numbers[:, 1]]
        documents = every_number[:, 3:].T.ravel()  # all positives, then all first negatives, ...
        excluded = self.known.contains(queries[:, None], documents)
        own = np.arange(len(queries))
        excluded[own, first + own] = False
        return torch.from_numpy(excluded).to(device)

    def _tell(self, numbers: NDArray[np.int64], similarity: Tensor, losses: Tensor) -> None:
        step, seen = int(numbers[0, 0]), losses.float().cpu().numpy()
        if not np.isfinite(seen).all():
            raise TrainingError(
                f"step {step}: the loss is not a finite number; lower learning_rate, or set precision=fp32"
            )
        values = np.stack([similarity.float().cpu().numpy(), seen], axis=1)
        pair_ids, values = gather_numbers(np.ascontiguousarray(numbers[:, 1]), values)
        self.observer(step, pair_ids, values[:, 0], values[:, 1])


def _at_least_float32(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))
