"""Wrap a loss of sentence-transformers so that it reports what methods observe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from opera.core.errors import TrainingError
from opera.core.processes import process_count, process_index
from opera.retrieval.device import gather_columns, gather_values
from opera.training.loss import bare_model, p_values
from opera.training.loss_readers import Changes, LossReader, Seen
from opera.training.sampler import Observations
from opera.training.trainer_batches import TrainerBatches, batches_with
from opera.training.weighable_losses import chain_of


class ObservedLoss(nn.Module):
    """Computes the user's loss, and reports the score, the loss and the p-value of each pair.

    The score is the cosine of a dense model, the product or cosine of a sparse model, the loss's
    own score of a multi-vector model and the logit of a cross-encoder. The loss is InfoNCE over
    the documents that the user's loss compares, or the binary cross-entropy of the pair.

    The label column holds pair ids; the user's loss gets the user's labels. After training, and in
    an evaluation, the wrapper calls only the user's loss.

    Args:
        data_sets: hold the weights of each batch, and receive the observations.
        model: the model that trains.
        reader: reads the user's loss.

    Attributes:
        ended: whether the training is over.
        masks: whether OPERA excludes known positives from the negatives of their queries.
        temperature: of the reported InfoNCE.
        shares_with_positives: of each batch, the fraction of rows that the loss compared with a
            known positive.
    """

    def __init__(
        self, data_sets: Sequence[TrainerBatches], model: nn.Module, reader: LossReader
    ) -> None:
        super().__init__()
        self.reader, self.masks, self.temperature = reader, reader.masks, reader.temperature
        self.shares_with_positives = list[float]()
        self.data_sets, self.ended = data_sets, False
        self.model, self.loss = model, reader.loss  # if distributed, the trainer replaces the model
        # whether the loss compares queries with the documents of all processes
        self.across = any(
            getattr(inner, "gather_across_devices", False) for inner in chain_of(reader.loss)
        )

    def forward(self, sentence_features: Iterable[Any], labels: Any, **options: Any) -> Any:
        """Return what the user's loss returns; a cross-encoder's trainer passes ``options``.

        Raises:
            TrainingError: if the method did not sample the batch, or the batch has no pair ids.
        """
        features, row_ids = list(sentence_features), labels
        is_training = torch.is_grad_enabled() and bare_model(self.model).training
        if self.ended or not is_training:
            return self.loss(features, labels, **options)
        if row_ids is None or row_ids.ndim != 1 or row_ids.is_floating_point():
            raise TrainingError(
                "PairPruning: the batch has no pair ids; pass "
                "train_dataset=pruning.dataset to the trainer"
            )
        batches, ids = batches_with(self.data_sets, row_ids.cpu().numpy())
        pair_of_row = batches.data_set.pair_of_row(ids)
        factors = torch.from_numpy(batches.batch(ids).weights[pair_of_row]).to(row_ids.device)
        labels = batches.data_set.labels(ids, row_ids.device)
        pair_ids = row_ids[: len(ids)]
        all_ids = gather_values(pair_ids) if self.across else pair_ids
        position = process_index() * len(ids) if self.across else 0
        marked = batches.known_positives(ids, all_ids.cpu().numpy(), position)
        known = torch.from_numpy(marked).to(pair_ids.device)
        changes = Changes(factors, known, self.across)
        with self.reader.watching(bare_model(self.model), changes) as seen:
            value = self.loss(features, labels, **options)
        # Scores are float32, even those of embeddings in half precision.
        with torch.no_grad(), torch.autocast(bare_model(self.model).device.type, enabled=False):
            observed = self._observations(batches, ids, seen, len(features), known)
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
        self, batches: TrainerBatches, ids: Any, seen: Seen, columns: int, known: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return score, loss and p-value of each pair ``[m]``.

        If OPERA can mask, the loss leaves out the ``known`` positives, bool ``[m, M]``. The p-value
        ranks a document among this process's positives that the loss scored and that are
        comparable.
        """
        rows, excluded = len(ids), known if self.masks else None
        scored = self.reader.scored(seen, rows, columns)
        if not self.masks:
            compared = known if scored is None else known & scored.to(known.device)
            self.shares_with_positives.append(float(compared.any(1).float().mean()))
        of_positives = None if scored is None else scored[:, :rows].numpy()
        marked = batches.not_comparable(ids, of_positives)
        incomparable, observed = torch.from_numpy(marked).to(known.device), []
        for block, scores, losses in self.reader.row_losses(
            seen, rows, columns, excluded, self.across
        ):
            p = p_values(scores, incomparable[block], block.start)
            observed.append((scores[:, block].diagonal(), losses, p))
        similarity, losses, p = (torch.cat(values) for values in zip(*observed, strict=True))
        return similarity, losses, p
