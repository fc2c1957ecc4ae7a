"""Which method ranks first, on one data set and on average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from opera.experiments.analysis.groups import Group


def average_ranks(groups: Sequence[Group], measure: str) -> dict[str, float]:
    """Rank the methods by a measure's mean on each data set, best first, and average the ranks (Table 2).

    Args:
        groups: one per method and data set. Methods missing on some data set are left out.
        measure: the measure.

    Returns:
        The average rank by label; empty where fewer than two methods have every data set.
    """
    means = {(group.data, group.method): group.mean(measure) for group in groups}
    data = list(dict.fromkeys(group.data for group in groups))
    labels = [
        m
        for m in dict.fromkeys(g.method for g in groups)
        if all((source, m) in means for source in data)
    ]
    if len(labels) < 2:
        return {}
    ranks = mean_ranks(np.array([[means[source, label] for label in labels] for source in data]))
    return dict(zip(labels, ranks.tolist(), strict=True))


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank the methods on each data set, highest value first, and average: ``[data sets, methods]`` to ``[methods]``.

    Equal values share the mean of their ranks.
    """
    return np.asarray(rankdata(-np.asarray(values), axis=1).mean(axis=0), dtype=np.float64)
