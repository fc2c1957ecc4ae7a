"""The 95% interval of a mean over queries, when there are too few of them to say much, and how
points are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.95
Z = 1.959964
"""The standard normal quantile of the upper end of a 95% interval."""
FEW_QUERIES = 50
"""Below so many queries a mean says little: a difference of several points is chance."""
LEAST_QUERIES = 20
"""With fewer dev queries no verdict is given: intervals of so few hold less than they say (the
simulation in docs/did-it-help.md)."""
MEASURE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)
"""The bounds of a measure, and of the difference of two."""
OF_ONE_QUERY = DIFFERENCE
"""The interval of values that say nothing, such as a single one, which nothing prints: it holds
every measure, and every difference of two."""
EQUAL = 1e-12
"""Values that differ by less are equal: their mean has no error to speak of."""


def mean_interval(
    values: NDArray[np.float64], level: float = LEVEL, bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Student's t interval of the mean of values, float64 ``[n]``: what the paired t-test does not
    reject.

    Equal values have no variance to test by. Their interval is their mean if :func:`equal_values_p`
    rejects every other mean, else :data:`OF_ONE_QUERY`.

    The interval is cut at the bounds. The mean lies within them, so a cut interval holds the mean
    as often, and holds 0 if and only if the test does not reject 0. An interval of the logit
    promises neither, and has no value for a mean of 0 or 1. If a value lies outside the bounds,
    such as a count of documents, nothing is cut.

    Args:
        values: one per query, or the difference of two models on it.
        level: the confidence.
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
    """Return the p-value of equal differences that are not 0: two of all 2ⁿ choices of their signs
    have a mean as far from 0. The exact permutation test has no smaller p.
    """
    return float(0.5 ** (count - 1))


def mean_intervals(values: Mapping[str, NDArray[np.float64]]) -> dict[str, tuple[float, float]]:
    """Return the interval of each measure's mean; none of a single query's."""
    return {
        measure: mean_interval(per_query, bounds=MEASURE)
        for measure, per_query in values.items()
        if len(per_query) > 1
    }


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share, ``count`` of ``total``; it lies within 0 and 1."""
    share, square = count / total, Z**2 / total
    centre, half = share + square / 2, (square * (share * (1 - share) + square / 4)) ** 0.5
    return max(0.0, (centre - half) / (1 + square)), min(1.0, (centre + half) / (1 + square))


def few_queries(queries: int, split: str = "test") -> str | None:
    """Return a warning where a split has too few queries to measure by; ``None`` where it has
    enough.
    """
    if queries >= FEW_QUERIES:
        return None
    plural = "query is" if queries == 1 else "queries are"
    return (
        f"warning: {queries} {split} {plural} few to measure by; differences of several points "
        f"can be chance ({FEW_QUERIES} or more are better)"
    )


def points(difference: float, digits: int = 1) -> str:
    """Write a difference of a measure in points: ``+1.2``, ``−0.3``; without a sign where it rounds
    to zero.
    """
    return signed(100 * difference, digits)


def signed(value: float, digits: int = 1) -> str:
    """Write a number with its sign, a minus as long as the plus; without one where it rounds to
    zero.
    """
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")
