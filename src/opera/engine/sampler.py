"""From methods to batches: which pairs and negatives each step trains on, and which observations a
method knows by then.

The lag is stated, not an accident of prefetching: the draw of step t uses the observations of steps
up to t - lag, whatever was observed since, and fails where one of them is missing. ``opera train``
has lag 1; in a script of one's own it follows from how far the trainer reads ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import TrainingError
from opera.data.pairs import TrainingPairs
from opera.labels.visits import FirstVisits
from opera.methods import Draw, Method, Plan
from opera.training_set.negatives import Negatives
from opera.training_set.quotas import Quotas

ADVICE = "lower learning_rate, or set precision=fp32"
DRAWN = ("pair_ids", "doc_rows", "weights", "schedule")
OBSERVED = ("pair_ids", "similarity", "loss", "p")


class NotFiniteError(TrainingError):
    """Something of a step is not a finite number.

    Args:
        what: what it is, such as ``"the loss"``.
        step: the step, from 0.
        pair_ids: ``[m]``, the pairs of the batch.
        finite: bool ``[m]``, those whose own value is a number; ``None`` where only the batch has
            one.
    """

    def __init__(
        self, what: str, step: int, pair_ids: NDArray[Any], finite: BoolArray | None = None
    ) -> None:
        self.what, self.step, self.pair_ids, self.finite = what, step, pair_ids, finite
        super().__init__(f"step {step}: {what} is not a finite number; {ADVICE}")


@dataclass(frozen=True)
class Batch:
    """What all processes train on together in one forward pass, or a whole step.

    Attributes:
        step: the draw that it is part of, from 0.
        pair_ids: int64 ``[B]``, in the order of the processes.
        doc_rows: int64 ``[B, 1 + negatives]``, corpus rows: the positive, then the negatives.
        weights: float32 ``[B]``, what the loss of each pair is multiplied by.
        queries: int ``[B]``, the training query of each pair.
        sets: int64 ``[B]``, the number of each pair's data set.
        schedule: the method's when the step was drawn.
        local: the part that this process computes.
    """

    step: int
    pair_ids: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    queries: IntArray
    sets: NDArray[np.int64]
    schedule: Mapping[str, float]
    local: slice = field(default_factory=lambda: slice(None))


class SetDraws:
    """The draws from one data set.

    The method draws whole batches of its own. What a step does not take of them waits for the next.

    Args:
        method: draws the pairs.
        negatives: draws the explicit negatives; ``None`` for none.
        first_document: the corpus row of the set's first document.
    """

    def __init__(
        self, method: Method[Any], negatives: Negatives | None = None, first_document: int = 0
    ) -> None:
        self.method, self.negatives, self.first_document = method, negatives, first_document
        self._next_step = 0
        self._waiting = Draw.unweighted(np.empty(0, dtype=np.int64))

    def take(self, count: int) -> Draw:
        """Draw the next pairs, by their numbers within the set."""
        ids, weights = self._waiting.pair_ids, self._waiting.weights
        while len(ids) < count:
            drawn = self.method.draw(self._next_step)
            self._next_step += 1
            ids = np.concatenate([ids, drawn.pair_ids])
            weights = np.concatenate([weights, drawn.weights])
        self._waiting = Draw(ids[count:], weights[count:])
        return Draw(ids[:count], weights[:count])

    def documents(self, pair_ids: IntArray, count: int, seed: int, step: int) -> IntArray:
        """Return each pair's positive, then its negatives: int64 ``[m, 1 + count]``."""
        pairs = self.method.pairs
        columns = [pairs.pair_doc[pair_ids].astype(np.int64)[:, None]]
        if count and self.negatives is not None:
            columns.append(self.negatives.draw(pairs.pair_query[pair_ids], count, seed, step))
        return np.concatenate(columns, axis=1) + self.first_document

    def schedule(self) -> dict[str, float]:
        """The method's schedule at its last draw."""
        return self.method.schedule(max(0, self._next_step - 1))

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps."""
        return {
            "next_step": self._next_step,
            "ids": self._waiting.pair_ids,
            "weights": self._waiting.weights,
            "method": self.method.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._next_step = int(state["next_step"])
        self._waiting = Draw(np.array(state["ids"]), np.array(state["weights"]))
        self.method.load_state_dict(state.get("method", {}))


class PairSampler:
    """Draws one step at a time and cuts it into the batches of this process.

    Its length is fixed from the start, since trainers count steps once. Every process draws the
    same steps from the same scores and takes its part of each batch. The pair ids of a batch say
    which part of which step it is: a batch that is trained is the next of the steps that are drawn.

    Args:
        sets: the draws from each data set, in the order of their pairs; one for a single data set.
        pairs: the training pairs of all sets.
        plan: steps and pairs per step.
        batch_size: pairs per batch and process.
        quotas: how many pairs each of several sets gives to a step; ``None`` for one set.
        n_negatives: explicit negatives per pair.
        lag: steps between an observation and the first draw that uses it.
        rank: which process this is.
        world_size: how many there are.
        pair_weights: float ``[N]``, what the loss of each pair is multiplied by, beside the draw's
            weight; ``None``: 1.
        confirmed: bool ``[N]``, the pairs that somebody has decided to be correct; ``None``: none.
        removed_excess: of each set, see :class:`opera.labels.visits.FirstVisits`.

    Attributes:
        trained_steps: how many steps are trained.
        drawn: int32 ``[B]`` per step, the pair ids drawn so far.
        trained: bool ``[N]``, the pairs trained so far.
        schedule: the method's when the step trained last was drawn.
        mean_loss: of the step trained last.
        visits: what the first visit of each pair found, up to the last step that a draw has used.
    """

    def __init__(
        self,
        sets: Sequence[SetDraws],
        pairs: TrainingPairs,
        plan: Plan,
        batch_size: int,
        *,
        quotas: Quotas | None = None,
        n_negatives: int = 0,
        lag: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pair_weights: FloatArray | None = None,
        confirmed: BoolArray | None = None,
        removed_excess: Sequence[int] | None = None,
    ) -> None:
        self.sets, self.pairs, self.plan, self.quotas = list(sets), pairs, plan, quotas
        self.n_negatives, self.batch_size, self.lag = n_negatives, batch_size, lag
        self.rank, self.world_size = rank, world_size
        self.pair_weights = pair_weights
        self.trained_steps = 0
        self.drawn: list[NDArray[np.int32]] = []
        self.trained = np.zeros(pairs.n_pairs, dtype=bool)
        self.schedule: Mapping[str, float] = {}
        self.mean_loss = math.nan
        sizes = [draws.method.pairs.n_pairs for draws in sets]
        self.visits = FirstVisits.none(pairs.n_pairs, np.cumsum([0, *sizes]), confirmed)
        if removed_excess is not None:
            self.visits.removed_excess = list(removed_excess)
        for number, draws in enumerate(sets):
            draws.method.visits = self.visits.part(number)
        self._pending: dict[int, Batch] = {}
        self._observed: dict[int, list[NDArray[Any]]] = {}

    @property
    def kept(self) -> BoolArray:
        """The pairs that can be drawn at all: bool ``[N]``."""
        return np.concatenate([draws.method.kept for draws in self.sets])

    @property
    def _of_all_processes(self) -> int:
        """Pairs per batch, over all processes."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        return self.plan.max_steps * self.plan.batch_size // self._of_all_processes

    def __iter__(self) -> Iterator[Batch]:
        """Yield the part of each batch that this process computes."""
        for step in self.upcoming(self.plan.max_steps):
            for start in range(0, self.plan.batch_size, self._of_all_processes):
                start += self.rank * self.batch_size
                yield self._part(step, start, start + self.batch_size)

    def upcoming(self, end: float = math.inf) -> Iterator[int]:
        """Yield the steps to train on, drawn: first those drawn before and not trained, then new
        ones.

        Without an ``end`` to stop before they go on, with the schedule's last values after
        ``max_steps``.
        """
        yield from (step for step in sorted(self._pending) if step < end)
        while (step := len(self.drawn)) < end:
            self.draw_step(step)
            yield step

    def draw_step(self, step: int) -> Batch:
        """Give the methods what was observed at ``step - lag``, then draw the whole step. Steps are
        drawn in order.

        Raises:
            TrainingError: if that step is not observed in full.
        """
        if step >= self.lag:
            self._apply(step - self.lag)
        size = self.plan.batch_size
        counts = [size] if self.quotas is None else self.quotas.of_step(step, size).tolist()
        ids, rows, weights = [], [], []
        firsts = self.visits.first_pairs.tolist()
        for draws, count, first in zip(self.sets, counts, firsts, strict=False):
            if count == 0:
                continue
            taken = draws.take(count)
            ids.append(taken.pair_ids + first)
            weights.append(taken.weights)
            rows.append(draws.documents(taken.pair_ids, self.n_negatives, self.plan.seed, step))
        pair_ids, doc_rows, factors = (np.concatenate(parts) for parts in (ids, rows, weights))
        if self.pair_weights is not None:
            factors = (factors * self.pair_weights[pair_ids]).astype(np.float32)
        batch = self._batch(step, pair_ids, doc_rows, factors, self._schedule())
        self._pending[step] = batch
        self.drawn.append(pair_ids.astype(np.int32))
        return batch

    def batch(self, pair_ids: IntArray) -> Batch:
        """Return the batch of all processes that this process's part, ``[m]``, belongs to: the
        first that is not trained.

        Raises:
            TrainingError: if these pairs were not drawn.
        """
        local = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        step, start = self._find(pair_ids, local.start, self._of_all_processes)
        first = start - local.start
        return replace(self._part(step, first, first + self._of_all_processes), local=local)

    def observe(
        self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray, p: FloatArray
    ) -> None:
        """Store what the forward pass gave for one batch of a process, ``[m]``; draws use it from
        the batch's step + lag on. A step that is observed in full is trained.

        ``p`` is of :class:`opera.labels.visits.FirstVisits`.
        """
        step, _ = self._find(pair_ids, 0, self.batch_size)
        seen: list[NDArray[Any]] = [np.asarray(part) for part in (pair_ids, similarity, loss, p)]
        if step in self._observed:
            seen = [np.concatenate(parts) for parts in zip(self._observed[step], seen, strict=True)]
        self._observed[step] = seen
        if len(seen[0]) == self.plan.batch_size:
            self.mean_loss = float(seen[2].mean(dtype=np.float64))
            batch = self._pending.pop(step)
            self.schedule = batch.schedule
            self.trained[batch.pair_ids] = True
            self.trained_steps += 1

    def times_drawn(self) -> NDArray[np.int64]:
        """Count how often each pair was drawn: int64 ``[N]``."""
        return np.bincount(
            np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]), minlength=self.pairs.n_pairs
        )

    def all_visits(self) -> FirstVisits:
        """Return what first visits found, in the steps that no draw has used yet too."""
        visits = self.visits.copy()
        for step in sorted(self._observed):
            pair_ids, _, _, p = self._observed[step]
            visits.see(step, pair_ids, p)
        return visits

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps: the methods', steps drawn and not trained,
        observations not applied."""
        return {
            "trained_steps": self.trained_steps,
            "fingerprint": self.pairs.fingerprint,
            "drawn": np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]),
            "trained": self.trained.copy(),
            "sets": {str(number): draws.state_dict() for number, draws in enumerate(self.sets)},
            "visits": self.visits.state_dict(),
            "schedule": self.schedule,
            "pending": {
                str(step): {name: getattr(batch, name) for name in DRAWN}
                for step, batch in self._pending.items()
            },
            "observed": {
                str(step): dict(zip(OBSERVED, seen, strict=True))
                for step, seen in self._observed.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it belongs to other training pairs.
        """
        if int(state["fingerprint"]) != self.pairs.fingerprint:
            raise TrainingError(
                "the checkpoint belongs to other training pairs than this run has now: embeddings "
                "computed again, on "
                "another device for example, may rank documents otherwise; start again with "
                "--overwrite"
            )
        self.trained_steps = int(state["trained_steps"])
        drawn = np.array(state["drawn"], dtype=np.int32)
        self.drawn = list(drawn.reshape(-1, self.plan.batch_size))
        self.trained = np.array(state["trained"], dtype=bool)
        self.schedule = _numbers(state.get("schedule", {}))
        for number, draws in enumerate(self.sets):
            draws.load_state_dict(state["sets"][str(number)])
        self.visits.load_state_dict(state["visits"])
        self._pending = {
            int(step): self._batch(
                int(step),
                parts["pair_ids"],
                parts["doc_rows"],
                parts["weights"],
                _numbers(parts.get("schedule", {})),
            )
            for step, parts in state.get("pending", {}).items()
        }
        self._observed = {
            int(step): [parts[name] for name in OBSERVED]
            for step, parts in state.get("observed", {}).items()
        }

    def _batch(
        self,
        step: int,
        pair_ids: NDArray[np.int64],
        doc_rows: NDArray[np.int64],
        weights: NDArray[np.float32],
        schedule: Mapping[str, float],
    ) -> Batch:
        queries, sets = self.pairs.pair_query[pair_ids], self.visits.set_of(pair_ids)
        return Batch(step, pair_ids, doc_rows, weights, queries, sets, schedule)

    def _part(self, step: int, start: int, end: int) -> Batch:
        """Return some rows of a step that is not trained."""
        batch, rows = self._pending[step], slice(start, end)
        arrays = ("pair_ids", "doc_rows", "weights", "queries", "sets")
        return replace(batch, **{name: getattr(batch, name)[rows] for name in arrays})

    def _schedule(self) -> dict[str, float]:
        """The schedule of the method; of several sets, names have the set's number behind them."""
        if self.quotas is None:
            return self.sets[0].schedule()
        return {
            f"{name}_{number}": value
            for number, draws in enumerate(self.sets, 1)
            for name, value in draws.schedule().items()
        }

    def _count_observed(self, step: int) -> int:
        return len(self._observed[step][0]) if step in self._observed else 0

    def _find(self, pair_ids: IntArray, offset: int, stride: int) -> tuple[int, int]:
        """Return the first step that is not trained and holds a batch of one process, ``[m]``, and
        the place of the batch in it: ``offset`` after what is observed, or strides more."""
        for step in sorted(self._pending):
            drawn, first = self._pending[step].pair_ids, self._count_observed(step)
            for start in range(first + offset, len(drawn), stride):
                if np.array_equal(drawn[start : start + len(pair_ids)], pair_ids):
                    return step, start
        raise TrainingError(
            "the loss got a batch that was not drawn: the trainer needs "
            "train_dataset=pruning.dataset, args.batch_sampler = pruning.sampler and "
            "callbacks=[pruning.callback], each training a PairPruning of its own, and no "
            "auto_find_batch_size, split_batches, dispatch_batches or DataParallel"
        )

    def _apply(self, step: int) -> None:
        """Give the methods the observations of a step."""
        if self._count_observed(step) != self.plan.batch_size:
            raise TrainingError(
                f"step {step} is not observed in full, and with lag={self.lag} a draw "
                "needs it: the loader reads further ahead of training than the lag allows"
            )
        pair_ids, similarity, loss, p = self._observed.pop(step)
        self.visits.see(step, pair_ids, p)
        numbers = self.visits.set_of(pair_ids)
        for number in np.unique(numbers).tolist():
            rows, first = numbers == number, self.visits.first_pairs[number]
            method = self.sets[number].method
            method.observe(pair_ids[rows] - first, similarity[rows], loss[rows])


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
