"""From a method to batches: which pairs and negatives each step trains on, and what it has seen by then.

The lag is stated, not an accident of prefetching: the draw of step t uses the observations of steps up to t - lag,
whatever was observed since. With one process and no loader workers the lag is 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.errors import TrainingError
from opera.methods import Method, Moment, Pairs
from opera.methods.pairs import FloatArray, IntArray
from opera.mine import Negatives

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


class PairSampler:
    """A batch sampler that draws one optimizer step at a time and cuts it into micro-batches.

    Its length is fixed from the start: ``max_steps`` times ``accumulation`` batches, since trainers count steps once.

    Attributes:
        drawn: int32 ``[B]`` a step, the pairs drawn so far.
        moments: what the method's schedule said at each step that was drawn and not yet traced.
    """

    def __init__(
        self,
        method: Method,
        pairs: Pairs,
        negatives: Negatives,
        n_negatives: int,
        micro_batch_size: int,
        lag: int = 1,
    ) -> None:
        if lag < 1:
            raise ValueError(f"lag must be 1 or more, got {lag}")
        if method.plan.batch_size % micro_batch_size:
            raise ValueError("the plan's batch size must be a multiple of the micro-batch size")
        self.method, self.pairs, self.negatives = method, pairs, negatives
        self.n_negatives, self.micro_batch_size, self.lag = n_negatives, micro_batch_size, lag
        self.next_step = 0
        self.applied = 0
        self.moments: dict[int, Moment] = {}
        self.drawn: list[NDArray[np.int32]] = []
        self._fingerprint = zlib.crc32(pairs.pair_doc.tobytes(), zlib.crc32(pairs.pair_query.tobytes()))
        self._waiting: dict[int, list[tuple[IntArray, FloatArray, FloatArray]]] = {}

    def __len__(self) -> int:
        return self.method.plan.max_steps * self.method.plan.batch_size // self.micro_batch_size

    def __iter__(self) -> Iterator[list[Row]]:
        while self.next_step < self.method.plan.max_steps:
            rows = self.draw_step(self.next_step)
            self.next_step += 1
            for start in range(0, len(rows), self.micro_batch_size):
                yield rows[start : start + self.micro_batch_size]

    def draw_step(self, step: int) -> list[Row]:
        """Apply the observations of steps up to ``step - lag``, then draw the whole step."""
        self._apply_until(step - self.lag)
        drawn = self.method.draw(step)
        pair_ids = drawn.pairs
        self.drawn.append(pair_ids.astype(np.int32))
        self.moments[step] = self.method.moment(step)
        queries = self.pairs.pair_query[pair_ids]
        docs = self._documents(pair_ids, queries, step)
        return [
            Row(step, pair, query, tuple(row), weight)
            for pair, query, row, weight in zip(
                pair_ids.tolist(), queries.tolist(), docs.tolist(), drawn.weights.tolist(), strict=True
            )
        ]

    def times_drawn(self) -> NDArray[np.int64]:
        """Count how often each pair was drawn: int64 ``[N]``."""
        return np.bincount(np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]), minlength=self.pairs.n_pairs)

    def observe(self, step: int, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Take what the forward pass of ``step`` gave for some of its pairs; it counts from step + lag on."""
        self._waiting.setdefault(step, []).append((pair_ids, similarity, loss))

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two steps: the method's, the next step, and the observations that wait."""
        return {
            "next_step": self.next_step,
            "applied": self.applied,
            "pairs": self._fingerprint,
            "drawn": np.concatenate([np.empty(0, dtype=np.int32), *self.drawn]),
            "method": self.method.state_dict(),
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
        self.next_step, self.applied = int(state["next_step"]), int(state["applied"])
        self.drawn = [np.array(state["drawn"], dtype=np.int32)]
        self.method.load_state_dict(state.get("method", {}))
        self._waiting = {
            int(step): [tuple(observations[at][part] for part in OBSERVED) for at in sorted(observations, key=int)]
            for step, observations in state.get("waiting", {}).items()
        }

    def _documents(self, pair_ids: IntArray, queries: IntArray, step: int) -> NDArray[np.int64]:
        positives = self.pairs.pair_doc[pair_ids].astype(np.int64)[:, None]
        if self.n_negatives == 0:
            return positives
        drawn = self.negatives.draw(queries, self.n_negatives, self.method.plan.seed, step)
        return np.concatenate([positives, drawn], axis=1)

    def _apply_until(self, last: int) -> None:
        while self.applied <= last:
            for pair_ids, similarity, loss in self._waiting.pop(self.applied, []):
                self.method.observe(pair_ids, similarity, loss)
            self.applied += 1
