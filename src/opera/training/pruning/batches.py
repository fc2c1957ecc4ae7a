"""The batches of a data set under a method, and which of those given out are not trained yet."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler

from opera.core.errors import TrainingError
from opera.training.pruning.pair_rows import PairRows
from opera.training.pruning.scores import PairEmbeddings
from opera.training.sampler import NotObservedError, PairSampler

log = logging.getLogger("opera")

ELSEWHERE = (
    "evaluate on another object than the one that trains (dataset.select(range(len(dataset))))"
)
ADVICE = (
    "give PairPruning the trainer's arguments (args=args), which say how far it reads ahead and which prompts it adds, "
    "pass callbacks=[pruning.callback] where a training is resumed, train on the dataset that PairPruning was given, "
    f"and {ELSEWHERE}"
)
"""What to do where the trainer does not train on what was drawn."""


def read_again(place: str) -> TrainingError:
    """Return the error for a data set that something else than its training reads."""
    return TrainingError(
        f"PairPruning: {place} is read again, by a second training or an evaluation; make a PairPruning for each "
        f"training, and {ELSEWHERE}"
    )


class PrunedSet:
    """One data set that trains, and the sampler that draws from it.

    Attributes:
        rows: its pairs.
        embeddings: the untrained model's, where the method starts from them.
        length: batches per epoch, over all processes; 0 until a trainer asks for them.
        epoch_start: the first draw of the epoch.
        to_replay: draws of the epoch that a resumed trainer reads again, and skips.
        reader: what reads its batches, once something does.
    """

    reader: PrunedBatches | None = None

    def __init__(self, rows: PairRows, embeddings: PairEmbeddings | None) -> None:
        self.rows, self.embeddings = rows, embeddings
        self.length = self.epoch_start = self.to_replay = 0
        self._sampler: PairSampler | None = None

    @property
    def sampler(self) -> PairSampler:
        """The sampler; there is one once training has begun."""
        assert self._sampler is not None
        return self._sampler

    def begin(self, sampler: PairSampler, overrun: tuple[int, str]) -> None:
        """Draw with this sampler from now on; ``overrun`` is :meth:`Timetable.overrun`."""
        self._sampler, self.epoch_start, self.to_replay = sampler, 0, 0
        self._overrun = overrun
        self._trained, self._schedule = (
            np.zeros(self.rows.pairs.n_pairs, dtype=bool),
            dict[str, float](),
        )

    def epoch(self, given_out: GivenOut) -> Iterator[list[int]]:
        """Begin an epoch; return its batches: those to be skipped, then those not trained yet, then new ones.

        Several data sets begin theirs together: a batch of the epoch may not be drawn before it began.
        """
        given_out.forget(self)
        replayed, self.to_replay = self.to_replay, 0
        self.epoch_start = self.sampler.trained_steps - replayed
        return self._batches(given_out, replayed)

    def _batches(self, given_out: GivenOut, replayed: int) -> Iterator[list[int]]:
        sampler = self.sampler
        if replayed:
            drawn = np.concatenate(sampler.drawn).reshape(-1, sampler.batch_size)
            yield from (
                self.rows.rows(pair_ids)
                for pair_ids in drawn[self.epoch_start : sampler.trained_steps]
            )
        try:
            for step in islice(sampler.upcoming(), self.length - replayed):
                given_out.add(self, step)
                yield self.rows.rows(sampler.pairs_of(step))
        except NotObservedError:
            raise TrainingError(
                f"PairPruning: batches of {self.rows.place} are read further ahead of training than the lag of "
                f"{sampler.lag} allows; {ADVICE}"
            ) from None

    def train(
        self,
        step: int,
        pair_ids: NDArray[np.int64],
        similarity: NDArray[np.float32],
        loss: NDArray[np.float32],
    ) -> None:
        """Note that a batch was trained, and what was seen of it."""
        enough, reason = self._overrun
        if step == enough:
            log.warning(
                "warning: PairPruning: %s: the schedule of %s was planned for %d batches, which are trained, and keeps "
                "its last values from now on; %s",
                *(
                    self.rows.place,
                    self.sampler.method.name,
                    self.sampler.method.plan.max_steps,
                    reason,
                ),
            )
        self.sampler.observe(step, pair_ids, similarity, loss)
        self._schedule = self.sampler.finish(step)
        self._trained[pair_ids] = True

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs trained so far."""
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
        """Restore what :meth:`state_dict` returned.

        Args:
            state: what it returned.
            skips: whether the trainer reads the batches of its epoch again, to skip those that were trained.

        Returns:
            How many it will skip.

        Raises:
            TrainingError: if it belongs to other pairs.
        """
        self.sampler.load_state_dict(state["sampler"])
        self.epoch_start = int(state["epoch_start"])
        drawn = np.concatenate(self.sampler.drawn)[
            : self.sampler.trained_steps * self.sampler.batch_size
        ]
        self._trained[drawn] = True
        self._schedule = {name: float(value) for name, value in state.get("schedule", {}).items()}
        self.to_replay = self.sampler.trained_steps - self.epoch_start if skips else 0
        return self.to_replay


