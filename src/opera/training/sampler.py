"""Sample the pairs and negatives of each step by a method, and cut them into batches.

The lag is fixed, so prefetching does not change the result. Step t uses the observations of steps
up to t - lag, never later ones, and fails if one is missing. ``opera train`` has lag 1; in other
scripts it depends on how far the trainer reads ahead.
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
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.labels.visits import FirstVisits
from opera.methods import Draw, Method, Plan
from opera.training.negatives import Negatives
from opera.training.quotas import Quotas

ADVICE_NOT_FINITE = "lower learning_rate, or set precision=fp32"
SAVED_OF_BATCH = ("pair_ids", "doc_rows", "weights", "queries", "sets", "schedule")
SAVED_OF_OBSERVATION = ("pair_ids", "similarity", "loss", "p")


def not_finite(quantity: str, step: int) -> TrainingError:
    """Return the error for a loss or gradient that is not finite; ``step`` counts from 0."""
    return TrainingError(f"step {step + 1}: {quantity} is not a finite number; {ADVICE_NOT_FINITE}")


@dataclass(frozen=True)
class Batch:
    """The pairs of one forward pass of all processes, or of a step.

    Attributes:
        step: the step that the batch belongs to, from 0.
        pair_ids: int64 ``[B]``, in rank order of the processes.
        doc_rows: int64 ``[B, 1 + negatives]``, corpus rows: the positive, then the negatives.
        weights: float32 ``[B]``, the factor on each pair's loss.
        queries: int ``[B]``, the training query of each pair.
        sets: int64 ``[B]``, the number of each pair's data set.
        schedule: the method's schedule at this step.
        local: the rows that this process computes.
    """

    step: int
    pair_ids: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    queries: IntArray
    sets: NDArray[np.int64]
    schedule: Mapping[str, float]
    local: slice = field(default_factory=lambda: slice(None))


class SetSampler:
    """Samples pairs from one data set.

    The method samples full batches. Pairs that a step does not need wait for the next step.

    Args:
        method: samples the pairs.
        negatives: samples the explicit negatives, if there are any.
        first_document: the corpus row of the set's first document.
    """

    def __init__(
        self, method: Method[Any], negatives: Negatives | None = None, first_document: int = 0
    ) -> None:
        self.method, self.negatives, self.first_document = method, negatives, first_document
        self._next_step = 0
        self._waiting = Draw.unweighted(np.empty(0, dtype=np.int64))

    def take(self, count: int) -> Draw:
        """Return the next pairs; their ids count from 0 within the set."""
        while len(self._waiting.pair_ids) < count:
            self._draw()
        ids, weights = self._waiting.pair_ids, self._waiting.weights
        self._waiting = Draw(ids[count:], weights[count:])
        return Draw(ids[:count], weights[:count])

    def _draw(self) -> None:
        """Let the method sample its next batch."""
        self._add(self.method.draw(self._next_step))
        self._next_step += 1

    def _add(self, draw: Draw) -> None:
        """Let more pairs wait."""
        waiting = self._waiting
        self._waiting = Draw(
            np.concatenate([waiting.pair_ids, draw.pair_ids]),
            np.concatenate([waiting.weights, draw.weights]),
        )

    def documents(self, pair_ids: IntArray, count: int, seed: int, step: int) -> IntArray:
        """Return each pair's positive, then its negatives: int64 ``[m, 1 + count]``."""
        pairs = self.method.pairs
        columns = [pairs.pair_doc[pair_ids].astype(np.int64)[:, None]]
        if count and self.negatives is not None:
            columns.append(self.negatives.draw(pairs.pair_query[pair_ids], count, seed, step))
        return np.concatenate(columns, axis=1) + self.first_document

    def schedule(self) -> dict[str, float]:
        """Return the method's schedule at its last draw."""
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
    """Samples a step at a time and cuts it into the batches of this process.

    Trainers read the length once, so it never changes. Every process samples the same
    steps from the same scores, and takes its part of each batch. The pair ids of a batch identify
    its step: the first sampled step that holds them and is not trained.

    Args:
        sets: a sampler per data set, in the order of the pairs.
        pairs: the training pairs of all sets.
        plan: steps and pairs per step.
        batch_size: pairs per batch and process.
        quotas: pairs per step and set, if there are several sets.
        n_negatives: explicit negatives per pair.
        lag: steps between an observation and the first step that uses it.
        rank: number of this process.
        world_size: number of processes.
        pair_weights: float ``[N]``, a factor on each pair's loss, next to the method's weight.
        visits: the first visits, none yet; by default those of one data set.

    Attributes:
        trained_steps: how many steps are trained.
        sampled: int32 ``[B]`` per step, the pair ids sampled so far.
        trained: bool ``[N]``, the pairs trained so far.
        schedule: the method's schedule at the last trained step.
        mean_loss: of the last trained step.
        visits: the first visits in the steps whose observations the methods have.
    """

    def __init__(
        self,
        sets: Sequence[SetSampler],
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
        visits: FirstVisits | None = None,
    ) -> None:
        self.sets, self.pairs, self.plan, self.quotas = list(sets), pairs, plan, quotas
        self.n_negatives, self.batch_size, self.lag = n_negatives, batch_size, lag
        self.rank, self.world_size = rank, world_size
        self.pair_weights, self._global_batch_size = pair_weights, batch_size * world_size
        self.trained_steps = 0
        self.sampled: list[NDArray[np.int32]] = []
        self.trained = np.zeros(pairs.n_pairs, dtype=bool)
        self.schedule: Mapping[str, float] = {}
        self.mean_loss = math.nan
        self.visits = FirstVisits.none(pairs.n_pairs) if visits is None else visits
        for number, one_set in enumerate(sets):
            one_set.method.visits = self.visits.part(number)
        self._pending: dict[int, Batch] = {}
        self._observed: dict[int, list[NDArray[Any]]] = {}

    @property
    def kept(self) -> BoolArray:
        """The pairs that the methods do not prune before training: bool ``[N]``."""
        return np.concatenate([one_set.method.kept for one_set in self.sets])

    def __len__(self) -> int:
        return self.plan.max_steps * self.plan.batch_size // self._global_batch_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the part of each batch that this process computes."""
        for step in self.upcoming(self.plan.max_steps):
            for start in range(0, self.plan.batch_size, self._global_batch_size):
                start += self.rank * self.batch_size
                yield self._part(step, start, start + self.batch_size)

    def upcoming(self, end: float = math.inf) -> Iterator[int]:
        """Yield sampled steps up to ``end``: first steps that are sampled but not trained, then new
        steps.

        Steps after ``max_steps`` use the schedule's last values.
        """
        yield from (step for step in sorted(self._pending) if step < end)
        while (step := len(self.sampled)) < end:
            self.sample_step(step)
            yield step

    def sample_step(self, step: int) -> Batch:
        """Pass the observations of ``step - lag`` to the methods, then sample the step.

        Call this with consecutive steps.

        Raises:
            TrainingError: if observations of ``step - lag`` are missing.
        """
        if step >= self.lag:
            self._apply(step - self.lag)
        size = self.plan.batch_size
        counts = [size] if self.quotas is None else self.quotas.of_step(step, size).tolist()
        ids, rows, weights = [], [], []
        firsts = self.visits.first_pairs.tolist()
        for one_set, count, first in zip(self.sets, counts, firsts, strict=False):
            if count == 0:
                continue
            draw = one_set.take(count)
            ids.append(draw.pair_ids + first)
            weights.append(draw.weights)
            rows.append(one_set.documents(draw.pair_ids, self.n_negatives, self.plan.seed, step))
        pair_ids, doc_rows, factors = (np.concatenate(parts) for parts in (ids, rows, weights))
        if len(ids) > 1 and size > self._global_batch_size:  # mix the sets in every part
            order = generator(self.plan.seed, "sampler.sets", step).permutation(size)
            pair_ids, doc_rows, factors = pair_ids[order], doc_rows[order], factors[order]
        if self.pair_weights is not None:
            factors = (factors * self.pair_weights[pair_ids]).astype(np.float32)
        queries, sets = self.pairs.pair_query[pair_ids], self.visits.set_of(pair_ids)
        batch = Batch(step, pair_ids, doc_rows, factors, queries, sets, self._schedule())
        self._pending[step] = batch
        self.sampled.append(pair_ids.astype(np.int32))
        return batch

    def batch(self, pair_ids: IntArray) -> Batch:
        """Return the first untrained batch of all processes whose local part is ``[m]`` pairs.

        Raises:
            TrainingError: if there is no such batch.
        """
        local = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        step, start = self._find(pair_ids, local.start, self._global_batch_size)
        first = start - local.start
        return replace(self._part(step, first, first + self._global_batch_size), local=local)

    def observe(
        self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray, p: FloatArray
    ) -> None:
        """Store the observations of a process's batch ``[m]``, for use ``lag`` steps later.

        A step counts as trained as soon as all its pairs are observed. ``p`` holds the p-values of
        :class:`opera.labels.visits.FirstVisits`.
        """
        step, _ = self._find(pair_ids, 0, self.batch_size)
        new: list[NDArray[Any]] = [np.asarray(part) for part in (pair_ids, similarity, loss, p)]
        if step in self._observed:
            new = [np.concatenate(parts) for parts in zip(self._observed[step], new, strict=True)]
        self._observed[step] = new
        if len(new[0]) == self.plan.batch_size:
            self.mean_loss = float(new[2].mean(dtype=np.float64))
            batch = self._pending.pop(step)
            self.schedule = batch.schedule
            self.trained[batch.pair_ids] = True
            self.trained_steps += 1

    def times_drawn(self) -> NDArray[np.int64]:
        """Count how often each pair was sampled: int64 ``[N]``."""
        return np.bincount(self.sampled_ids(), minlength=self.pairs.n_pairs)

    def sampled_ids(self) -> NDArray[np.int32]:
        """Return the pair ids of all sampled steps: int32 ``[steps · B]``."""
        return np.concatenate([np.empty(0, dtype=np.int32), *self.sampled])

    def all_visits(self) -> FirstVisits:
        """Return all first visits, including observations that no step has used yet."""
        visits = replace(self.visits, p=self.visits.p.copy(), step=self.visits.step.copy())
        for step in sorted(self._observed):
            pair_ids, _, _, p = self._observed[step]
            visits.record(step, pair_ids, p)
        return visits

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps, with untrained steps and unused observations."""
        return {
            "trained_steps": self.trained_steps,
            "fingerprint": self.pairs.fingerprint,
            "drawn": self.sampled_ids(),
            "trained": self.trained.copy(),
            "sets": {str(number): one.state_dict() for number, one in enumerate(self.sets)},
            "visits": self.visits.state_dict(),
            "schedule": self.schedule,
            "pending": {
                str(step): {name: getattr(batch, name) for name in SAVED_OF_BATCH}
                for step, batch in self._pending.items()
            },
            "observed": {
                str(step): dict(zip(SAVED_OF_OBSERVATION, values, strict=True))
                for step, values in self._observed.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it belongs to other training pairs.
        """
        if int(state["fingerprint"]) != self.pairs.fingerprint:
            raise TrainingError(
                "the checkpoint belongs to other training pairs, perhaps because embeddings from "
                "another device rank documents differently; start again with --overwrite"
            )
        self.trained_steps = int(state["trained_steps"])
        sampled = np.array(state["drawn"], dtype=np.int32)
        self.sampled = list(sampled.reshape(-1, self.plan.batch_size))
        self.trained = np.array(state["trained"], dtype=bool)
        self.schedule = state.get("schedule", {})
        for number, one_set in enumerate(self.sets):
            one_set.load_state_dict(state["sets"][str(number)])
        self.visits.load_state_dict(state["visits"])
        self._pending = {
            int(step): Batch(int(step), **{"schedule": {}, **parts})
            for step, parts in state.get("pending", {}).items()
        }
        self._observed = {
            int(step): [parts[name] for name in SAVED_OF_OBSERVATION]
            for step, parts in state.get("observed", {}).items()
        }

    def _part(self, step: int, start: int, end: int) -> Batch:
        """Return rows of an untrained step."""
        batch, rows = self._pending[step], slice(start, end)
        arrays = ("pair_ids", "doc_rows", "weights", "queries", "sets")
        return replace(batch, **{name: getattr(batch, name)[rows] for name in arrays})

    def _schedule(self) -> dict[str, float]:
        """Return the method's schedule; with several sets, the set's number follows each name."""
        if self.quotas is None:
            return self.sets[0].schedule()
        return {
            f"{name}_{number}": value
            for number, one_set in enumerate(self.sets, 1)
            for name, value in one_set.schedule().items()
        }

    def _find(self, pair_ids: IntArray, offset: int, stride: int) -> tuple[int, int]:
        """Return the first untrained step that holds pairs ``[m]``, and their first row in it.

        The pairs begin at the first row that is not observed yet, plus ``offset``, plus a multiple
        of ``stride``.
        """
        for step in sorted(self._pending):
            ids, first = self._pending[step].pair_ids, len(self._observed.get(step, [()])[0])
            for start in range(first + offset, len(ids), stride):
                if np.array_equal(ids[start : start + len(pair_ids)], pair_ids):
                    return step, start
        raise TrainingError(
            "the loss got a batch that the method did not sample; create a PairPruning for each "
            "training, pass train_dataset=pruning.dataset, callbacks=[pruning.callback] and "
            "args.batch_sampler = pruning.sampler to the trainer, and do not use "
            "auto_find_batch_size, split_batches, dispatch_batches or DataParallel"
        )

    def _apply(self, step: int) -> None:
        """Pass the observations of a step to the methods."""
        if step in self._pending or step not in self._observed:
            raise TrainingError(
                f"observations of step {step} are missing: the data loader reads further ahead "
                f"than lag={self.lag} allows"
            )
        pair_ids, similarity, loss, p = self._observed.pop(step)
        self.visits.record(step, pair_ids, p)
        numbers = self.visits.set_of(pair_ids)
        for number in np.unique(numbers).tolist():
            rows, first = numbers == number, self.visits.first_pairs[number]
            self.sets[number].method.observe(pair_ids[rows] - first, similarity[rows], loss[rows])
