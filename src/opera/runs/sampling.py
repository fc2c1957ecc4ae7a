"""Snapshots of the sampling probabilities during training: one byte a probability, at some 50 moments.

A code of 0 is a probability of zero. Codes 1 to 255 are, in equal steps of the logarithm, 1/4096 to 4096 times the
probability that plain fine-tuning gives (Equation 1), so that a probability is off by 3.4% at most. What lies beyond
goes to the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods import Method

FARTHEST = 12.0
"""Logarithm, to the base 2, of the largest ratio that can be told."""

CODES = 255
MOST_PAIRS = 200_000
"""Larger training sets are recorded for as many of their queries, drawn at random, as have so many pairs."""

STEPS_BETWEEN = 5
"""Moments are so many steps apart, or more."""

BIN_EDGES: NDArray[np.float64] = np.linspace(-1, 1, 101)
"""Edges of the similarity histogram's bins."""


def quantised(ratio: FloatArray) -> NDArray[np.uint8]:
    """Turn ratios to fine-tuning's probability into codes: uint8 of the same shape."""
    with np.errstate(divide="ignore"):
        place = 1 + (np.log2(ratio) + FARTHEST) / (2 * FARTHEST) * (CODES - 1)
    return np.where(np.asarray(ratio) > 0, np.rint(np.clip(place, 1, CODES)), 0).astype(np.uint8)


def ratios(codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Undo :func:`quantised`: float64 of the same shape."""
    exponent = (codes.astype(np.float64) - 1) / (CODES - 1) * 2 * FARTHEST - FARTHEST
    return np.where(codes > 0, np.exp2(exponent), 0.0)


@dataclass(frozen=True)
class SamplingRecord:
    """What was recorded of a run's sampling, ``T`` moments, ``S`` queries with ``P`` pairs.

    Attributes:
        steps: int32 ``[T]``, ascending, from 0: the step whose draw the probabilities are of.
        queries: int32 ``[S]``, ascending, numbers of training queries; all of them but for large training sets.
        pairs: int32 ``[P]``, numbers of their pairs (rows of ``pairs.parquet``), by query.
        query_codes: uint8 ``[T, S]``, n·P(q).
        document_codes: uint8 ``[T, P]``, m_q·P(d|q).
        similarity: int64 ``[T, bins]``, how many of *all* pairs have a similarity in each bin of ``BIN_EDGES``, as the
            method knows them at that step; ``[T, 0]`` for a method that keeps no scores.
    """

    steps: NDArray[np.int32]
    queries: NDArray[np.int32]
    pairs: NDArray[np.int32]
    query_codes: NDArray[np.uint8]
    document_codes: NDArray[np.uint8]
    similarity: NDArray[np.int64]

    @classmethod
    def read(cls, path: Path) -> SamplingRecord:
        """Read the file that :meth:`write` wrote."""
        with np.load(path) as arrays:
            return cls(*(arrays[name] for name in cls.__dataclass_fields__))

    def write(self, path: Path) -> None:
        """Write a compressed file."""
        with path.open("wb") as file:
            np.savez_compressed(file, **vars(self))

    def until(self, step: int) -> SamplingRecord:
        """Return what was recorded of the steps before ``step``."""
        left = self.steps < step
        moving = ("steps", "query_codes", "document_codes", "similarity")
        return SamplingRecord(**{k: v[left] if k in moving else v for k, v in vars(self).items()})

    def query(self) -> NDArray[np.float64]:
        """n·P(q): float64 ``[T, S]``, 1 where a query is drawn as often as by fine-tuning."""
        return ratios(self.query_codes)

    def document(self) -> NDArray[np.float64]:
        """m_q·P(d|q): float64 ``[T, P]``."""
        return ratios(self.document_codes)


class SamplingRecorder:
    """Records a method's probabilities at evenly spaced steps, the first and the last among them.

    Looking at all pairs takes as long as a tenth of a small model's step, so one step in five is looked at at most.

    Args:
        method: the method that draws.
        moments: how many steps to record, at most; 0 records nothing.
    """

    def __init__(self, method: Method[Any], moments: int) -> None:
        self._method = method
        last = method.plan.max_steps - 1
        count = min(moments, max(2, last // STEPS_BETWEEN + 1))
        self._due = set(np.unique(np.rint(np.linspace(0, last, count)).astype(int)).tolist())
        self._queries = _recorded_queries(method.pairs, method.plan.seed)
        offsets = method.pairs.query_offsets
        self._pairs = np.concatenate([np.arange(offsets[q], offsets[q + 1]) for q in self._queries])
        self._rows: list[tuple[int, NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]] = []

    def record(self, step: int) -> None:
        """Record a step that was just drawn, if it is one of the moments."""
        if step not in self._due:
            return
        pairs, chances = self._method.pairs, self._method.probabilities(step)
        query = quantised(chances.query[self._queries] * pairs.n_queries)
        fair = pairs.positives_per_query[pairs.pair_query[self._pairs]]
        document = quantised(chances.document[self._pairs] * fair)
        self._rows.append((step, query, document, self._histogram()))

    def finished(self) -> SamplingRecord:
        """Return what is recorded so far."""
        columns: Sequence[Sequence[object]] = list(zip(*self._rows, strict=True)) or [[], [], [], []]
        steps, query, document, histogram = columns
        return SamplingRecord(
            np.array(steps, dtype=np.int32),
            self._queries,
            self._pairs.astype(np.int32),
            np.array(query, dtype=np.uint8).reshape(len(steps), len(self._queries)),
            np.array(document, dtype=np.uint8).reshape(len(steps), len(self._pairs)),
            np.array(histogram, dtype=np.int64).reshape(len(steps), -1 if len(steps) else 0),
        )

    def go_on_from(self, record: SamplingRecord) -> None:
        """Take over what an earlier sitting recorded."""
        parts = (record.steps.tolist(), record.query_codes, record.document_codes, record.similarity)
        self._rows = list(zip(*parts, strict=True))

    def _histogram(self) -> NDArray[np.int64]:
        similarity = self._method.similarity
        if similarity is None:
            return np.empty(0, dtype=np.int64)
        bins = len(BIN_EDGES) - 1
        place = ((similarity + 1) * (bins / 2)).astype(np.int64)
        return np.bincount(np.clip(place, 0, bins - 1), minlength=bins)  # rounding takes cosines past their ends


def _recorded_queries(pairs: TrainingPairs, seed: int) -> NDArray[np.int32]:
    """All queries, or a random part of them with ``MOST_PAIRS`` pairs at most (but one query at least)."""
    order: IntArray = np.arange(pairs.n_queries)
    if pairs.n_pairs > MOST_PAIRS:
        order = generator(seed, "snapshots").permutation(pairs.n_queries)
        fits = int((np.cumsum(pairs.positives_per_query[order]) <= MOST_PAIRS).sum())
        order = np.sort(order[: max(1, fits)])
    return order.astype(np.int32)
