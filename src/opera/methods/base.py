"""What a method is: at every step it says which pairs to train on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.labels.visits import FirstVisits
from opera.methods.scores import PairScores


@dataclass(frozen=True)
class Plan:
    """The facts of a run that methods need.

    Attributes:
        seed: the run's seed.
        max_steps: t_max, the number of optimizer steps.
        batch_size: pairs per optimizer step, over all devices and accumulated batches.
    """

    seed: int
    max_steps: int
    batch_size: int


@dataclass(frozen=True)
class Draw:
    """What one step trains on.

    Attributes:
        pair_ids: int64 ``[plan.batch_size]``.
        weights: float32 ``[plan.batch_size]``, the factor on each pair's loss before the batch's
            mean.
    """

    pair_ids: NDArray[np.int64]
    weights: NDArray[np.float32]

    @classmethod
    def unweighted(cls, pair_ids: IntArray) -> Draw:
        """Give every pair weight 1."""
        return cls(np.asarray(pair_ids, dtype=np.int64), np.ones(len(pair_ids), dtype=np.float32))


@dataclass(frozen=True)
class Probabilities:
    """The exact sampling probabilities at one step.

    Attributes:
        query: P(q), float64 ``[n]``, sums to 1.
        document: P(d|q), float64 ``[N]``, sums to 1 over each query with P(q) > 0.
        pair_query: the query of each pair, int ``[N]``.
    """

    query: NDArray[np.float64]
    document: NDArray[np.float64]
    pair_query: IntArray

    @cached_property
    def pair(self) -> NDArray[np.float64]:
        """P(q, d), float64 ``[N]``, sums to 1."""
        return self.query[self.pair_query] * self.document

    @classmethod
    def of(cls, pairs: TrainingPairs, query: FloatArray, document: FloatArray) -> Probabilities:
        """Build from P(q) ``[n]`` and P(d|q) ``[N]``."""
        q, d = np.asarray(query, dtype=np.float64), np.asarray(document, dtype=np.float64)
        return cls(q, d, pairs.pair_query)

    @classmethod
    def of_pairs(cls, pairs: TrainingPairs, pair: FloatArray) -> Probabilities:
        """Build from P(q, d) ``[N]``, for methods that sample pairs directly."""
        joint = np.asarray(pair, dtype=np.float64)
        query = pairs.sum_by_query(joint)
        return cls.of(pairs, query, joint / np.where(query > 0, query, 1)[pairs.pair_query])


class NoSettings(Settings):
    """A method without settings of its own."""


S = TypeVar("S", bound=Settings)


class Method(ABC, Generic[S]):
    """Base class of all methods, generic in the class of the method's own settings.

    Draws depend on (seed, step), the settings and the scores observed so far, on nothing else.

    Args:
        pairs: the training pairs.
        plan: seed, steps and batch size of the run.
        settings: the method's own settings.
        scores: the base model's scores of all pairs; required where :meth:`needs_scores` says
            so.

    Class attributes:
        name: the name users call it by; names are found in any case.
        title: its full name, for tables.
        settings_class: the class of its own settings.
        weighs: whether draws have weights other than 1.
        state: the attributes that resuming needs beside the constructor's arguments: arrays and
            numbers.

    Attributes:
        kept: bool ``[N]``, the pairs that can be drawn at all; false for those pruned before
            training.
        visits: what the first visit of each pair found, whatever the method.

    Raises:
        ValueError: if scores are required and missing.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = NoSettings
    weighs: ClassVar[bool] = False
    state: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: S, scores: PairScores | None = None
    ) -> None:
        if scores is None and self.needs_scores(settings):
            raise ValueError(f"{self.name} needs the base model's scores of all pairs")
        self.pairs, self.plan, self.settings, self.scores = pairs, plan, settings, scores
        self.kept: BoolArray = np.broadcast_to(np.True_, pairs.n_pairs)  # takes no memory
        self.visits = FirstVisits.none(pairs.n_pairs)
        self.start()

    def start(self) -> None:
        """Set up what draws need; the last thing that the constructor does."""
        return None

    @classmethod
    def needs_scores(cls, settings: S) -> bool:
        """Whether the method starts from the base model's scores of all pairs."""
        return False

    @classmethod
    def cbs_pool_size(cls, settings: S) -> int:
        """How many random documents CBS ranks each pair among (Appendix D.1); 0 if the method does
        not use CBS.
        """
        return 0

    @classmethod
    def check(cls, settings: S, n_queries: int, n_pairs: int) -> None:
        """Refuse settings that cannot work on data of this size, before any long work.

        Raises:
            SettingError: with the numbers.
        """
        return None

    @abstractmethod
    def draw(self, step: int) -> Draw:
        """Return the ``plan.batch_size`` pairs to train on at ``step``. Steps are drawn in
        order.
        """

    @abstractmethod
    def probabilities(self, step: int) -> Probabilities:
        """Return the exact probabilities of one draw at ``step``, the step drawn last (before any
        draw: the first).

        Where a step spans two passes or pools, they are those of the later one.
        """

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Use what the forward passes of a step gave: pair ids, cosine similarities, unweighted
        losses, each ``[B]``.
        """
        return None

    def schedule(self, step: int) -> dict[str, float]:
        """Return the scheduled values at ``step`` and the thresholds in force, by name.

        The names are the same at every step and become columns of ``trace.parquet``; NaN stands for
        a value not known yet. Empty for a method without a schedule.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs beside the constructor's arguments: arrays and numbers, in
        nested dicts. By default, the attributes that :attr:`state` names.
        """
        return {name.lstrip("_"): copy(getattr(self, name)) for name in self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; numbers may come back as arrays of no axis."""
        for name in self.state:
            value, kind = state[name.lstrip("_")], type(getattr(self, name))
            setattr(self, name, np.array(value) if kind is np.ndarray else kind(value))

    def summary(self) -> dict[str, Any]:
        """Facts about this method on this data to keep with the run, such as how many pairs it
        kept.
        """
        return {"queries": self.pairs.n_queries, "pairs": self.pairs.n_pairs}
