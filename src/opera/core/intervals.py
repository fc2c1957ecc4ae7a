"""The 95% interval of a mean over queries, and when there are too few queries to say much."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator

RESAMPLES = 10_000
LEVEL = 0.95
NORMAL_QUANTILE = 1.959964
"""Of the standard normal distribution at 97.5%."""
MANY_VALUES = 20_000
"""From so many values on the interval is the normal one: the bootstrap's differs by less than it varies itself."""
CHUNK_CELLS = 4_000_000
FEW_QUERIES = 50
"""Below so many queries a mean says little: a difference of several points is chance."""


def mean_interval(values: NDArray[np.float64], seed: int, name: str) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of values, float64 ``[n]``, with ``RESAMPLES`` resamples.

    The queries are resampled with replacement; a query's value, or its difference of two models, stays whole.

    Args:
        values: one per query.
        seed: seed of the resamples.
        name: names the random stream.
    """
    count = len(values)
    if count >= MANY_VALUES:
        mean, half = float(values.mean()), NORMAL_QUANTILE * float(values.std(ddof=1)) / count**0.5
        return mean - half, mean + half
    rng, chunk = generator(seed, name), max(1, CHUNK_CELLS // count)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, chunk):
        size = min(chunk, RESAMPLES - start)
        rows = rng.integers(count, size=(size, count), dtype=np.int32)
        means[start : start + size] = values[rows].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def mean_intervals(values: Mapping[str, NDArray[np.float64]]) -> dict[str, tuple[float, float]]:
    """Return the interval of each measure's mean; the same queries are resampled for all."""
    return {measure: mean_interval(per_query, 0, "intervals.measures") for measure, per_query in values.items()}


def few_queries(queries: int, split: str = "test") -> str | None:
    """Return a warning where a split has too few queries to measure by; ``None`` where it has enough."""
    if queries >= FEW_QUERIES:
        return None
    plural = "query is" if queries == 1 else "queries are"
    return (
        f"warning: {queries} {split} {plural} few to measure by; differences of several points can be chance "
        f"({FEW_QUERIES} or more are better)"
    )


def points(difference: float) -> str:
    """Write a difference of a measure in points, signed: ``+1.2``."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}".replace("-", "−")  # 0.0 makes −0.0 a zero
