"""The batches that a trainer reads from a user's data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import SettingError, TrainingError
from opera.training.sampler import Batch, Observations, Sampler
from opera.training.user_pairs import UserPairs

LEAST_RANKED = 1 / 8
"""Smallest fraction of a batch to rank a document among; a rank among one or two says little."""
ADVICE_ONCE = (
    "create a PairPruning for each training, and evaluate on your data set, not on pruning.dataset"
)


class TrainerBatches:
    """The trainer's batch sampler for one data set: yields rows, and takes what the loss observes.

    An epoch has as many batches as without pruning. All batches are full, and each process has
    equally many. Pair ids are those of ``data_set.pairs``, from 0, except in
    :meth:`known_positives`.

    Attributes:
        data_set: the pairs.
        length: batches per epoch, over all processes; 0 until a trainer asks for batches.
        batch_size: pairs of a batch.
        epoch_start: the first step of the epoch.
    """

    def __init__(self, data_set: UserPairs) -> None:
        self.data_set = data_set
        self.drop_last = False  # accelerate reads it
        self.length = self.batch_size = self.epoch_start = self._to_skip = 0
        self._pair_sampler: Sampler | None = None
        self._trained_documents: NDArray[np.bool_] = np.zeros(len(data_set.data.corpus), dtype=bool)
        self._trained_copies: NDArray[np.bool_] = np.zeros(data_set.pairs.n_pairs, dtype=bool)

    def __len__(self) -> int:
        return self.length

    def begin(self, pair_sampler: Sampler) -> None:
        """Begin a training."""
        self._pair_sampler = pair_sampler

    @property
    def pair_sampler(self) -> Sampler:
        """Samples the pairs. accelerate would read an attribute ``sampler``.

        Raises:
            SettingError: if no training has begun.
        """
        if self._pair_sampler is None:
            raise SettingError(
                "PairPruning: a training or evaluation began without its callback; pass "
                f"callbacks=[pruning.callback] to the trainer; {ADVICE_ONCE}"
            )
        return self._pair_sampler

    def __iter__(self) -> Iterator[list[int]]:
        """Begin an epoch: yield the batches that a resumed trainer skips, then batches that it has
        read but not trained, then new batches. A skipped batch repeats row 0, because the trainer
        discards it."""
        # not a generator: a loader of several data sets calls this for all sets before it reads one
        skipped, self._to_skip = self._to_skip, 0
        self.epoch_start = self.pair_sampler.trained_steps - skipped
        steps = islice(self.pair_sampler.upcoming(), self.length - skipped)
        batches = (self.data_set.rows(self.pair_sampler.sampled[step]) for step in steps)
        return chain([[0] * self.batch_size] * skipped, batches)

    def resume(self, epoch_start: int, skips: bool) -> int:
        """Continue at the sampler's step, and return how many batches of the epoch to skip."""
        self._mark_trained(np.flatnonzero(self.pair_sampler.trained))
        self._to_skip = self.pair_sampler.trained_steps - epoch_start if skips else 0
        return self._to_skip

    def batch(self, pair_ids: IntArray) -> Batch:
        """Return the first untrained step that holds the pairs.

        Raises:
            TrainingError: if there is none.
        """
        for _, batch in sorted(self.pair_sampler.pending.items()):
            if np.array_equal(batch.pair_ids, pair_ids):
                return batch
        raise TrainingError(
            "the loss got a batch that the method did not sample; create a PairPruning for each "
            "training, pass train_dataset=pruning.dataset, callbacks=[pruning.callback] and "
            "args.batch_sampler = pruning.sampler to the trainer, and do not use "
            "auto_find_batch_size, split_batches, dispatch_batches or DataParallel"
        )

    def observe(self, observations: Observations) -> None:
        """Pass the observations of a batch to the sampler. Only the first visit of a pair gives a
        p-value: later the model has trained on the pair."""
        pair_ids, _, _, p = observations
        was_trained = self._trained_copies[self.data_set.copies[pair_ids]]
        first_p = np.where(was_trained, np.float32(np.nan), p)
        self.pair_sampler.observe(self.batch(pair_ids).step, observations._replace(p=first_p))
        self._mark_trained(pair_ids)

    def _mark_trained(self, pair_ids: IntArray) -> None:
        """Record that the model trained on these pairs."""
        self._trained_copies[self.data_set.copies[pair_ids]] = True
        self._trained_documents[self.data_set.pairs.pair_doc[pair_ids]] = True

    def known_positives(
        self, pair_ids: IntArray, compared_ids: IntArray, position: int
    ) -> BoolArray:
        """Mark the known positives among the negatives of pairs ``[m]``: bool ``[m, B · c]``.

        Args:
            pair_ids: the pairs.
            compared_ids: int ``[B]``, the pairs whose documents the loss compares them with, by
                their ids among all data sets. Pairs of other data sets are not known positives.
            position: where ``pair_ids`` begin in ``compared_ids``.
        """
        data_set, own_ids = self.data_set, compared_ids - self.data_set.first_pair_id
        documents = np.take(data_set.documents, own_ids, axis=0, mode="clip")
        queries = data_set.pairs.pair_query[pair_ids]
        known = data_set.known.among_negatives(queries, documents, position)
        is_ours = (own_ids >= 0) & (own_ids < data_set.pairs.n_pairs)
        return known & np.tile(is_ours, documents.shape[1])

    def not_comparable(self, pair_ids: IntArray, scored: BoolArray | None = None) -> BoolArray:
        """Mark the positives of the batch that a pair's document must not be ranked among: bool
        ``[m, m]``.

        Three kinds are marked: the known positives of the query; if the pair's document was a
        positive in an earlier step, the documents that were not (and the reverse); and documents
        that the loss did not score. Training as a positive changes a document's scores, so
        documents before and after it cannot be compared. If fewer than :data:`LEAST_RANKED` of the
        batch remain, all are marked.

        Args:
            pair_ids: the pairs ``[m]``.
            scored: bool ``[m, m]``, the positives that the loss scored; ``None`` for all.
        """
        pairs = self.data_set.pairs
        documents = pairs.pair_doc[pair_ids]
        known = self.data_set.known.contains(pairs.pair_query[pair_ids][:, None], documents)
        trained = self._trained_documents[documents]
        marked: BoolArray = known | (trained[:, None] != trained)
        if scored is not None:
            marked |= ~scored
        marked[(~marked).sum(1) < LEAST_RANKED * len(trained)] = True
        return marked


def batches_with(
    data_sets: Sequence[TrainerBatches], pair_ids: IntArray
) -> tuple[TrainerBatches, IntArray]:
    """Return the data set of a batch, and the ids of its pairs in this data set.

    Args:
        data_sets: all data sets.
        pair_ids: the pairs of the batch, by their ids among all data sets, then -1 for each row
            with label 0.
    """
    firsts = [batches.data_set.first_pair_id for batches in data_sets]
    batches = data_sets[np.searchsorted(firsts, pair_ids[0], side="right") - 1]
    return batches, pair_ids[pair_ids >= 0] - batches.data_set.first_pair_id
