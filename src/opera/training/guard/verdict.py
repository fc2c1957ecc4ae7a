"""Was it worth it? A measure before and after, its bootstrap interval over queries, and the verdict in one word."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.runs.record import GuardedMeasure

RESAMPLES = 10_000
LEVEL = 0.95
CHUNK_CELLS = 4_000_000
LEAST_QUERIES = 6
"""Fewer dev queries are never ``better``: five of five gain by chance once in 32 times, more often than the
interval allows."""

Verdict = Literal["better", "same", "kept"]


def guarded_measure(
    before: NDArray[np.float64],
    fine_tuned: NDArray[np.float64],
    after: NDArray[np.float64],
    seed: int,
    split: str,
) -> GuardedMeasure:
    """Compare a measure per query, each float64 ``[n]``, before and after.

    Args:
        before: of the untrained model.
        fine_tuned: of the fine-tuned one, λ = 1.
        after: of the model handed over.
        seed: seed of the run.
        split: names the random stream.
    """
    low, high = bootstrap_interval(after - before, seed, f"guard.bootstrap.{split}")
    return GuardedMeasure(
        before=float(before.mean()),
        fine_tuned=float(fine_tuned.mean()),
        after=float(after.mean()),
        difference=float((after - before).mean()),
        low=low,
        high=high,
    )


def bootstrap_interval(differences: NDArray[np.float64], seed: int, name: str) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of differences, float64 ``[n]``, with ``RESAMPLES`` resamples.

    The queries are resampled with replacement; a query's difference stays whole.
    """
    count, rng = len(differences), generator(seed, name)
    chunk = max(1, CHUNK_CELLS // count)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, chunk):
        size = min(chunk, RESAMPLES - start)
        rows = rng.integers(count, size=(size, count), dtype=np.int32)
        means[start : start + size] = differences[rows].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def verdict_of(share: float, dev: GuardedMeasure, queries: int) -> Verdict:
    """``kept`` for λ = 0; ``better`` where the interval on dev lies above 0, with queries enough; else ``same``."""
    if share == 0:
        return "kept"
    return "better" if dev.low > 0 and queries >= LEAST_QUERIES else "same"
