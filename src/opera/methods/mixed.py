"""Several data sets in one run: each has a method of its own and gives a quota to each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Plan, Probabilities
from opera.methods.first_visits import FirstVisits
from opera.methods.scores import PairScores

GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, modulo 1, fill every part of [0, 1) in proportion to its length, at any time."""


@dataclass(frozen=True)
class Mixture:
    """Which training queries belong to which set, and how much each set is drawn.

    Attributes:
        first_queries: int64 ``[sets + 1]``; the training queries of set i are ``first_queries[i]``
            to ``first_queries[i + 1]``.
        shares: float64 ``[sets]``, the share of the draws from each set; they add up to 1.
        one_set_per_step: whether all pairs of a step come from one set.
    """

    first_queries: NDArray[np.int64]
    shares: NDArray[np.float64]
    one_set_per_step: bool = False

    def first_pairs(self, pairs: TrainingPairs) -> NDArray[np.int64]:
        """Where the pairs of each set begin, and where the last ends: int64 ``[sets + 1]``."""
        return pairs.query_offsets[self.first_queries]

    def quotas(self, step: int, batch_size: int) -> NDArray[np.int64]:
        """How many pairs each set gives to a step, by its share: int64 ``[sets]``."""
        unit = batch_size if self.one_set_per_step else 1
        exact = self.shares * batch_size / unit
        whole = np.floor(exact + 1e-9).astype(np.int64)
        left = batch_size // unit - int(whole.sum())
        if left == 0:
            return whole * unit
        ends = np.cumsum(exact - whole) / left
        ends[-1] = 1
        places = np.arange(step * left, (step + 1) * left) * GOLDEN % 1
        owners = np.searchsorted(ends, places, side="right")
        return (whole + np.bincount(owners, minlength=len(whole))) * unit

    def largest(self, batch_size: int) -> NDArray[np.int64]:
        """The share of a batch that each set gives to a step, rounded up: int64 ``[sets]``."""
        exact = np.ceil(self.shares * batch_size - 1e-9)
        return np.where(self.one_set_per_step, batch_size, np.maximum(1, exact)).astype(np.int64)


class MixedMethod(Method[Settings]):
    """A method of any class for each set.

    Each draws whole batches of its own, and knows the scores of its own pairs alone. Its schedule
    runs over its own steps. What a batch holds beyond a step's quota waits for the next.

    Args:
        method_class: the class that draws from each set.
        pairs: the pairs of all sets, set after set.
        plan: of the run.
        settings: the method's own.
        scores: of all pairs, where the method needs them.
        mixture: the sets.
    """

    def __init__(
        self,
        method_class: type[Method[Any]],
        pairs: TrainingPairs,
        plan: Plan,
        settings: Settings,
        scores: PairScores | None,
        mixture: Mixture,
    ) -> None:
        self.pairs, self.plan, self.settings, self.scores = pairs, plan, settings, scores
        self.name, self.title = method_class.name, method_class.title  # type: ignore[misc]
        self.mixture, self._first_pairs = mixture, mixture.first_pairs(pairs)
        self.visits = FirstVisits.none(pairs.n_pairs, self._first_pairs)
        self._methods: list[Method[Any]] = []
        owner = self.visits.set_of(np.arange(pairs.n_pairs))
        sizes = mixture.largest(plan.batch_size).tolist()
        for number, (share, size) in enumerate(zip(mixture.shares, sizes, strict=True)):
            own, _ = pairs.subset(owner == number)
            steps = math.ceil(plan.max_steps * plan.batch_size * share / size) + 1
            own_scores = None if scores is None else scores.subset(owner == number, own)
            own_plan = Plan(plan.seed, steps, size)
            made = method_class(own, own_plan, settings, own_scores)
            made.visits = self.visits.part(number)
            self._methods.append(made)
        self._step, self._steps = 0, [0] * len(sizes)
        self._waiting = [Draw.unweighted(np.empty(0, dtype=np.int64)) for _ in sizes]
        self.kept = np.concatenate([method.kept for method in self._methods])

    def draw(self, step: int) -> Draw:
        """Return the quota of each set, one set after another."""
        self._step = step
        taken = []
        for number, quota in enumerate(self.mixture.quotas(step, self.plan.batch_size).tolist()):
            ids, weights = self._waiting[number].pair_ids, self._waiting[number].weights
            while len(ids) < quota:
                drawn = self._methods[number].draw(self._steps[number])
                self._steps[number] += 1
                ids = np.concatenate([ids, drawn.pair_ids + self._first_pairs[number]])
                weights = np.concatenate([weights, drawn.weights])
            taken.append((ids[:quota], weights[:quota]))
            self._waiting[number] = Draw(ids[quota:], weights[quota:])
        return Draw(*(np.concatenate(arrays) for arrays in zip(*taken, strict=True)))

    def probabilities(self, step: int) -> Probabilities:
        """Those of each set, times its share of the step drawn last (before any: the first)."""
        shares = self.mixture.quotas(self._step, self.plan.batch_size) / self.plan.batch_size
        own = [
            method.probabilities(max(0, drawn - 1))
            for method, drawn in zip(self._methods, self._steps, strict=True)
        ]
        return Probabilities(
            np.concatenate([share * part.query for share, part in zip(shares, own, strict=True)]),
            np.concatenate([part.document for part in own]),
            np.concatenate([part.query_weight for part in own]),
            self.pairs.pair_query,
        )

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Give every set what was observed of its pairs."""
        owner = self.visits.set_of(pair_ids)
        for number in np.unique(owner).tolist():
            ids, *values = (
                np.asarray(each)[owner == number] for each in (pair_ids, similarity, loss)
            )
            self._methods[number].observe(ids - self._first_pairs[number], *values)

    def schedule(self, step: int) -> dict[str, float]:
        """The schedule of each set, its names with the set's number behind them."""
        return {
            f"{name}_{number}": value
            for number, (method, drawn) in enumerate(
                zip(self._methods, self._steps, strict=True), 1
            )
            for name, value in method.schedule(max(0, drawn - 1)).items()
        }

    @property
    def similarity(self) -> FloatArray | None:
        """The latest similarity of each pair, ``[N]``; ``None`` if the methods keep no scores."""
        own = [method.similarity for method in self._methods]
        return None if any(part is None for part in own) else np.concatenate(own)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """The state of each set, and what waits there."""
        each = zip(self._methods, self._steps, self._waiting, strict=True)
        return {"step": self._step} | {
            str(number): {
                "step": step,
                "ids": waiting.pair_ids,
                "weights": waiting.weights,
                "method": method.state_dict(),
            }
            for number, (method, step, waiting) in enumerate(each)
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._step = int(state["step"])
        for number, method in enumerate(self._methods):
            own = state[str(number)]
            self._steps[number] = int(own["step"])
            self._waiting[number] = Draw(np.array(own["ids"]), np.array(own["weights"]))
            method.load_state_dict(own.get("method", {}))
        self.kept = np.concatenate([method.kept for method in self._methods])

    def summary(self) -> dict[str, Any]:
        """The counts of all sets together."""
        own = [method.summary() for method in self._methods]
        return {name: sum(part[name] for part in own) for name in own[0]}
