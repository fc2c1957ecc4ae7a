"""Snapshots of the sampling probabilities during training: one byte per probability, at up to 50 steps.

Code 0 is a probability of zero. Codes 1 to 255 stand for 1/4096 to 4096 times fine-tuning's probability (Equation 1),
in equal steps of the logarithm, which makes a probability at most 3.4% off. Ratios beyond these ends are clipped.
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
"""Logarithm, to base 2, of the largest ratio that a code can express."""

CODES = 255
MOST_PAIRS = 200_000
"""Of larger training sets, a random part of the queries is recorded: as many as have this many pairs."""

STEPS_BETWEEN = 5
"""The least distance between two recorded steps, but for the first and the last."""

BIN_EDGES: NDArray[np.float64] = np.linspace(-1, 1, 101)
"""Edges of the similarity histogram's bins."""


def quantised(ratio: FloatArray) -> NDArray[np.uint8]:
    """Encode ratios to fine-tuning's probability: uint8 of the same shape."""
    with np.errstate(divide="ignore"):
        code = 1 + (np.log2(ratio) + FARTHEST) / (2 * FARTHEST) * (CODES - 1)
    return np.where(np.asarray(ratio) > 0, np.rint(np.clip(code, 1, CODES)), 0).astype(np.uint8)


def ratios(codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Decode what :func:`quantised` encoded: float64 of the same shape."""
    exponent = (codes.astype(np.float64) - 1) / (CODES - 1) * 2 * FARTHEST - FARTHEST
    return np.where(codes > 0, np.exp2(exponent), 0.0)


@dataclass(frozen=True)
class SamplingRecord:
    """The recorded sampling probabilities of a run: ``T`` snapshots of ``S`` queries with ``P`` pairs.

    Attributes:
        steps: int32 ``[T]``, ascending, from 0: the steps for whose draws the probabilities hold.
        query_ids: int32 ``[S]``, ascending, numbers of training queries; all of them, except for large training sets.
        pair_ids: int32 ``[P]``, their pairs (rows of ``pairs.parquet``), by query.
        query_codes: uint8 ``[T, S]``, n·P(q).
        document_codes: uint8 ``[T, P]``, m_q·P(d|q).
        similarity: int64 ``[T, bins]``, the histogram over ``BIN_EDGES`` of the latest similarities of *all* pairs;
            ``[T, 0]`` for a method that keeps no scores.
    """

    steps: NDArray[np.int32]
    query_ids: NDArray[np.int32]
    pair_ids: NDArray[np.int32]
    query_codes: NDArray[np.uint8]
    document_codes: NDArray[np.uint8]
    similarity: NDArray[np.int64]

    @classmethod
    def read(cls, path: Path) -> SamplingRecord:
        """Read what :meth:`write` wrote."""
        with np.load(path) as arrays:
            return cls(*(arrays[name] for name in cls.__dataclass_fields__))

    def write(self, path: Path) -> None:
        """Write a compressed ``.npz`` file."""
        with path.open("wb") as file:
            np.savez_compressed(file, **vars(self))

    def until(self, step: int) -> SamplingRecord:
        """Return the snapshots of the steps before ``step``."""
        earlier = self.steps < step
        by_step = ("steps", "query_codes", "document_codes", "similarity")
        return SamplingRecord(**{k: v[earlier] if k in by_step else v for k, v in vars(self).items()})

    def query(self) -> NDArray[np.float64]:
        """n·P(q): float64 ``[T, S]``, 1 where a query is as likely as in fine-tuning."""
        return ratios(self.query_codes)

    def document(self) -> NDArray[np.float64]:
        """m_q·P(d|q): float64 ``[T, P]``."""
        return ratios(self.document_codes)


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
        count = min(snapshots, max(2, last // STEPS_BETWEEN + 1))
        self._due = set(np.unique(np.rint(np.linspace(0, last, count)).astype(int)).tolist())
        self._query_ids = _recorded_queries(method.pairs, method.plan.seed)
        offsets = method.pairs.query_offsets
        self._pair_ids = np.concatenate([np.arange(offsets[q], offsets[q + 1]) for q in self._query_ids])
        self._snapshots: list[tuple[int, NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]] = []

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
        columns: Sequence[Sequence[object]] = list(zip(*self._snapshots, strict=True)) or [[], [], [], []]
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
        parts = (record.steps.tolist(), record.query_codes, record.document_codes, record.similarity)
        self._snapshots = list(zip(*parts, strict=True))

    def _histogram(self) -> NDArray[np.int64]:
        similarity = self._method.similarity
        if similarity is None:
            return np.empty(0, dtype=np.int64)
        bins = len(BIN_EDGES) - 1
        bin_ids = ((similarity + 1) * (bins / 2)).astype(np.int64)
        return np.bincount(np.clip(bin_ids, 0, bins - 1), minlength=bins)  # rounding takes cosines past ±1


def _recorded_queries(pairs: TrainingPairs, seed: int) -> NDArray[np.int32]:
    """All queries, or a random part of them with at most ``MOST_PAIRS`` pairs, and at least one query."""
    order: IntArray = np.arange(pairs.n_queries)
    if pairs.n_pairs > MOST_PAIRS:
        order = generator(seed, "snapshots").permutation(pairs.n_queries)
        fits = int((np.cumsum(pairs.positives_per_query[order]) <= MOST_PAIRS).sum())
        order = np.sort(order[: max(1, fits)])
    return order.astype(np.int32)
