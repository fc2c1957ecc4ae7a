"""From a method to batches: which pairs and negatives each step trains on, and which observations
it knows by then.

The lag is stated, not an accident of prefetching: the draw of step t uses the observations of steps
up to t - lag, whatever was observed since, and fails where one of them is missing. ``opera train``
has lag 1; in a trainer of one's own it follows from how far that reads ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.errors import TrainingError
from opera.data.pairs import TrainingPairs
from opera.methods import Method
from opera.methods.first_visits import FirstVisits
from opera.training_set.negatives import Negatives

ADVICE = "lower learning_rate, or set precision=fp32"
DRAWN = ("pair_ids", "doc_rows", "weights", "schedule")
OBSERVED = ("pair_ids", "similarity", "loss", "p")


class NotObservedError(TrainingError):
    """A draw needs observations that are not there: the loader reads further ahead than the lag
    allows."""


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
class Row:
    """One line of a batch: a training query with corpus rows, its positive and then its negatives.

    ``step`` is the optimizer step, and ``position`` the place in its draw, both from 0.
    """

    step: int
    position: int
    query: int
    doc_rows: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """What all processes train on together: a whole step as it is drawn, or one forward pass of it.

    Attributes:
        pair_ids: int64 ``[B]``, in the order of the processes.
        doc_rows: int64 ``[B, 1 + negatives]``, corpus rows.
        weights: float32 ``[B]``, what the loss of each pair is multiplied by.
        own: the part that this process computes.
        schedule: the method's when the step was drawn.
    """

    pair_ids: NDArray[np.int64]
    doc_rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    own: slice = field(default_factory=lambda: slice(None))
    schedule: Mapping[str, float] = field(default_factory=dict)


class PairSampler:
    """A batch sampler that draws one optimizer step at a time and cuts it into the batches of this
    process.

    Its length is fixed from the start, since trainers count steps once. Every process draws the
    same steps from the same scores and takes its part of each batch. So a step and a position in it
    say everything about a row, to the loss of every process.

    Args:
        method: draws the pairs.
        pairs: the training pairs.
        negatives: draws the explicit negatives; ``None`` where there are none.
        n_negatives: explicit negatives per pair.
        batch_size: pairs per batch and process.
        lag: steps between an observation and the first draw that uses it.
        rank: which process this is.
        world_size: how many there are.
        pair_weights: float ``[N]``, what the loss of each pair is multiplied by, beside the draw's
            weight; ``None``: 1.

    Attributes:
        max_steps: the step to stop before.
        next_step: the next step to draw.
        trained_steps: how many steps are trained.
        drawn: int32 ``[B]`` per step, the pair ids drawn so far.
        trained: bool ``[N]``, the pairs trained so far.
        schedule: the method's when the step trained last was drawn.
    """

    def __init__(
        self,
        method: Method[Any],
        pairs: TrainingPairs,
        negatives: Negatives | None,
        n_negatives: int,
        batch_size: int,
        lag: int = 1,
        rank: int = 0,
        world_size: int = 1,
        pair_weights: FloatArray | None = None,
    ) -> None:
        if lag < 1:
            raise ValueError(f"lag must be 1 or more, got {lag}")
        if method.plan.batch_size % (batch_size * world_size):
            raise ValueError(
                "the plan's batch size must be a multiple of the batch size of all processes"
            )
        self.method, self.pairs, self.negatives = method, pairs, negatives
        self.n_negatives, self.batch_size, self.lag = n_negatives, batch_size, lag
        self.rank, self.world_size = rank, world_size
        self.pair_weights = pair_weights
        self.max_steps = method.plan.max_steps
        self.next_step = self.trained_steps = 0
        self.drawn: list[NDArray[np.int32]] = []
        self.trained = np.zeros(pairs.n_pairs, dtype=bool)
        self.schedule: Mapping[str, float] = {}
        self._untrained: dict[int, Batch] = {}
        self._observed: dict[int, list[tuple[IntArray, FloatArray, FloatArray, FloatArray]]] = {}
        self._applied = 0

    @property
    def _whole_batch(self) -> int:
        """Pairs per batch, over all processes."""
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        return self.method.plan.max_steps * self.method.plan.batch_size // self._whole_batch

    def __iter__(self) -> Iterator[list[Row]]:
        for step in self.upcoming(self.max_steps):
            yield from self._batches(step)

    def upcoming(self, end: float = math.inf) -> Iterator[int]:
        """Yield the steps to train on, drawn: first those of before a checkpoint that were not
        trained, then new ones.

        Without an ``end`` to stop before they go on, with the schedule's last values after
        ``max_steps``.
        """
        yield from (step for step in sorted(self._untrained) if step < end)
        while self.next_step < end:
            step = self.next_step
            self.draw_step(step)
            yield step

    def draw_step(self, step: int) -> Batch:
        """Apply the observations of steps up to ``step - lag``, then draw the whole step.

        Raises:
            NotObservedError: if one of these steps is not observed in full.
        """
        self._apply_until(step - self.lag)
        drawn = self.method.draw(step)
        weights = drawn.weights
        if self.pair_weights is not None:
            weights = (weights * self.pair_weights[drawn.pair_ids]).astype(np.float32)
        documents, schedule = self._documents(drawn.pair_ids, step), self.method.schedule(step)
        self._untrained[step] = Batch(drawn.pair_ids, documents, weights, schedule=schedule)
        self.drawn.append(drawn.pair_ids.astype(np.int32))
        self.next_step = step + 1
        return self._untrained[step]

    def batch_at(self, step: int, position: int) -> Batch:
        """Return the whole batch of which this process's part starts at ``position`` of a step's
        draw."""
        drawn = self._untrained[step]
        start = position - self.rank * self.batch_size
        whole = slice(start, start + self._whole_batch)
        own = slice(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        return Batch(drawn.pair_ids[whole], drawn.doc_rows[whole], drawn.weights[whole], own)

    def pairs_of(self, step: int) -> IntArray:
        """Return the pair ids of a step that is drawn and not trained yet."""
        return self._untrained[step].pair_ids

    def finish(self, step: int) -> None:
        """Mark the step as trained."""
        done = self._untrained.pop(step)
        self.trained_steps, self.schedule = step + 1, done.schedule
        self.trained[done.pair_ids] = True

    def times_drawn(self) -> NDArray[np.int64]:
        """Count how often each pair was drawn: int64 ``[N]``."""
        return np.bincount(
            np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]), minlength=self.pairs.n_pairs
        )

    def observe(
        self,
        step: int,
        pair_ids: IntArray,
        similarity: FloatArray,
        loss: FloatArray,
        p: FloatArray,
    ) -> None:
        """Store what the forward pass gave for one batch of ``step``; draws use it from step + lag
        on. ``p`` is of :class:`opera.methods.first_visits.FirstVisits`."""
        self._observed.setdefault(step, []).append((pair_ids, similarity, loss, p))

    def visits(self) -> FirstVisits:
        """Return what first visits found, in the steps that no draw has used yet too."""
        found = FirstVisits.none(self.pairs.n_pairs, self.method.visits.first_pairs)
        found.load_state_dict(self.method.visits.state_dict())
        for step in sorted(self._observed):
            for pair_ids, *_, p in self._observed[step]:
                found.see(step, pair_ids, p)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps: the method's, steps drawn and not trained,
        observations not applied."""
        return {
            "next_step": self.next_step,
            "trained_steps": self.trained_steps,
            "applied": self._applied,
            "fingerprint": self.pairs.fingerprint,
            "drawn": np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]),
            "method": self.method.state_dict(),
            "visits": self.method.visits.state_dict(),
            "schedule": self.schedule,
            "untrained": {
                str(step): {name: getattr(drawn, name) for name in DRAWN}
                for step, drawn in self._untrained.items()
            },
            "observed": {
                str(step): {
                    str(at): dict(zip(OBSERVED, values, strict=True))
                    for at, values in enumerate(batches)
                }
                for step, batches in self._observed.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
        self.next_step, self.trained_steps = int(state["next_step"]), int(state["trained_steps"])
        self._applied = int(state["applied"])
        self.drawn = [np.array(state["drawn"], dtype=np.int32)]
        self.trained[self.drawn[0][: self.trained_steps * self.method.plan.batch_size]] = True
        self.schedule = _numbers(state.get("schedule", {}))
        self.method.load_state_dict(state.get("method", {}))
        self.method.visits.load_state_dict(state["visits"])
        self._untrained = {
            int(step): Batch(
                **{name: parts[name] for name in DRAWN[:-1]},
                schedule=_numbers(parts.get("schedule", {})),
            )
            for step, parts in state.get("untrained", {}).items()
        }
        self._observed = {
            int(step): [
                tuple(batches[at][part] for part in OBSERVED) for at in sorted(batches, key=int)
            ]
            for step, batches in state.get("observed", {}).items()
        }

    def _batches(self, step: int) -> Iterator[list[Row]]:
        """Cut a step into batches, and of each take this process's part."""
        drawn = self._untrained[step]
        queries = self.pairs.pair_query[drawn.pair_ids].tolist()
        doc_rows = drawn.doc_rows.tolist()
        for start in range(self.rank * self.batch_size, len(queries), self._whole_batch):
            positions = range(start, start + self.batch_size)
            yield [Row(step, at, queries[at], tuple(doc_rows[at])) for at in positions]

    def _documents(self, pair_ids: IntArray, step: int) -> NDArray[np.int64]:
        """Return each pair's positive, then its negatives: int64 ``[B, 1 + negatives]``."""
        positives = self.pairs.pair_doc[pair_ids].astype(np.int64)[:, None]
        if self.n_negatives == 0 or self.negatives is None:
            return positives
        queries = self.pairs.pair_query[pair_ids]
        negatives = self.negatives.draw(queries, self.n_negatives, self.method.plan.seed, step)
        return np.concatenate([positives, negatives], axis=1)

    def _apply_until(self, last: int) -> None:
        """Give the method the observations of steps up to ``last``, step by step."""
        while self._applied <= last:
            batches = self._observed.pop(self._applied, [])
            if sum(len(pair_ids) for pair_ids, *_ in batches) != self.method.plan.batch_size:
                raise NotObservedError(
                    f"step {self._applied} is not observed in full, and with lag={self.lag} a draw "
                    "needs it: "
                    "the loader reads further ahead than the lag allows"
                )
            for pair_ids, similarity, loss, p in batches:
                self.method.visits.see(self._applied, pair_ids, p)
                self.method.observe(pair_ids, similarity, loss)
            self._applied += 1


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
