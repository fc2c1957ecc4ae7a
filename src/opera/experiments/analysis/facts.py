"""What else a group of runs tells: how much of the data it drew, on which queries it is good, how soon it is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from opera.core.arrays import FloatArray, IntArray
from opera.experiments.analysis.groups import PAPERS, PRIMARY, Group

BUCKETS = ("hard", "medium", "easy")


@dataclass(frozen=True)
class Coverage:
    """How much of the training data was drawn, means over the seeds.

    Attributes:
        queries: share of the training queries drawn at least once.
        pairs: share of the pairs drawn at least once.
        effective_queries: effective number of queries, (Σc)²/Σc² of their draws c, over all queries.
        effective_pairs: the same of pairs.
        noise_pairs: share of the pairs that were injected as noise; ``None`` without any.
        noise_draws: share of the draws that fell on them.
    """

    queries: float
    pairs: float
    effective_queries: float
    effective_pairs: float
    noise_pairs: float | None
    noise_draws: float | None


@dataclass(frozen=True)
class Race:
    """When a method first reaches the best that the baseline ever reaches, by the means over the seeds.

    Attributes:
        data: the data set.
        method: the method's label.
        target: the baseline's best mean.
        baseline_steps: the steps with which the baseline has it.
        steps: the fewest steps with which the method is as good; ``None`` where it never is.
        step_ratio: those over the baseline's.
        seconds_ratio: its training seconds over the baseline's, medians over the seeds.
    """

    data: str
    method: str
    target: float
    baseline_steps: int
    steps: int | None
    step_ratio: float | None
    seconds_ratio: float | None


def coverage(group: Group) -> Coverage:
    """How much of the training data the runs of a group drew."""
    rows = []
    for table in group.pair_tables:
        drawn = table["times_drawn"].to_numpy().astype(np.float64)
        _, query = np.unique(table["query_id"].to_numpy(zero_copy_only=False), return_inverse=True)
        of_queries = np.bincount(query, weights=drawn)
        injected = table["injected"].to_numpy(zero_copy_only=False)
        rows.append(
            [
                (of_queries > 0).mean(),
                (drawn > 0).mean(),
                effective_share(of_queries),
                effective_share(drawn),
                injected.mean(),
                drawn[injected].sum() / drawn.sum(),
            ]
        )
    means = np.mean(rows, axis=0).tolist()
    return Coverage(*means[:4], *(means[4:] if means[4] > 0 else (None, None)))


def effective_share(counts: FloatArray | IntArray) -> float:
    """The effective number of what was drawn, (Σc)²/Σc², over how much there was to draw: 1 where all alike."""
    drawn = np.asarray(counts, dtype=np.float64)
    return float(drawn.sum() ** 2 / np.square(drawn).sum() / len(drawn))


def tertiles(similarity: FloatArray) -> NDArray[np.int64]:
    """Cut queries ``[n]`` into thirds by the pretrained similarity to their positives (Appendix D.6).

    Returns:
        int64 ``[n]``: 0 hard (least similar), 1 medium, 2 easy.
    """
    place = np.argsort(np.argsort(similarity, kind="stable"), kind="stable")
    return np.asarray(len(BUCKETS) * place // len(similarity), dtype=np.int64)


def by_difficulty(group: Group, measure: str, when: str = "after") -> dict[str, float] | None:
    """A measure's mean in each third of the queries, averaged over the seeds; ``None`` where runs lack similarities.

    Args:
        group: the runs.
        measure: the measure.
        when: ``after`` training, or ``before``.
    """
    rows = []
    for table in group.query_tables:
        column = f"{when} {measure}"
        if not {"similarity", column} <= set(table.column_names) or table.num_rows < len(BUCKETS):
            return None
        third = tertiles(table["similarity"].to_numpy())
        values = table[column].to_numpy()
        rows.append([values[third == place].mean() for place in range(len(BUCKETS))])
    return dict(zip(BUCKETS, np.mean(rows, axis=0).tolist(), strict=True))


def average_ranks(groups: Sequence[Group], measure: str) -> dict[str, float]:
    """Rank the methods on each data set by a measure's mean, best first, ties shared, and average (Table 2).

    Args:
        groups: one a method and data set; methods that some data set lacks are left out.
        measure: the measure.

    Returns:
        The average rank by label; empty where fewer than two methods are on every data set.
    """
    means = {(group.data, group.method): float(group.values(measure).mean()) for group in groups}
    data = list(dict.fromkeys(group.data for group in groups))
    labels = [m for m in dict.fromkeys(g.method for g in groups) if all((source, m) in means for source in data)]
    if len(labels) < 2:
        return {}
    ranks = mean_ranks(np.array([[means[source, label] for label in labels] for source in data]))
    return dict(zip(labels, ranks.tolist(), strict=True))


def mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank the methods on each data set, highest first, and average: ``[data sets, methods]`` to ``[methods]``.

    Equal values share the mean of their places.
    """
    return np.asarray(rankdata(-np.asarray(values), axis=1).mean(axis=0), dtype=np.float64)


def races(groups: Sequence[Group], baseline: str, measure: str = PRIMARY) -> list[Race]:
    """Tell for each data set and method when it first reaches the baseline's best, the baseline itself first.

    Data sets with one number of steps, or without the baseline, have no race.
    """
    found = []
    for data in dict.fromkeys(group.data for group in groups):
        here = sorted((group for group in groups if group.data == data), key=lambda group: group.steps)
        reference = [group for group in here if group.method == baseline]
        if not reference or len({group.steps for group in here}) < 2:
            continue
        best = max(reference, key=lambda group: float(group.values(measure).mean()))
        target = float(best.values(measure).mean())
        for label in dict.fromkeys([baseline, *(group.method for group in here)]):
            first = _first(target, (group for group in here if group.method == label), measure)
            ratios = (None, None) if first is None else _ratios(first, best)
            found.append(Race(data, label, target, best.steps, first.steps if first else None, *ratios))
    return found


def winners(groups: Sequence[Group], measures: Sequence[str] = (PRIMARY, PAPERS)) -> dict[str, str]:
    """The label with the highest mean by each measure, of groups on one data set."""
    return {measure: max(groups, key=lambda group: float(group.values(measure).mean())).method for measure in measures}


def _first(target: float, groups: Iterable[Group], measure: str) -> Group | None:
    return next((group for group in groups if group.values(measure).mean() >= target), None)


def _ratios(first: Group, best: Group) -> tuple[float, float]:
    return first.steps / best.steps, first.training_seconds / best.training_seconds
