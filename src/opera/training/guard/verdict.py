"""Was it worth it? A measure before and after, the interval of its change, and the verdict in one word."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.intervals import LEAST_QUERIES, mean_interval
from opera.runs.record import GuardedMeasure

Verdict = Literal["better", "same", "kept"]


def guarded_measure(
    before: NDArray[np.float64], fine_tuned: NDArray[np.float64], after: NDArray[np.float64]
) -> GuardedMeasure:
    """Compare a measure per query, each float64 ``[n]``, before and after.

    Args:
        before: of the untrained model.
        fine_tuned: of the fine-tuned one, λ = 1.
        after: of the model handed over.
    """
    low, high = mean_interval(after - before)
    return GuardedMeasure(
        queries=len(before),
        before=float(before.mean()),
        fine_tuned=float(fine_tuned.mean()),
        after=float(after.mean()),
        difference=float((after - before).mean()),
        low=low,
        high=high,
    )


def verdict_of(share: float, dev: GuardedMeasure, queries: int) -> Verdict:
    """``kept`` for λ = 0; ``better`` where the interval on dev lies above 0, with queries enough; else ``same``."""
    if share == 0:
        return "kept"
    return "better" if dev.low > 0 and queries >= LEAST_QUERIES else "same"
