"""Several data sets in one run: how many pairs each gives to a step, and its method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.config.recipe import Recipe
from opera.core.settings import resolved
from opera.methods import Method, Plan

GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, modulo 1, fill every part of [0, 1) in proportion to its length, at any time."""


@dataclass(frozen=True)
class Quotas:
    """How many pairs each data set gives to a step.

    Attributes:
        probabilities: float64 ``[sets]``, how probable it is that a pair is drawn from each set;
            they add up to 1.
        one_set_per_step: whether all pairs of a step come from one set.
    """

    probabilities: NDArray[np.float64]
    one_set_per_step: bool = False

    @classmethod
    def of(cls, names: Sequence[str], pairs: Sequence[int], settings: MixingSettings) -> Quotas:
        """Return the quotas of sets with these names and numbers of pairs."""
        if settings.mix in ("proportional", "equal"):
            weights = np.array(pairs, dtype=np.float64) ** (settings.mix == "proportional")
        else:
            named = shares_by_name(settings.mix)
            weights = np.array([named[name] for name in names])
        return cls(weights / weights.sum(), settings.one_set_per_step)

    def of_step(self, step: int, batch_size: int) -> NDArray[np.int64]:
        """Return how many pairs each set gives to a step: int64 ``[sets]``."""
        unit = batch_size if self.one_set_per_step else 1
        exact = self.probabilities * batch_size / unit
        rounded = np.floor(exact + 1e-9).astype(np.int64)
        left = batch_size // unit - int(rounded.sum())
        if left == 0:
            return rounded * unit
        ends = np.cumsum(exact - rounded) / left
        ends[-1] = 1
        places = np.arange(step * left, (step + 1) * left) * GOLDEN % 1
        owners = np.searchsorted(ends, places, side="right")
        return (rounded + np.bincount(owners, minlength=len(rounded))) * unit

    def plans(self, plan: Plan) -> list[Plan]:
        """Return the plan of each set's method, by the run's.

        A method draws as many pairs at once as its set gives to a step at most, rounded up. Its
        schedule runs over its own draws.
        """
        plans = []
        for probability in self.probabilities.tolist():
            size = max(1, math.ceil(probability * plan.batch_size - 1e-9))
            size = plan.batch_size if self.one_set_per_step else size
            steps = math.ceil(plan.max_steps * plan.batch_size * probability / size) + 1
            plans.append(Plan(plan.seed, steps, size))
        return plans


def plan_of(recipe: Recipe, processes: int) -> Plan:
    """Return what a method needs to know of a run; automatic settings must be resolved."""
    train = recipe.train
    return Plan(train.seed, resolved(train.max_steps), train.queries_per_step(processes))


def summary_of(methods: Sequence[Method[Any]]) -> dict[str, Any]:
    """Return the facts about the methods of all sets, summed."""
    summaries = [method.summary() for method in methods]
    return {name: sum(facts[name] for facts in summaries) for name in summaries[0]}