@dataclass(frozen=True)
class Given:
    """A batch of one process that was given out and is not trained yet."""

    source: PrunedSet
    step: int

    @property
    def pair_ids(self) -> NDArray[np.int64]:
        """Its pairs, int64 ``[m]``."""
        return np.asarray(self.source.sampler.pairs_of(self.step), dtype=np.int64)

    @property
    def weights(self) -> NDArray[np.float32]:
        """Their weights, float32 ``[m]``."""
        return self.source.sampler.batch_at(self.step, 0).weights


class GivenOut:
    """The batches that were given out and are not trained yet, of all data sets, in their order.

    Every process iterates all batches and trains the one of its own place: of W in a row, process r trains the r-th.
    """

    def __init__(self) -> None:
        self._waiting: deque[Given] = deque()

    def add(self, source: PrunedSet, step: int) -> None:
        """Note a batch that is given out now."""
        self._waiting.append(Given(source, step))

    def forget(self, source: PrunedSet) -> None:
        """Leave out the batches of a data set: they were not trained in the epoch that is over, and come again."""
        self._waiting = deque(given for given in self._waiting if given.source is not source)

    def take(self, processes: int) -> list[Given]:
        """Return the next batch of each process.

        Raises:
            TrainingError: if none was given out.
        """
        if len(self._waiting) < processes:
            raise TrainingError(
                "PairPruning: the loss got a batch that was not drawn: the trainer's train_dataset must be the dataset "
                "that PairPruning was given, args.batch_sampler its sampler, and each training needs a PairPruning of "
                "its own"
            )
        return [self._waiting.popleft() for _ in range(processes)]


class PrunedBatches(DefaultBatchSampler):  # type: ignore[misc]
    """The batch sampler of one data set, for sentence-transformers' trainer.

    An epoch has as many batches as without pruning, but all of them are full, and as many for each process.

    Args:
        source: the data set.
        given_out: where batches are noted as they are given out.
        begin: called before the first batch is drawn.
        processes: how many processes train.
        dataset: the rows; with the other arguments, what the trainer passes to any batch sampler.
    """

    def __init__(
        self,
        source: PrunedSet,
        given_out: GivenOut,
        begin: Callable[[], None],
        processes: int,
        dataset: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.source, self.given_out, self.begin = source, given_out, begin
        whole = self.batch_size * processes
        steps = len(dataset) // whole if self.drop_last else math.ceil(len(dataset) / whole)
        source.length = steps * processes

    def __len__(self) -> int:
        return self.source.length

    def __iter__(self) -> Iterator[list[int]]:
        if self.source.reader not in (
            None,
            self,
        ):  # an evaluation before training asks for batches of its own
            raise read_again(self.source.rows.place)
        self.source.reader = self
        self.begin()
        if self.epoch > 0 and self.source.sampler.next_step == 0:
            raise TrainingError(
                f"PairPruning: the training resumes in epoch {self.epoch + 1} and nothing was drawn yet; pass "
                "callbacks=[pruning.callback] to the trainer, from the first start on"
            )
        return self.source.epoch(self.given_out)
