"""Mix several data sets in one run: the pairs per step and the method of each data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.negatives import MixingSettings, shares_by_name
from opera.config.recipe import Recipe
from opera.core.settings import resolved
from opera.methods import Method, Plan

GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples modulo 1 are spread evenly over [0, 1), after any number of steps."""


@dataclass(frozen=True)
class Quotas:
    """The number of pairs of each data set in a step.

    Attributes:
        probabilities: float64 ``[sets]``, the probability of each set for a sampled pair, with a
            sum of 1.
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
            weight_of = shares_by_name(settings.mix)
            weights = np.array([weight_of[name] for name in names])
        return cls(weights / weights.sum(), settings.one_set_per_step)

    def of_step(self, step: int, batch_size: int) -> NDArray[np.int64]:
        """Return the number of pairs of each set in a step: int64 ``[sets]``."""
        unit = batch_size if self.one_set_per_step else 1
        exact = self.probabilities * batch_size / unit
        rounded = np.floor(exact + 1e-9).astype(np.int64)
        remaining = batch_size // unit - int(rounded.sum())
        if remaining == 0:
            return rounded * unit
        ends = np.cumsum(exact - rounded) / remaining
        ends[-1] = 1
        places = np.arange(step * remaining, (step + 1) * remaining) * GOLDEN % 1
        sets = np.searchsorted(ends, places, side="right")
        return (rounded + np.bincount(sets, minlength=len(rounded))) * unit

    def plans(self, plan: Plan) -> list[Plan]:
        """Return the plan of each set's method from the plan of the run.

        The batch size of a method is the largest number of pairs that its set has in a step. Its
        schedule counts its own batches.
        """
        plans = []
        for probability in self.probabilities.tolist():
            size = max(1, math.ceil(probability * plan.batch_size - 1e-9))
            size = plan.batch_size if self.one_set_per_step else size
            steps = math.ceil(plan.max_steps * plan.batch_size * probability / size) + 1
            plans.append(Plan(plan.seed, steps, size))
        return plans


def plan_of(recipe: Recipe, processes: int) -> Plan:
    """Return the plan of a run for its method; automatic settings must be resolved."""
    train = recipe.train
    return Plan(train.seed, resolved(train.max_steps), train.queries_per_step(processes))


def summary_of(methods: Sequence[Method[Any]]) -> dict[str, Any]:
    """Return the facts about a method; of several sets, the sums of counts and lists of others."""
    summaries = [method.summary() for method in methods]
    if len(summaries) == 1:
        return summaries[0]
    facts = {name: [summary[name] for summary in summaries] for name in summaries[0]}
    return {
        name: sum(values) if all(isinstance(value, Integral) for value in values) else values
        for name, values in facts.items()
    }
