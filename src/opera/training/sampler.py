"""Sample the pairs and negatives of each step by a method, and cut them into batches.

The lag is fixed, so prefetching does not change the result. Step t uses the observations of steps
up to t - lag, never later ones, and fails if one is missing. ``opera train`` has lag 1; in other
scripts it depends on how far the trainer reads ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import TrainingError
from opera.core.rng import generator
from opera.core.terminal import counted
from opera.data.pairs import TrainingPairs
from opera.labels.estimate import FirstVisits
from opera.methods import Draw, Method, Plan
from opera.training.negatives import Negatives

ADVICE_NOT_FINITE = "lower learning_rate, or set precision=fp32"
ARRAYS_OF_BATCH = ("pair_ids", "doc_rows", "weights", "queries", "sets")


@dataclass(frozen=True)
class Batch:
    """The pairs that all processes compute in one forward pass, or all pairs of a step.

    Attributes:
        step: the step that the batch belongs to, from 0.
        pair_ids: int64 ``[B]``, in rank order of the processes.
        doc_rows: int64 ``[B, 1 + negatives]``, document rows: the positive, then the negatives.
        weights: float32 ``[B]``, the factor on each pair's loss.
        queries: int ``[B]``, the query index of each pair.
        sets: int64 ``[B]``, the number of each pair's data set.
        schedule: the method's schedule at this step.
        local: the positions in the batch that this process computes.
    """

    step: int
    pair_ids: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    queries: IntArray
    sets: NDArray[np.int64]
    schedule: Mapping[str, float]
    local: slice = field(default_factory=lambda: slice(None))

    def at_positions(self, positions: slice, local: slice) -> Batch:
        """Return the batch at some positions of a step; ``local`` are positions in this batch."""
        arrays = {name: getattr(self, name)[positions] for name in ARRAYS_OF_BATCH}
        return replace(self, **arrays, local=local)


class Observations(NamedTuple):
    """What the loss reports about the pairs of a batch.

    Attributes:
        pair_ids: int64 ``[m]``.
        similarity: float32 ``[m]``, the similarity of query and document.
        loss: float32 ``[m]``, without weights.
        p: float32 ``[m]``, the p-values of :class:`opera.labels.estimate.FirstVisits`.
    """

    pair_ids: IntArray
    similarity: FloatArray
    loss: FloatArray
    p: FloatArray


GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples modulo 1 are spread evenly over [0, 1), after any number of steps."""


@dataclass(frozen=True)
class Quotas:
    """The number of pairs of each data set in a step.

    Attributes:
        probabilities: float64 ``[sets]``, the probability of each set for a sampled pair, with a
            sum of 1.
        one_set_per_step: whether all pairs of a step come from one set.
    """

    probabilities: NDArray[np.float64]
    one_set_per_step: bool = False

    @classmethod
    def of(cls, names: Sequence[str], pairs: Sequence[int], settings: MixingSettings) -> Quotas:
        """Return the quotas of sets with these names and numbers of pairs."""
        if settings.mix == "proportional":
            weights = np.array(pairs, dtype=np.float64)
        elif settings.mix == "equal":
            weights = np.ones(len(pairs))
        else:
            weight_of = shares_by_name(settings.mix)
            weights = np.array([weight_of[name] for name in names])
        return cls(weights / weights.sum(), settings.one_set_per_step)

    def of_step(self, step: int, batch_size: int) -> NDArray[np.int64]:
        """Return the number of pairs of each set in a step: int64 ``[sets]``."""
        unit = batch_size if self.one_set_per_step else 1
        exact = self.probabilities * batch_size / unit
        rounded = np.floor(exact + 1e-9).astype(np.int64)
        remaining = batch_size // unit - int(rounded.sum())
        if remaining == 0:
            return rounded * unit
        ends = np.cumsum(exact - rounded) / remaining
        ends[-1] = 1
        points = np.arange(step * remaining, (step + 1) * remaining) * GOLDEN % 1
        sets = np.searchsorted(ends, points, side="right")
        return (rounded + np.bincount(sets, minlength=len(rounded))) * unit

    def plans(self, plan: Plan) -> list[Plan]:
        """Return the plan of each set's method from the plan of the run.

        The batch size of a method is the largest number of pairs that its set has in a step. Its
        schedule counts its own batches.
        """
        plans = []
        for probability in self.probabilities.tolist():
            size = max(1, math.ceil(probability * plan.batch_size - 1e-9))
            size = plan.batch_size if self.one_set_per_step else size
            steps = math.ceil(plan.max_steps * plan.batch_size * probability / size) + 1
            plans.append(Plan(plan.seed, steps, size))
        return plans


