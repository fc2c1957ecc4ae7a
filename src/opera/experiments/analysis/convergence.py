"""How many steps a method needs to match the baseline's best result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opera.experiments.analysis.groups import PRIMARY, Group, ratio


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
    """For each data set and method, find when it first matches the baseline's best; the baseline comes first.

    Data sets with a single number of steps, or without the baseline, are left out.
    """
    convergence = []
    for data in dict.fromkeys(group.data for group in groups):
        by_steps = sorted(
            (group for group in groups if group.data == data), key=lambda group: group.steps
        )
        reference = [group for group in by_steps if group.method == baseline]
        if not reference or len({group.steps for group in by_steps}) < 2:
            continue
        best = max(reference, key=lambda group: group.mean(measure))
        for label in dict.fromkeys([baseline, *(group.method for group in by_steps)]):
            own = [group for group in by_steps if group.method == label]
            convergence.append(_first_match(own, best, measure))
    return convergence


def _first_match(groups: Sequence[Group], best: Group, measure: str) -> Convergence:
    """Find the first of a method's groups, by steps, that is as good as the baseline's best."""
    target = best.mean(measure)
    first = next((group for group in groups if group.mean(measure) >= target), None)
    return Convergence(
        data=best.data,
        method=groups[0].method,
        target=target,
        baseline_steps=best.steps,
        steps=first.steps if first else None,
        step_ratio=first.steps / best.steps if first else None,
        seconds_ratio=ratio(first.training_seconds, best.training_seconds) if first else None,
    )
