"""The measures that OPERA reports: their names, their 95% intervals, and points as text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

PRIMARY = "nDCG@10"
"""The measure that chooses and compares models, unless ``metric_for_best_model`` is set."""
RECALL = "R@20"
SUCCESS = "Success@10"
DEFAULT_MEASURES = (PRIMARY, RECALL, "RR@10", SUCCESS)
LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
"""The probability that a value lies above, or below, its 95% interval."""
FEW_QUERIES = 50
"""With fewer queries, a difference of several points can be chance."""
LEAST_QUERIES = 20
"""With fewer dev queries there is no verdict: the coverage of the intervals is too low (simulation
in docs/did-it-help.md)."""
MEASURE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)
"""The bounds of a measure, and of the difference of two."""
OF_ONE_QUERY = DIFFERENCE
"""The interval of a single query: it contains every difference. It is never printed."""
EQUAL = 1e-12
"""Values that differ by less are treated as equal."""


def mean_interval(
    values: NDArray[np.float64], level: float = LEVEL, bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return Student's t interval of the mean of values, float64 ``[n]``: the means that the
    t-test does not reject.

    Equal values have no variance, so there is no t-test. Return their mean alone if
    :func:`equal_values_p` rejects every other mean, else :data:`OF_ONE_QUERY`.

    The interval is cut at the bounds. The true mean is within them, so the coverage does not
    change. The interval still contains 0 if and only if the test does not reject 0. An interval of
    the logit guarantees neither, and does not exist for a mean of 0 or 1. If a value is outside the
    bounds, nothing is cut.

    Args:
        values: a measure of each query, or the difference of two models on it.
        level: the confidence level.
        bounds: :data:`MEASURE` or :data:`DIFFERENCE`.
    """
    mean, count, least, most = float(values.mean()), len(values), values.min(), values.max()
    if most - least < EQUAL:
        return (mean, mean) if equal_values_p(count) < 1 - level else OF_ONE_QUERY
    from scipy.special import stdtrit  # here, since a search needs no scipy

    half = float(stdtrit(count - 1, (1 + level) / 2) * values.std(ddof=1) / count**0.5)
    if bounds is None or least < bounds[0] or most > bounds[1]:
        return mean - half, mean + half
    return max(bounds[0], mean - half), min(bounds[1], mean + half)


def equal_values_p(count: int) -> float:
    """Return the p-value of the exact permutation test for equal differences other than 0.

    Of all 2ⁿ choices of signs, two have a mean as far from 0.
    """
    return float(0.5 ** (count - 1))


def mean_intervals(values: Mapping[str, NDArray[np.float64]]) -> dict[str, tuple[float, float]]:
    """Return the interval of each measure's mean. A single query has none."""
    return {
        measure: mean_interval(per_query, bounds=MEASURE)
        for measure, per_query in values.items()
        if len(per_query) > 1
    }


def fraction_interval(count: float, total: float) -> tuple[float, float]:
    """Return Clopper and Pearson's exact 95% interval of the fraction ``count / total``.

    Both numbers may be effective ones, which are not whole.
    """
    from scipy.special import betaincinv  # here, since a search needs no scipy

    low = float(betaincinv(count, total - count + 1, TAIL)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - TAIL)) if count < total else 1.0
    return low, high


def few_queries(queries: int, split: str = "test") -> str | None:
    """Return a warning if a split has too few queries to measure by, else ``None``."""
    if queries >= FEW_QUERIES:
        return None
    plural = "query is" if queries == 1 else "queries are"
    return (
        f"warning: {queries} {split} {plural} few to measure by; differences of several points "
        f"can be chance ({FEW_QUERIES} or more are better)"
    )


def in_points(value: float) -> str:
    """Write a measure in points: ``46.0`` for 0.46."""
    return f"{100 * value:.1f}"


def points(difference: float) -> str:
    """Write a difference of a measure in points: ``+1.2``, ``−0.3``, and ``0.0`` without a sign."""
    return signed(100 * difference)


def signed(value: float, digits: int = 1) -> str:
    """Write a number with its sign, and without a sign if it rounds to zero. The minus is
    U+2212, which is as wide as the plus.
    """
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


SEARCHES = ("base", "final", "bm25")
"""The searches whose documents ``per_query.parquet`` lists: both models and keyword search."""


def column(model: str, measure: str) -> str:
    """Return the name of a column of ``per_query.parquet``: ``base nDCG@10``."""
    return f"{model} {measure}"


def trainer_key(measure: str) -> str:
    """Return the name of a dev measure in the trainer's logs: ``eval_nDCG@10``."""
    return f"eval_{measure}"


def index_sentence(final: Mapping[str, float], base: Mapping[str, float] | None = None) -> str:
    """Describe the size of a model's index, and of the base model's if it has the same parts."""
    before = base if base and base.keys() == final.keys() else None
    parts = (
        f"{name} {_rounded(before[name])} -> {_rounded(value)}"
        if before is not None
        else f"{name} {_rounded(value)}"
        for name, value in final.items()
    )
    return f"The index: {', '.join(parts)}."


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