class DataSetSampler:
    """Samples pairs from one data set.

    The method samples full batches. Pairs that a step does not need wait for the next step.

    Args:
        method: samples the pairs.
        negatives: samples the explicit negatives, if there are any.
        first_doc_row: the row of the set's first document in the joined corpus.
    """

    def __init__(
        self, method: Method[Any], negatives: Negatives | None = None, first_doc_row: int = 0
    ) -> None:
        self.method, self.negatives, self.first_doc_row = method, negatives, first_doc_row
        self._next_step = 0
        self._waiting = Draw.unweighted(np.empty(0, dtype=np.int64))

    def next_pairs(self, count: int) -> Draw:
        """Return the next pairs; their ids count from 0 within the set."""
        while len(self._waiting.pair_ids) < count:
            self._draw()
        pair_ids, weights = self._waiting.pair_ids, self._waiting.weights
        self._waiting = Draw(pair_ids[count:], weights[count:])
        return Draw(pair_ids[:count], weights[:count])

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
        return np.concatenate(columns, axis=1) + self.first_doc_row

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


class Sampler:
    """Samples the pairs of a training, a step at a time.

    Every process samples the same steps from the same scores, and computes its part of each batch.
    Trainers read the length once, so it never changes.

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
        sampled: int32 ``[B]`` per step, the pair ids sampled so far.
        pending: the steps that are sampled and not trained, by number.
        trained: bool ``[N]``, the pairs trained so far.
        schedule: the method's schedule at the last trained step.
        mean_loss: of the last trained step.
        visits: the first visits in the steps whose observations the methods have.
    """

    def __init__(
        self,
        sets: Sequence[DataSetSampler],
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
        self.n_negatives, self.lag, self.pair_weights = n_negatives, lag, pair_weights
        self._size_of_all = batch_size * world_size
        self._local = slice(rank * batch_size, (rank + 1) * batch_size)
        self.sampled: list[NDArray[np.int32]] = []
        self.pending: dict[int, Batch] = {}
        self.trained = np.zeros(pairs.n_pairs, dtype=bool)
        self.schedule: Mapping[str, float] = {}
        self.mean_loss = math.nan
        self.visits = FirstVisits.none(pairs.n_pairs) if visits is None else visits
        for set_number, data_set in enumerate(sets):
            data_set.method.visits = self.visits.of_data_set(set_number)
        self._observed: dict[int, Observations] = {}

    @property
    def kept(self) -> BoolArray:
        """The pairs that the methods do not prune before training: bool ``[N]``."""
        return np.concatenate([data_set.method.kept for data_set in self.sets])

    @property
    def trained_steps(self) -> int:
        """The number of trained steps."""
        return len(self.sampled) - len(self.pending)

    def __len__(self) -> int:
        return self.plan.max_steps * self.plan.batch_size // self._size_of_all

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of all processes, with the positions that this process computes."""
        for step in self.upcoming(self.plan.max_steps):
            for start in range(0, self.plan.batch_size, self._size_of_all):
                positions = slice(start, start + self._size_of_all)
                yield self.pending[step].at_positions(positions, self._local)

    def upcoming(self, end: float = math.inf) -> Iterator[int]:
        """Yield sampled steps up to ``end``: first steps that are sampled but not trained, then new
        steps.

        Steps after ``max_steps`` use the schedule's last values.
        """
        yield from (step for step in sorted(self.pending) if step < end)
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
        draws = []
        first_pairs = self.visits.first_pairs.tolist()
        for data_set, count, first_pair in zip(self.sets, counts, first_pairs, strict=False):
            if count == 0:
                continue
            draw = data_set.next_pairs(count)
            drawn_rows = data_set.documents(draw.pair_ids, self.n_negatives, self.plan.seed, step)
            draws.append((draw.pair_ids + first_pair, drawn_rows, draw.weights))
        pair_ids, doc_rows, factors = map(np.concatenate, zip(*draws, strict=True))
        if len(draws) > 1 and size > self._size_of_all:  # mix the sets in every batch
            order = generator(self.plan.seed, "sampler.sets", step).permutation(size)
            pair_ids, doc_rows, factors = pair_ids[order], doc_rows[order], factors[order]
        if self.pair_weights is not None:
            factors = (factors * self.pair_weights[pair_ids]).astype(np.float32)
        query_indices, sets = self.pairs.pair_query[pair_ids], self.visits.set_of(pair_ids)
        batch = Batch(step, pair_ids, doc_rows, factors, query_indices, sets, self._schedule())
        self.pending[step] = batch
        self.sampled.append(pair_ids.astype(np.int32))
        return batch

    def observe(self, step: int, observations: Observations) -> None:
        """Store the observations of a batch of a step, for use ``lag`` steps later.

        A step counts as trained as soon as all its pairs are observed.

        Raises:
            TrainingError: if a loss is not a finite number.
        """
        finite, pairs = np.isfinite(observations.loss), counted(len(observations.loss), "pair")
        if not finite.all():
            raise TrainingError(
                f"step {self.trained_steps + 1}: the loss of {(~finite).sum()} of {pairs} is not a "
                f"finite number; {ADVICE_NOT_FINITE}"
            )
        if step in self._observed:
            parts: Any = zip(self._observed[step], observations, strict=True)
            observations = Observations(*map(np.concatenate, parts))
        self._observed[step] = observations
        if len(observations.pair_ids) == self.plan.batch_size:
            self.mean_loss = float(np.mean(observations.loss, dtype=np.float64))
            batch = self.pending.pop(step)
            self.schedule = batch.schedule
            self.trained[batch.pair_ids] = True

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
            observations = self._observed[step]
            visits.record(step, observations.pair_ids, observations.p)
        return visits

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps, with untrained steps and unused observations."""
        return {
            "trained_steps": self.trained_steps,
            "fingerprint": self.pairs.fingerprint,
            "drawn": self.sampled_ids(),
            "trained": self.trained.copy(),
            "sets": {
                str(set_number): data_set.state_dict()
                for set_number, data_set in enumerate(self.sets)
            },
            "visits": self.visits.state_dict(),
            "schedule": self.schedule,
            "pending": {
                str(step): {name: getattr(batch, name) for name in (*ARRAYS_OF_BATCH, "schedule")}
                for step, batch in self.pending.items()
            },
            "observed": {str(step): values._asdict() for step, values in self._observed.items()},
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
        sampled = np.array(state["drawn"], dtype=np.int32)
        self.sampled = list(sampled.reshape(-1, self.plan.batch_size))
        self.trained = np.array(state["trained"], dtype=bool)
        self.schedule = state.get("schedule", {})
        for set_number, data_set in enumerate(self.sets):
            data_set.load_state_dict(state["sets"][str(set_number)])
        self.visits.load_state_dict(state["visits"])
        self.pending = {
            int(step): Batch(int(step), **{"schedule": {}, **parts})
            for step, parts in state.get("pending", {}).items()
        }
        self._observed = {
            int(step): Observations(**parts) for step, parts in state.get("observed", {}).items()
        }

    def _schedule(self) -> dict[str, float]:
        """Return the method's schedule; with several sets, the set's number follows each name."""
        if self.quotas is None:
            return self.sets[0].schedule()
        return {
            f"{name}_{set_number}": value
            for set_number, data_set in enumerate(self.sets, 1)
            for name, value in data_set.schedule().items()
        }

    def _apply(self, step: int) -> None:
        """Pass the observations of a step to the methods."""
        if step in self.pending or step not in self._observed:
            raise TrainingError(
                f"observations of step {step} are missing: the data loader reads further ahead "
                f"than lag={self.lag} allows"
            )
        pair_ids, similarity, loss, p = self._observed.pop(step)
        self.visits.record(step, pair_ids, p)
        set_numbers = self.visits.set_of(pair_ids)
        for set_number in np.unique(set_numbers).tolist():
            in_set, first_pair = set_numbers == set_number, self.visits.first_pairs[set_number]
            self.sets[set_number].method.observe(
                pair_ids[in_set] - first_pair, similarity[in_set], loss[in_set]
            )
