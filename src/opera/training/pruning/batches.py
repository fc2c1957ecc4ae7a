"""The batches of a data set under a method, when a trainer reads them, and which of those given out
are not trained.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler, MultiDatasetBatchSamplers

from opera.core.arrays import IntArray
from opera.core.errors import SettingError, TrainingError
from opera.core.terminal import shown
from opera.training.pruning.pair_rows import PairEmbeddings, PairRows
from opera.training.sampler import NotObservedError, PairSampler

log = logging.getLogger("opera")

DEFAULT_PREFETCH = 2
"""Batches that each worker of torch's loader reads ahead."""

ELSEWHERE = (
    "evaluate on another object than the one that trains (dataset.select(range(len(dataset))))"
)
ADVICE = (
    "give PairPruning the trainer's arguments (args=args), which say how far it reads ahead and "
    "which prompts it adds, "
    "pass callbacks=[pruning.callback] where a training is resumed, train on the dataset that "
    "PairPruning was given, "
    f"and {ELSEWHERE}"
)
"""What to do where the trainer does not train on what was drawn."""


@dataclass(frozen=True)
class Timetable:
    """What of a trainer's arguments decides when batches are read, and how many.

    Attributes:
        accumulation: batches per optimizer step, which the trainer fetches before it trains on the
            first.
        read_ahead: batches that the loader's workers read ahead.
        epochs: passes, where ``max_steps`` does not decide.
        max_steps: optimizer steps, or -1.
        round_robin: whether several data sets take turns, until the smallest is used up.
        skips: whether a resumed training reads the batches of its epoch again and skips those that
            were trained.
    """

    accumulation: int = 1
    read_ahead: int = 0
    epochs: float = 1.0
    max_steps: int = -1
    round_robin: bool = False
    skips: bool = True

    @classmethod
    def of(cls, args: Any) -> Timetable:
        """Read a trainer's arguments.

        Raises:
            SettingError: for those under which batches reach the loss in an order that a sampler
                cannot know.
        """
        if not isinstance(args, SentenceTransformerTrainingArguments):
            raise SettingError(
                f"args: must be SentenceTransformerTrainingArguments, got {shown(args)}"
            )
        accelerator = args.accelerator_config
        for name, wrong, advice in (
            ("auto_find_batch_size", args.auto_find_batch_size, "give per_device_train_batch_size"),
            ("accelerator_config.split_batches", accelerator.split_batches, "leave it out"),
            ("accelerator_config.dispatch_batches", accelerator.dispatch_batches, "leave it out"),
        ):
            if wrong:
                raise SettingError(
                    f"args.{name}={wrong}: batches would reach the loss otherwise than they were "
                    f"drawn; {advice}"
                )
        if args.n_gpu > 1:
            raise SettingError(
                f"args: {args.n_gpu} GPUs in one process would split each batch (torch's "
                f"DataParallel); start the "
                "script with torchrun or accelerate launch, or show it one GPU "
                "(CUDA_VISIBLE_DEVICES=0)"
            )
        prefetched = args.dataloader_prefetch_factor or DEFAULT_PREFETCH
        return cls(
            accumulation=args.gradient_accumulation_steps,
            read_ahead=args.dataloader_num_workers * prefetched,
            epochs=args.num_train_epochs,
            max_steps=args.max_steps,
            round_robin=args.multi_dataset_batch_sampler == MultiDatasetBatchSamplers.ROUND_ROBIN,
            skips=not args.ignore_data_skip,
        )

    def lag(self, processes: int) -> int:
        """Draws between an observation and the first draw that uses it.

        When the first batch of an optimizer step is trained, accelerate has read the batch after
        that step, and the loader's workers those that they hold. Each is one draw in every process.
        """
        return processes * (self.accumulation + 1 + self.read_ahead)

    def updates(self, per_epoch: int) -> int:
        """Optimizer steps per epoch of ``per_epoch`` batches per process."""
        return max(1, math.ceil(per_epoch / self.accumulation))

    def skipped(self, trained_steps: int, per_epoch: int) -> int:
        """Batches per process that a trainer, resumed after ``trained_steps``, reads again in its
        epoch and skips.
        """
        return trained_steps % self.updates(per_epoch) * self.accumulation if self.skips else 0

    def draws(self, lengths: list[int], own: int, processes: int) -> int:
        """Draws from one of several data sets in the whole training.

        Args:
            lengths: batches per epoch of each data set, over all processes.
            own: those of this one.
            processes: how many processes train.
        """
        if self.round_robin:
            own, lengths = min(lengths), [min(lengths)] * len(lengths)
        total = sum(lengths)
        per_epoch = total // processes
        updates = self.updates(per_epoch)
        steps = self.max_steps if self.max_steps > 0 else math.ceil(self.epochs * updates)
        epochs, left = divmod(steps, updates)
        batches = epochs * per_epoch + min(left * self.accumulation, per_epoch)
        return max(1, math.ceil(batches * processes * own / total))


