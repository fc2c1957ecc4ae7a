"""How a trainer reads its batches: what decides the lag, and how many batches the schedule spans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers, MultiDatasetBatchSamplers

from opera.core.errors import SettingError
from opera.core.terminal import shown

DEFAULT_PREFETCH = 2
"""Batches that each worker of torch's loader reads ahead."""


@dataclass(frozen=True)
class Timetable:
    """What of a trainer's arguments decides when batches are read, and how many.

    Attributes:
        accumulation: batches per optimizer step, which the trainer fetches before it trains on the first.
        read_ahead: batches that the loader's workers read ahead.
        epochs: passes, where ``max_steps`` does not decide.
        max_steps: optimizer steps, or -1.
        round_robin: whether several data sets take turns, until the smallest is used up.
        skips: whether a resumed training reads the batches of its epoch again and skips those that were trained.
        known: whether they were read from a trainer's arguments.
    """

    accumulation: int = 1
    read_ahead: int = 0
    epochs: float = 1.0
    max_steps: int = -1
    round_robin: bool = False
    skips: bool = True
    known: bool = False

    @classmethod
    def of(cls, args: Any) -> Timetable:
        """Read a trainer's arguments.

        Raises:
            SettingError: for those under which batches reach the loss in an order that a sampler cannot know.
        """
        if not isinstance(args, SentenceTransformerTrainingArguments):
            raise SettingError(
                f"args: must be SentenceTransformerTrainingArguments, got {shown(args)}"
            )
        _refuse(args)
        prefetched = args.dataloader_prefetch_factor or DEFAULT_PREFETCH
        return cls(
            accumulation=args.gradient_accumulation_steps,
            read_ahead=args.dataloader_num_workers * prefetched,
            epochs=args.num_train_epochs,
            max_steps=args.max_steps,
            round_robin=args.multi_dataset_batch_sampler == MultiDatasetBatchSamplers.ROUND_ROBIN,
            skips=not args.ignore_data_skip,
            known=True,
        )

    def lag(self, processes: int) -> int:
        """Draws between an observation and the first draw that uses it.

        When the first batch of an optimizer step is trained, accelerate has read the batch after that step, and the
        loader's workers those that they hold. Each is one draw in every process.
        """
        return processes * (self.accumulation + 1 + self.read_ahead)

    def batches(self, per_epoch: int) -> int:
        """Batches per process in the whole training, of ``per_epoch`` in an epoch."""
        updates = max(1, math.ceil(per_epoch / self.accumulation))
        steps = self.max_steps if self.max_steps > 0 else math.ceil(self.epochs * updates)
        epochs, left = divmod(steps, updates)
        return epochs * per_epoch + min(left * self.accumulation, per_epoch)

    def skipped(self, trained_steps: int, per_epoch: int) -> int:
        """Batches per process that a trainer, resumed after ``trained_steps``, reads again in its epoch and skips."""
        updates = max(1, math.ceil(per_epoch / self.accumulation))
        return trained_steps % updates * self.accumulation if self.skips else 0

    def draws(self, lengths: list[int], own: int, processes: int) -> int:
        """Draws from one of several data sets in the whole training.

        Args:
            lengths: batches per epoch of each data set, over all processes.
            own: those of this one.
            processes: how many processes train.
        """
        taken = [min(lengths)] * len(lengths) if self.round_robin else lengths
        own = min(lengths) if self.round_robin else own
        total = sum(taken)
        return max(1, math.ceil(self.batches(total // processes) * processes * own / total))

    def overrun(self, draws: int, sets: int, processes: int) -> tuple[int, str]:
        """Return how many draws of a data set call for a warning, and its reason.

        Where several data sets take turns at random, one may have more turns than its share of an epoch that is cut
        short: a standard deviation is at most the square root of that share, and three of them need no warning.
        """
        if not self.known:
            return draws, "args=args tells PairPruning how long the training is"
        if sets > 1 and not self.round_robin:
            return draws + math.ceil(3 * math.sqrt(draws * processes)), (
                "its turns among several data sets are random, and it had more than its share"
            )
        return draws, "the training is longer than its arguments say"


def refuse_other_sampler(args: Any, sampler: Any) -> None:
    """Refuse a training that was given another batch sampler, or our sampler with another data set.

    Args:
        args: the trainer's arguments, once it has asked for its batches and none were asked of ``sampler``.
        sampler: ``pruning.sampler``.

    Raises:
        SettingError: naming what is wrong.
    """
    given = args.batch_sampler
    if given is sampler:
        raise SettingError(
            "train_dataset: is another object than the dataset that PairPruning was given; give both the same"
        )
    name = f"BatchSamplers.{given.name}" if isinstance(given, BatchSamplers) else shown(given)
    raise SettingError(
        f"args.batch_sampler: is {name}, not pruning.sampler; set args.batch_sampler = pruning.sampler before training"
    )


def _refuse(args: Any) -> None:
    accelerator = args.accelerator_config
    for name, wrong, advice in (
        ("auto_find_batch_size", args.auto_find_batch_size, "give per_device_train_batch_size"),
        ("accelerator_config.split_batches", accelerator.split_batches, "leave it out"),
        ("accelerator_config.dispatch_batches", accelerator.dispatch_batches, "leave it out"),
    ):
        if wrong:
            raise SettingError(
                f"args.{name}={wrong}: batches would reach the loss otherwise than they were drawn; {advice}"
            )
    if args.n_gpu > 1:
        raise SettingError(
            f"args: {args.n_gpu} GPUs in one process would split each batch (torch's DataParallel); start the script "
            "with torchrun or accelerate launch, or show it one GPU (CUDA_VISIBLE_DEVICES=0)"
        )
