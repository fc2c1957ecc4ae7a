"""The steps at which a method reaches the baseline's best result (the paper's Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opera.core.measure_names import PRIMARY
from opera.experiments.analysis.groups import Group


@dataclass(frozen=True)
class Convergence:
    """The number of steps at which a method first matches the baseline's best mean over the seeds.

    Attributes:
        data: the data set.
        method: the method's label.
        target: the baseline's best mean.
        baseline_steps: the number of steps of the baseline's best mean.
        steps: the fewest steps at which the method reaches the target; ``None`` if it never does.
        seconds_ratio: training seconds divided by the baseline's, as medians over the seeds.
    """

    data: str
    method: str
    target: float
    baseline_steps: int
    steps: int | None
    seconds_ratio: float | None


def compute_convergence(groups: Sequence[Group], baseline: str) -> list[Convergence]:
    """Compute the convergence of all methods on all data sets; the baseline comes first.

    Data sets with a single number of steps, or without the baseline, are omitted.
    """
    convergence = []
    for data in dict.fromkeys(group.data for group in groups):
        by_steps = sorted((g for g in groups if g.data == data), key=lambda group: group.steps)
        reference = [group for group in by_steps if group.method == baseline]
        if not reference or len({group.steps for group in by_steps}) < 2:
            continue
        best = max(reference, key=lambda group: group.mean_std(PRIMARY).mean)
        target = best.mean_std(PRIMARY).mean
        for label in dict.fromkeys([baseline, *(group.method for group in by_steps)]):
            matching = (
                (group.steps, group.training_seconds / best.training_seconds)
                for group in by_steps
                if group.method == label and group.mean_std(PRIMARY).mean >= target
            )
            steps, seconds_ratio = next(matching, (None, None))
            convergence.append(Convergence(data, label, target, best.steps, steps, seconds_ratio))
    return convergence
