"""How much of the training data a method drew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from opera.core.arrays import FloatArray, IntArray
from opera.experiments.analysis.groups import Group


@dataclass(frozen=True)
class Coverage:
    """How much of the training data was drawn, as means over the seeds.

    Attributes:
        queries: share of the training queries drawn at least once.
        pairs: share of the pairs drawn at least once.
        effective_queries: effective number of queries, (Σc)²/Σc² of their draws c, divided by the number of queries.
        effective_pairs: the same for pairs.
        noise_pairs: share of the pairs that were injected as noise; ``None`` without noise.
        noise_draws: share of the draws that fell on injected pairs; ``None`` without noise.
    """

    queries: float
    pairs: float
    effective_queries: float
    effective_pairs: float
    noise_pairs: float | None
    noise_draws: float | None


def compute_coverage(group: Group) -> Coverage:
    """Compute how much of the training data the runs of a group drew."""
    means = np.mean([_run_coverage(table) for table in group.pair_tables], axis=0).tolist()
    has_noise = means[4] > 0
    return Coverage(*means[:4], *(means[4:] if has_noise else (None, None)))


def effective_share(counts: FloatArray | IntArray) -> float:
    """Compute the effective number of items drawn, (Σc)²/Σc², divided by their number.

    Args:
        counts: draws of each item, ``[items]``.

    Returns:
        1 where all items were drawn equally often, ``1 / items`` where all draws fell on one.
    """
    drawn = np.asarray(counts, dtype=np.float64)
    return float(drawn.sum() ** 2 / np.square(drawn).sum() / len(drawn))


def _run_coverage(pairs: pa.Table) -> list[float]:
    """One run's values, in the order of :class:`Coverage`'s fields."""
    pair_draws = pairs["times_drawn"].to_numpy().astype(np.float64)
    _, query = np.unique(pairs["query_id"].to_numpy(zero_copy_only=False), return_inverse=True)
    query_draws = np.bincount(query, weights=pair_draws)
    injected = pairs["injected"].to_numpy(zero_copy_only=False)
    return [
        (query_draws > 0).mean(),
        (pair_draws > 0).mean(),
        effective_share(query_draws),
        effective_share(pair_draws),
        injected.mean(),
        pair_draws[injected].sum() / pair_draws.sum(),
    ]
