"""What groups show beside means: ranks, convergence, and quality by difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from opera.config.trainer import PRIMARY
from opera.core.arrays import FloatArray
from opera.experiments.analysis.groups import Group, ratio

BUCKETS = ("hard", "medium", "easy")


@dataclass(frozen=True)
class Convergence:
    """When a method first matches the baseline's best mean over the seeds.

    Attributes:
        data: the data set.
        method: the method's label.
        target: the baseline's best mean.
        baseline_steps: the number of steps at which the baseline reaches it.
        steps: the fewest steps at which the method reaches it; ``None`` if it never does.
        step_ratio: ``steps`` divided by ``baseline_steps``.
        seconds_ratio: its training seconds divided by the baseline's, each a median over the seeds.
    """

    data: str
    method: str
    target: float
    baseline_steps: int
    steps: int | None
    step_ratio: float | None
    seconds_ratio: float | None


def compute_convergence(
    groups: Sequence[Group], baseline: str, measure: str = PRIMARY
) -> list[Convergence]:
    """Find when each method on each data set first matches the baseline's best, baseline first.

    Data sets with a single number of steps, or without the baseline, are left out.
    """
    convergence = []
    for data in dict.fromkeys(group.data for group in groups):
        by_steps = sorted((g for g in groups if g.data == data), key=lambda group: group.steps)
        reference = [group for group in by_steps if group.method == baseline]
        if not reference or len({group.steps for group in by_steps}) < 2:
            continue
        best = max(reference, key=lambda group: group.mean(measure))
        target = best.mean(measure)
        for label in dict.fromkeys([baseline, *(group.method for group in by_steps)]):
            own = (g for g in by_steps if g.method == label and g.mean(measure) >= target)
            reached: tuple[Any, ...] = (None, None, None)
            if (first := next(own, None)) is not None:
                seconds_ratio = ratio(first.training_seconds, best.training_seconds)
                reached = (first.steps, first.steps / best.steps, seconds_ratio)
            convergence.append(Convergence(data, label, target, best.steps, *reached))
    return convergence


def average_ranks(groups: Sequence[Group], measure: str) -> dict[str, float]:
    """Rank the methods by their mean on each data set, best first, and average (Table 2).

    There is one group per method and data set. Methods missing on some data set are left out;
    empty where fewer than two have every one.
    """
    means = {(group.data, group.method): group.mean(measure) for group in groups}
    data = list(dict.fromkeys(group.data for group in groups))
    methods = dict.fromkeys(group.method for group in groups)
    labels = [m for m in methods if all((source, m) in means for source in data)]
    if len(labels) < 2:
        return {}
    ranks = mean_ranks(np.array([[means[source, label] for label in labels] for source in data]))
    return dict(zip(labels, ranks.tolist(), strict=True))


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank methods by value, highest first, ``[data sets, methods]``; average to ``[methods]``.

    Equal values share the mean of their ranks.
    """
    return np.asarray(rankdata(-np.asarray(values), axis=1).mean(axis=0), dtype=np.float64)


def tertiles(similarity: FloatArray) -> NDArray[np.int64]:
    """Split queries ``[n]`` into thirds by the untrained similarity to their positives.

    int64 ``[n]``: 0 hard (least similar), 1 medium, 2 easy (Appendix D.6).
    """
    rank = np.argsort(np.argsort(similarity, kind="stable"), kind="stable")
    return np.asarray(len(BUCKETS) * rank // len(similarity), dtype=np.int64)
