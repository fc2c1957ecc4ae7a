"""From a method to batches: which pairs and negatives each step trains on, and what it has seen by then.

The lag is stated, not an accident of prefetching: the draw of step t uses the observations of steps up to t - lag,
whatever was observed since, and fails where one of them is missing. Without loader workers the lag is 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.errors import TrainingError
from opera.data.pairs import TrainingPairs
from opera.methods import Method
from opera.runs.sampling import SamplingRecorder
from opera.training_set.negatives import Negatives

OBSERVED = ("pair_ids", "similarity", "loss")


@dataclass(frozen=True)
class Row:
    """One line of a batch: a pair and the explicit negatives that go with it.

    Attributes:
        step: the optimizer step it is drawn for, from 0.
        pair: the pair's number.
        query: the pair's training query.
        docs: corpus rows: the positive, then the negatives.
        weight: what the pair's loss is multiplied by.
    """

    step: int
    pair: int
    query: int
    docs: tuple[int, ...]
    weight: float = 1.0


@dataclass(frozen=True)
class Issued:
    """A step that was drawn and is not trained yet.

    Attributes:
        pairs: int64 ``[B]``.
        weights: float32 ``[B]``.
        docs: int64 ``[B, 1 + negatives]``, corpus rows.
        schedule: the method's scheduled values at this step.
    """

    pairs: NDArray[np.int64]
    weights: NDArray[np.float32]
    docs: NDArray[np.int64]
    schedule: dict[str, float]


class PairSampler:
    """A batch sampler that draws one optimizer step at a time and cuts it into the batches of this process.

    Its length is fixed from the start: ``max_steps`` times ``accumulation`` batches, since trainers count steps once.
    Every process draws the same steps, of the same scores, and takes its part of each batch.

    Args:
        method: what draws.
        pairs: the training pairs.
        negatives: what gives the explicit negatives.
        n_negatives: how many for each pair.
        micro_batch_size: pairs a batch and process.
        lag: steps between an observation and the first draw that uses it.
        rank: which process this is.
        world: how many there are.
        recorder: told of each step when it is drawn; keeps the probabilities of some.

    Attributes:
        next_step: the next step to draw.
        trained_steps: how many steps are trained.
        drawn: int32 ``[B]`` a step, the pairs drawn so far.
    """

    def __init__(
        self,
        method: Method[Any],
        pairs: TrainingPairs,
        negatives: Negatives,
        n_negatives: int,
        micro_batch_size: int,
        lag: int = 1,
        rank: int = 0,
        world: int = 1,
        recorder: SamplingRecorder | None = None,
    ) -> None:
        if lag < 1:
            raise ValueError(f"lag must be 1 or more, got {lag}")
        if method.plan.batch_size % (micro_batch_size * world):
            raise ValueError("the plan's batch size must be a multiple of the micro-batch size of all processes")
        self.method, self.pairs, self.negatives = method, pairs, negatives
        self.n_negatives, self.micro_batch_size, self.lag = n_negatives, micro_batch_size, lag
        self.rank, self.world, self.recorder = rank, world, recorder
        self.next_step = self.trained_steps = 0
        self.drawn: list[NDArray[np.int32]] = []
        self._issued: dict[int, Issued] = {}
        self._waiting: dict[int, list[tuple[IntArray, FloatArray, FloatArray]]] = {}
        self._applied, self._ended = 0, False
        self._fingerprint = zlib.crc32(pairs.pair_doc.tobytes(), zlib.crc32(pairs.pair_query.tobytes()))

    def __len__(self) -> int:
        return self.method.plan.max_steps * self.method.plan.batch_size // (self.micro_batch_size * self.world)

    def end(self) -> None:
        """Give out nothing more: training was over when the state was saved."""
        self._ended = True

    def __iter__(self) -> Iterator[list[Row]]:
        if self._ended:
            return
        for step in sorted(self._issued):  # drawn before a checkpoint, and not trained by then
            yield from self._batches(step)
        while self.next_step < self.method.plan.max_steps:
            step = self.next_step
            self.draw_step(step)
            yield from self._batches(step)

    def draw_step(self, step: int) -> Issued:
        """Apply the observations of steps up to ``step - lag``, then draw the whole step.

        Raises:
            RuntimeError: if one of these steps was not observed whole: the loader reads further ahead than the lag.
        """
        self._apply_until(step - self.lag)
        drawn = self.method.draw(step)
        if self.recorder is not None:
            self.recorder.record(step)
        queries = self.pairs.pair_query[drawn.pair_ids]
        issued = Issued(
            drawn.pair_ids, drawn.weights, self._documents(drawn.pair_ids, queries, step), self.method.schedule(step)
        )
        self.drawn.append(drawn.pair_ids.astype(np.int32))
        self._issued[step] = issued
        self.next_step = step + 1
        return issued

    def finish(self, step: int) -> dict[str, float]:
        """Mark the step as trained; return the method's schedule as it was when the step was drawn."""
        self.trained_steps = step + 1
        return self._issued.pop(step).schedule

    def times_drawn(self) -> NDArray[np.int64]:
        """Count how often each pair was drawn: int64 ``[N]``."""
        return np.bincount(np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]), minlength=self.pairs.n_pairs)

    def observe(self, step: int, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Take what the forward pass of ``step`` gave for some of its pairs; it counts from step + lag on."""
        self._waiting.setdefault(step, []).append((pair_ids, similarity, loss))

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps: the method's, what is drawn and not trained, and what waits to count."""
        return {
            "next_step": self.next_step,
            "trained_steps": self.trained_steps,
            "applied": self._applied,
            "pairs": self._fingerprint,
            "drawn": np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]),
            "method": self.method.state_dict(),
            "issued": {
                str(step): {
                    "pairs": issued.pairs,
                    "weights": issued.weights,
                    "docs": issued.docs,
                    "schedule": issued.schedule,
                }
                for step, issued in self._issued.items()
            },
            "waiting": {
                str(step): {str(i): dict(zip(OBSERVED, seen, strict=True)) for i, seen in enumerate(observations)}
                for step, observations in self._waiting.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it is of other training pairs.
        """
        if int(state["pairs"]) != self._fingerprint:
            raise TrainingError(
                "the checkpoint is of other training pairs than this run has now: vectors computed anew, on another "
                "device for example, may rank documents otherwise; start again with --overwrite"
            )
        self.next_step, self.trained_steps = int(state["next_step"]), int(state["trained_steps"])
        self._applied = int(state["applied"])
        self.drawn = [np.array(state["drawn"], dtype=np.int32)]
        self.method.load_state_dict(state.get("method", {}))
        self._issued = {int(step): _issued(parts) for step, parts in state.get("issued", {}).items()}
        self._waiting = {
            int(step): [tuple(observations[at][part] for part in OBSERVED) for at in sorted(observations, key=int)]
            for step, observations in state.get("waiting", {}).items()
        }

    def _batches(self, step: int) -> Iterator[list[Row]]:
        """Cut a step into batches, and of each take this process's part."""
        issued = self._issued[step]
        whole = self.micro_batch_size * self.world
        for start in range(self.rank * self.micro_batch_size, len(issued.pairs), whole):
            part = slice(start, start + self.micro_batch_size)
            pair_ids = issued.pairs[part]
            yield [
                Row(step, pair, query, tuple(docs), weight)
                for pair, query, docs, weight in zip(
                    pair_ids.tolist(),
                    self.pairs.pair_query[pair_ids].tolist(),
                    issued.docs[part].tolist(),
                    issued.weights[part].tolist(),
                    strict=True,
                )
            ]

    def _documents(self, pair_ids: IntArray, queries: IntArray, step: int) -> NDArray[np.int64]:
        positives = self.pairs.pair_doc[pair_ids].astype(np.int64)[:, None]
        if self.n_negatives == 0:
            return positives
        drawn = self.negatives.draw(queries, self.n_negatives, self.method.plan.seed, step)
        return np.concatenate([positives, drawn], axis=1)

    def _apply_until(self, last: int) -> None:
        while self._applied <= last:
            observations = self._waiting.pop(self._applied, [])
            if sum(len(pair_ids) for pair_ids, _, _ in observations) != self.method.plan.batch_size:
                raise RuntimeError(
                    f"step {self._applied} is not observed whole, and with lag={self.lag} a draw needs it: the loader "
                    "reads further ahead than the lag says"
                )
            for pair_ids, similarity, loss in observations:
                self.method.observe(pair_ids, similarity, loss)
            self._applied += 1


def _issued(parts: Mapping[str, Any]) -> Issued:
    schedule = {name: float(value) for name, value in parts.get("schedule", {}).items()}
    return Issued(parts["pairs"], parts["weights"], parts["docs"], schedule)
