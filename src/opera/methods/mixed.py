"""Several data sets in one run: every set has a method of its own, and each step takes a quota of pairs from it."""

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
from opera.methods.scores import PairScores


@dataclass(frozen=True)
class Mixture:
    """Which training queries belong to which set, and how much each set is drawn.

    Attributes:
        first_queries: int64 ``[sets + 1]``; the training queries of set i are ``first_queries[i]`` to
            ``first_queries[i + 1]``.
        shares: float64 ``[sets]``, the share of the draws from each set; they add up to 1.
        one_set_per_step: whether all pairs of a step come from one set.
    """

    first_queries: NDArray[np.int64]
    shares: NDArray[np.float64]
    one_set_per_step: bool = False

    def first_pairs(self, pairs: TrainingPairs) -> NDArray[np.int64]:
        """Where the pairs of each set begin, and where the last ends: int64 ``[sets + 1]``."""
        return pairs.query_offsets[self.first_queries]


class _Quotas:
    """How many pairs each set gives to a step: its share of the batch, rounded so that no set falls behind."""

    def __init__(self, shares: NDArray[np.float64], batch_size: int, *, one_set: bool) -> None:
        exact = shares * batch_size
        unit = batch_size if one_set else 1
        self.unit = unit
        self.base = (
            np.zeros(len(shares), dtype=np.int64)
            if one_set
            else np.floor(exact + 1e-9).astype(np.int64)
        )
        self.rest = (exact - self.base) / unit
        self.left = (batch_size - int(self.base.sum())) // unit
        self.credit = np.zeros(len(shares))

    @property
    def most(self) -> NDArray[np.int64]:
        """The most pairs that each set gives to a step: int64 ``[sets]``."""
        return np.maximum(1, self.base + self.unit * (self.rest > 1e-9))

    def next(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the quotas of the next step, int64 ``[sets]``, and the credit that is left after it."""
        credit = self.credit + self.rest
        quotas = self.base.copy()
        chosen = np.argsort(-np.round(credit, 9), kind="stable")[: self.left]
        quotas[chosen] += self.unit
        credit[chosen] -= 1
        return quotas, credit


def most_per_step(
    shares: NDArray[np.float64], batch_size: int, *, one_set: bool
) -> NDArray[np.int64]:
    """Return the most pairs that each set gives to a step: int64 ``[sets]``.

    Args:
        shares: float64 ``[sets]``, the share of the draws from each; they add up to 1.
        batch_size: pairs per step.
        one_set: whether all pairs of a step come from one set.
    """
    return _Quotas(shares, batch_size, one_set=one_set).most


class _Source:
    """One set: its method, and the pairs that it drew and no step took yet."""

    def __init__(self, method: Method[Any], first_pair: int) -> None:
        self.method, self.first_pair = method, first_pair
        self.step = 0
        self.ids, self.weights = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)

    def take(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        while len(self.ids) < count:
            drawn = self.method.draw(self.step)
            self.step += 1
            self.ids = np.concatenate([self.ids, drawn.pair_ids + self.first_pair])
            self.weights = np.concatenate([self.weights, drawn.weights])
        taken = self.ids[:count], self.weights[:count]
        self.ids, self.weights = self.ids[count:], self.weights[count:]
        return taken

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "ids": self.ids,
            "weights": self.weights,
            "method": self.method.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])
        self.ids, self.weights = np.array(state["ids"]), np.array(state["weights"])
        self.method.load_state_dict(state.get("method", {}))


class MixedMethod(Method[Settings]):
    """A method of any class for each set.

    Each draws whole batches of its own, of as many pairs as its set gives to a step at most, and knows the scores of
    its own pairs alone. Its schedule runs over its own steps. What a batch holds beyond a step's quota waits for the
    next.

    Attributes:
        mixture: the sets.

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
        self.pairs, self.plan, self.settings, self.scores, self.mixture = (
            pairs,
            plan,
            settings,
            scores,
            mixture,
        )
        self._quotas = _Quotas(mixture.shares, plan.batch_size, one_set=mixture.one_set_per_step)
        self._at_step = self._quotas.next()[0]
        self._first_pairs = mixture.first_pairs(pairs)
        self._sources = [
            self._source(method_class, number, int(most))
            for number, most in enumerate(self._quotas.most.tolist())
        ]
        self.name, self.title = method_class.name, method_class.title  # type: ignore[misc]
        self.kept = np.concatenate([source.method.kept for source in self._sources])

    def _source(self, method_class: type[Method[Any]], number: int, batch_size: int) -> _Source:
        whole = np.zeros(self.pairs.n_pairs, dtype=bool)
        first, end = self._first_pairs[number : number + 2]
        whole[first:end] = True
        own, _ = self.pairs.subset(whole)
        drawn = self.plan.max_steps * self.plan.batch_size * self.mixture.shares[number]
        plan = Plan(self.plan.seed, math.ceil(drawn / batch_size) + 1, batch_size)
        scores = None if self.scores is None else self.scores.subset(whole, own)
        return _Source(method_class(own, plan, self.settings, scores), int(first))

    def draw(self, step: int) -> Draw:
        """Return the quota of each set, one set after another."""
        self._at_step, self._quotas.credit = self._quotas.next()
        taken = [
            source.take(int(quota))
            for source, quota in zip(self._sources, self._at_step, strict=True)
        ]
        ids, weights = zip(*taken, strict=True)
        return Draw(np.concatenate(ids), np.concatenate(weights))

    def probabilities(self, step: int) -> Probabilities:
        """Those of each set, times its share of the step drawn last (before any draw: the first)."""
        own = [source.method.probabilities(max(0, source.step - 1)) for source in self._sources]
        shares = self._at_step / self.plan.batch_size
        return Probabilities(
            np.concatenate([share * part.query for share, part in zip(shares, own, strict=True)]),
            np.concatenate([part.document for part in own]),
            np.concatenate([part.query_weight for part in own]),
            self.pairs.pair_query,
        )

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Give every set what was observed of its pairs."""
        ids = np.asarray(pair_ids, dtype=np.int64)
        owner = np.searchsorted(self._first_pairs, ids, side="right") - 1
        for number, source in enumerate(self._sources):
            own = owner == number
            if own.any():
                values = (np.asarray(part)[own] for part in (similarity, loss))
                source.method.observe(ids[own] - source.first_pair, *values)

    def schedule(self, step: int) -> dict[str, float]:
        """The schedule of each set, its names with the set's number behind them."""
        return {
            f"{name}_{number}": value
            for number, source in enumerate(self._sources, start=1)
            for name, value in source.method.schedule(max(0, source.step - 1)).items()
        }

    @property
    def similarity(self) -> FloatArray | None:
        """The latest similarity of each pair, ``[N]``; ``None`` if the methods keep no scores."""
        own = [source.method.similarity for source in self._sources]
        return None if any(part is None for part in own) else np.concatenate(own)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """The state of each set, and what each is owed."""
        states = {str(number): source.state_dict() for number, source in enumerate(self._sources)}
        return {
            "credit": self._quotas.credit.copy(),
            "at_step": self._at_step.copy(),
            "sets": states,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._quotas.credit, self._at_step = np.array(state["credit"]), np.array(state["at_step"])
        for number, source in enumerate(self._sources):
            source.load_state_dict(state["sets"][str(number)])
        self.kept = np.concatenate([source.method.kept for source in self._sources])

    def summary(self) -> dict[str, Any]:
        """The counts of all sets together."""
        own = [source.method.summary() for source in self._sources]
        return {name: sum(part[name] for part in own) for name in own[0]}
