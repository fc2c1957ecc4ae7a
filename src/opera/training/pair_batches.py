"""The batches of a data set under a method, as a trainer of one's own reads them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformerTrainingArguments

from opera.core.arrays import IntArray
from opera.core.errors import SettingError, TrainingError
from opera.core.terminal import shown
from opera.encoder.embeddings import Vectors
from opera.training.pair_rows import PairRows
from opera.training.sampler import NotObservedError, PairSampler
from opera.training_set.documents import KnownPositives

ADVICE = (
    "the trainer's train_dataset must be the dataset that PairPruning was given, "
    "args.batch_sampler its sampler, and callbacks hold pruning.callback; make a PairPruning for "
    "each training, and evaluate on another object than the one that trains "
    "(dataset.select(range(len(dataset))))"
)
"""What to do where the trainer does not train on what was drawn."""


class Given(NamedTuple):
    """A batch that was given out and is not trained yet: a data set, and a step of its sampler."""

    source: PrunedSet
    step: int


class PrunedSet:
    """One data set that trains, and the batches that the trainer reads of it.

    An epoch has as many batches as without pruning, but all of them are full, and as many for each
    process.

    Attributes:
        rows: its pairs.
        known: the positives of each query.
        vectors: the untrained model's, of queries and documents, where the method starts from them.
        sampler: draws, from when training begins.
        length: batches per epoch, over all processes; 0 until a trainer asks for them.
        epoch_start: the first draw of the epoch.
        to_skip: batches of the epoch that a resumed trainer skips.
    """

    sampler: PairSampler
    drop_last = False
    length = batch_size = epoch_start = to_skip = 0

    def __init__(
        self, rows: PairRows, vectors: tuple[Vectors, Vectors] | None, waiting: deque[Given]
    ) -> None:
        self.rows, self.vectors, self._waiting = rows, vectors, waiting
        self.known = KnownPositives.of(rows.pairs)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        if not hasattr(self, "sampler"):
            raise SettingError(f"PairPruning: a training that it does not know of begins; {ADVICE}")
        # Several data sets begin an epoch together: what was not trained in the last one comes
        # again.
        for given in [given for given in self._waiting if given.source is self]:
            self._waiting.remove(given)
        skipped, self.to_skip = self.to_skip, 0
        self.epoch_start = self.sampler.trained_steps - skipped
        return self._epoch(skipped)

    def _epoch(self, skipped: int) -> Iterator[list[int]]:
        """Yield an epoch's batches: those that are skipped, then those not trained yet, then new
        ones."""
        yield from [[0] * self.batch_size] * skipped
        try:
            for step in islice(self.sampler.upcoming(), self.length - skipped):
                self._waiting.append(Given(self, step))
                yield self.rows.rows(self.sampler.pairs_of(step))
        except NotObservedError:
            raise TrainingError(
                f"PairPruning: batches of {self.rows.data.source} are read further ahead of "
                f"training than the lag of {self.sampler.lag} allows; {ADVICE}"
            ) from None

    def train(
        self,
        step: int,
        pair_ids: IntArray,
        similarity: NDArray[np.float32],
        loss: NDArray[np.float32],
        p: NDArray[np.float32],
    ) -> None:
        """Note that a batch was trained, and what was seen of it."""
        self.sampler.observe(step, pair_ids, similarity, loss, p)
        self.sampler.finish(step)

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs
        trained so far.
        """
        prefix = f"{self.rows.name}_" if self.rows.name else ""
        values = {**self.sampler.schedule, "coverage": float(self.sampler.trained.mean())}
        return {f"{prefix}{name}": value for name, value in values.items() if not math.isnan(value)}


def check_arguments(args: Any) -> None:
    """Refuse a trainer's arguments under which batches reach the loss otherwise than they are
    drawn.

    Raises:
        SettingError: naming the argument.
    """
    if not isinstance(args, SentenceTransformerTrainingArguments):
        raise SettingError(f"args: must be SentenceTransformerTrainingArguments, got {shown(args)}")
    accelerator = args.accelerator_config
    for name, wrong in (
        ("auto_find_batch_size", args.auto_find_batch_size),
        ("accelerator_config.split_batches", accelerator.split_batches),
        ("accelerator_config.dispatch_batches", accelerator.dispatch_batches),
    ):
        if wrong:
            raise SettingError(
                f"args.{name}={wrong}: batches would reach the loss otherwise than they were "
                "drawn; leave it out"
            )
    if args.n_gpu > 1:
        raise SettingError(
            f"args: {args.n_gpu} GPUs in one process would split each batch (torch's "
            "DataParallel); start the script with torchrun or accelerate launch, or show it one "
            "GPU (CUDA_VISIBLE_DEVICES=0)"
        )
