"""Records a method's sampling probabilities during training, for ``sampling.npz``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import Method
from opera.runs.sampling import SamplingRecord, quantised

MAX_PAIRS = 200_000
"""Of larger training sets, a random part of the queries is recorded: as many as have this many
pairs."""
MIN_STEPS_BETWEEN = 5
"""Smallest distance between two recorded steps, but for the first and the last."""


class SamplingRecorder:
    """Records a method's probabilities at evenly spaced steps, at most ``snapshots``, the first and
    the last included.

    Reading all pairs takes up to a tenth of a small model's step, so at most every fifth step is
    recorded.
    """

    def __init__(self, method: Method[Any], snapshots: int) -> None:
        self._method = method
        last = method.plan.max_steps - 1
        count = min(snapshots, max(2, last // MIN_STEPS_BETWEEN + 1))
        self._due = set(np.unique(np.rint(np.linspace(0, last, count)).astype(int)).tolist())
        self._queries = _recorded_queries(method.pairs, method.plan.seed)
        offsets = method.pairs.query_offsets
        self._pairs = np.concatenate([np.arange(offsets[q], offsets[q + 1]) for q in self._queries])
        self._steps: list[int] = []
        self._codes: tuple[list[NDArray[np.uint8]], list[NDArray[np.uint8]]] = ([], [])

    def record(self, step: int) -> None:
        """Record ``step``, which was just drawn, if it is due."""
        if step not in self._due:
            return
        pairs, probabilities = self._method.pairs, self._method.probabilities(step)
        positives = pairs.positives_per_query[pairs.pair_query[self._pairs]]
        self._steps.append(step)
        self._codes[0].append(quantised(probabilities.query[self._queries] * pairs.n_queries))
        self._codes[1].append(quantised(probabilities.document[self._pairs] * positives))

    def finished(self) -> SamplingRecord:
        """Return what is recorded so far."""
        query, document = (
            np.array(codes, dtype=np.uint8).reshape(len(self._steps), len(ids))
            for codes, ids in zip(self._codes, (self._queries, self._pairs), strict=True)
        )
        steps = np.array(self._steps, dtype=np.int32)
        return SamplingRecord(steps, self._queries, self._pairs.astype(np.int32), query, document)

    def resume_from(self, record: SamplingRecord) -> None:
        """Continue the record of a run that resumes."""
        self._steps = record.steps.tolist()
        self._codes = list(record.query_codes), list(record.document_codes)


def _recorded_queries(pairs: TrainingPairs, seed: int) -> NDArray[np.int32]:
    """All queries, or a random part of them with at most ``MAX_PAIRS`` pairs, and at least one
    query."""
    order: IntArray = np.arange(pairs.n_queries)
    if pairs.n_pairs > MAX_PAIRS:
        order = generator(seed, "snapshots").permutation(pairs.n_queries)
        fits = int((np.cumsum(pairs.positives_per_query[order]) <= MAX_PAIRS).sum())
        order = np.sort(order[: max(1, fits)])
    return order.astype(np.int32)
