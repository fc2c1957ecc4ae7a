"""Records a method's sampling probabilities during training, for ``sampling.npz``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import Method
from opera.runs.sampling import BIN_EDGES, SamplingRecord, quantised

MAX_PAIRS = 200_000
"""Of larger training sets, a random part of the queries is recorded: as many as have this many pairs."""

CHUNK_PAIRS = 2**20
MIN_STEPS_BETWEEN = 5
"""Smallest distance between two recorded steps, but for the first and the last."""


class SamplingRecorder:
    """Records a method's probabilities at evenly spaced steps, the first and the last included.

    Reading all pairs takes up to a tenth of a small model's step, so at most every fifth step is recorded.

    Args:
        method: the method that draws.
        snapshots: how many steps to record at most; 0 records nothing.
    """

    def __init__(self, method: Method[Any], snapshots: int) -> None:
        self._method = method
        last = method.plan.max_steps - 1
        count = min(snapshots, max(2, last // MIN_STEPS_BETWEEN + 1))
        self._due = set(np.unique(np.rint(np.linspace(0, last, count)).astype(int)).tolist())
        self._query_ids = _recorded_queries(method.pairs, method.plan.seed)
        offsets = method.pairs.query_offsets
        self._pair_ids = np.concatenate(
            [np.arange(offsets[q], offsets[q + 1]) for q in self._query_ids]
        )
        self._snapshots: list[
            tuple[int, NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]
        ] = []

    def record(self, step: int) -> None:
        """Record ``step``, which was just drawn, if it is due."""
        if step not in self._due:
            return
        pairs, probabilities = self._method.pairs, self._method.probabilities(step)
        query = quantised(probabilities.query[self._query_ids] * pairs.n_queries)
        positives = pairs.positives_per_query[pairs.pair_query[self._pair_ids]]
        document = quantised(probabilities.document[self._pair_ids] * positives)
        self._snapshots.append((step, query, document, self._histogram()))

    def finished(self) -> SamplingRecord:
        """Return what is recorded so far."""
        columns: Sequence[Sequence[object]] = list(zip(*self._snapshots, strict=True)) or [
            [],
            [],
            [],
            [],
        ]
        steps, query, document, histogram = columns
        return SamplingRecord(
            np.array(steps, dtype=np.int32),
            self._query_ids,
            self._pair_ids.astype(np.int32),
            np.array(query, dtype=np.uint8).reshape(len(steps), len(self._query_ids)),
            np.array(document, dtype=np.uint8).reshape(len(steps), len(self._pair_ids)),
            np.array(histogram, dtype=np.int64).reshape(len(steps), -1 if len(steps) else 0),
        )

    def resume_from(self, record: SamplingRecord) -> None:
        """Continue the record of a run that resumes."""
        parts = (
            record.steps.tolist(),
            record.query_codes,
            record.document_codes,
            record.similarity,
        )
        self._snapshots = list(zip(*parts, strict=True))

    def _histogram(self) -> NDArray[np.int64]:
        similarity = self._method.similarity
        if similarity is None:
            return np.empty(0, dtype=np.int64)
        bins = len(BIN_EDGES) - 1
        counts = np.zeros(bins, dtype=np.int64)
        for start in range(0, len(similarity), CHUNK_PAIRS):
            bin_ids = ((similarity[start : start + CHUNK_PAIRS] + 1) * (bins / 2)).astype(np.int64)
            counts += np.bincount(
                np.clip(bin_ids, 0, bins - 1), minlength=bins
            )  # rounding takes cosines past ±1
        return counts


def _recorded_queries(pairs: TrainingPairs, seed: int) -> NDArray[np.int32]:
    """All queries, or a random part of them with at most ``MAX_PAIRS`` pairs, and at least one query."""
    order: IntArray = np.arange(pairs.n_queries)
    if pairs.n_pairs > MAX_PAIRS:
        order = generator(seed, "snapshots").permutation(pairs.n_queries)
        fits = int((np.cumsum(pairs.positives_per_query[order]) <= MAX_PAIRS).sum())
        order = np.sort(order[: max(1, fits)])
    return order.astype(np.int32)