class PrunedSet:
    """One data set that trains, and the sampler that draws from it.

    Attributes:
        rows: its pairs.
        embeddings: the untrained model's, where the method starts from them.
        sampler: draws, once training has begun.
        length: batches per epoch, over all processes; 0 until a trainer asks for them.
        epoch_start: the first draw of the epoch.
        to_replay: draws of the epoch that a resumed trainer reads again, and skips.
        random_turns: whether it takes turns with others at random, so that it may have some more
            than its share.
        reader: what reads its batches, once something does.
    """

    sampler: PairSampler
    reader: PrunedBatches | None = None
    length = epoch_start = to_replay = 0
    random_turns = False

    def __init__(self, rows: PairRows, embeddings: PairEmbeddings | None) -> None:
        self.rows, self.embeddings = rows, embeddings
        self._trained = np.zeros(rows.pairs.n_pairs, dtype=bool)
        self._schedule: dict[str, float] = {}

    def batches(self, waiting: deque[Given], replayed: int) -> Iterator[list[int]]:
        """Yield an epoch's batches: those ``replayed``, then those not trained yet, then new
        ones.
        """
        sampler = self.sampler
        if replayed:
            drawn = np.concatenate(sampler.drawn).reshape(-1, sampler.batch_size)
            for pair_ids in drawn[self.epoch_start : sampler.trained_steps]:
                yield self.rows.rows(pair_ids)
        try:
            for step in islice(sampler.upcoming(), self.length - replayed):
                waiting.append(Given(self, step))
                yield self.rows.rows(sampler.pairs_of(step))
        except NotObservedError:
            raise TrainingError(
                f"PairPruning: batches of {self.rows.place} are read further ahead of training "
                f"than the lag of "
                f"{sampler.lag} allows; {ADVICE}"
            ) from None

    def train(
        self,
        step: int,
        pair_ids: IntArray,
        similarity: NDArray[np.float32],
        loss: NDArray[np.float32],
    ) -> None:
        """Note that a batch was trained, and what was seen of it."""
        planned = self.sampler.method.plan.max_steps
        if step == planned and not self.random_turns:
            log.warning(
                f"warning: PairPruning: {self.rows.place}: the schedule of "
                f"{self.sampler.method.name} was planned for "
                f"{planned} batches, which are trained, and keeps its last values from now on; "
                f"args=args tells "
                "PairPruning how long the training is"
            )
        self.sampler.observe(step, pair_ids, similarity, loss)
        self._schedule = self.sampler.finish(step)
        self._trained[pair_ids] = True

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs
        trained so far.
        """
        prefix = f"{self.rows.name}_" if self.rows.name else ""
        values = {**self._schedule, "coverage": float(self._trained.mean())}
        return {f"{prefix}{name}": value for name, value in values.items() if not math.isnan(value)}

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state, where the epoch began, and the schedule of the last step."""
        return {
            "sampler": self.sampler.state_dict(),
            "epoch_start": self.epoch_start,
            "schedule": self._schedule,
        }

    def load_state_dict(self, state: dict[str, Any], skips: bool) -> int:
        """Restore what :meth:`state_dict` returned, and return how many batches the trainer will
        skip.

        ``skips`` says whether it reads the batches of its epoch again, to skip those that were
        trained.
        """
        self.sampler.load_state_dict(state["sampler"])
        trained, self.epoch_start = self.sampler.trained_steps, int(state["epoch_start"])
        drawn = np.concatenate(self.sampler.drawn)
        self._trained[drawn[: trained * self.sampler.batch_size]] = True
        self._schedule = {name: float(value) for name, value in state.get("schedule", {}).items()}
        self.to_replay = trained - self.epoch_start if skips else 0
        return self.to_replay


class Given(NamedTuple):
    """A batch that was given out and is not trained yet: a data set, and a step of its sampler."""

    source: PrunedSet
    step: int


class PrunedBatches(DefaultBatchSampler):  # type: ignore[misc]
    """The batch sampler of one data set, for sentence-transformers' trainer.

    An epoch has as many batches as without pruning, but all of them are full, and as many for each
    process.

    Args:
        source: the data set.
        waiting: where batches are noted as they are given out.
        begin: called before the first batch is drawn.
        processes: how many processes train.
        dataset: the rows; with the other arguments, what the trainer passes to any batch sampler.
    """

    def __init__(
        self,
        source: PrunedSet,
        waiting: deque[Given],
        begin: Callable[[], None],
        processes: int,
        dataset: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.source, self.waiting, self.begin = source, waiting, begin
        whole = self.batch_size * processes
        steps = len(dataset) // whole if self.drop_last else math.ceil(len(dataset) / whole)
        source.length = steps * processes

    def __len__(self) -> int:
        return self.source.length

    def __iter__(self) -> Iterator[list[int]]:
        source = self.source
        if source.reader not in (None, self):  # an evaluation before training asks for its own
            raise read_again(source.rows.place)
        source.reader = self
        self.begin()
        sampler = source.sampler
        if self.epoch > 0 and sampler.next_step == 0:
            raise TrainingError(
                f"PairPruning: the training resumes in epoch {self.epoch + 1} and nothing was "
                f"drawn yet; pass "
                "callbacks=[pruning.callback] to the trainer, from the first start on"
            )
        # Several data sets begin an epoch together: what was not trained in the last one comes
        # again.
        for given in [given for given in self.waiting if given.source is source]:
            self.waiting.remove(given)
        replayed, source.to_replay = source.to_replay, 0
        source.epoch_start = sampler.trained_steps - replayed
        return source.batches(self.waiting, replayed)


def read_again(place: str) -> TrainingError:
    """Return the error for a data set that something else than its training reads."""
    return TrainingError(
        f"PairPruning: {place} is read again, by a second training or an evaluation; make a "
        f"PairPruning for each "
        f"training, and {ELSEWHERE}"
    )
