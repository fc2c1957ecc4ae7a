"""The base class of methods, which choose the pairs of every step, and the scores of the pairs."""

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
from opera.labels.estimate import FirstVisits


class PairScores:
    """Latest similarity and contrastive loss of every pair, 8 bytes per pair.

    Attributes:
        similarity: float32 ``[N]``, cosine of query and positive document (the paper's **p**).
        loss: float32 ``[N]``, contrastive loss of the pair, in nats.
        cbs: float32 ``[N]``, CBS by the base model, or ``None``; training does not change it.
        smallest_pool: the fewest documents that CBS ranked a pair among, or ``None``.

    Examples:
        >>> from opera.methods import PairScores
        >>> scores = PairScores(TrainingPairs.from_arrays([0, 1], [5, 6]), [0.9, 0.1], [0.2, 2.0])
        >>> scores.observe([1], [0.5], [1.0])
        >>> scores.similarity
        array([0.9, 0.5], dtype=float32)
    """

    smallest_pool: int | None = None

    def __init__(
        self,
        pairs: TrainingPairs,
        similarity: FloatArray,
        loss: FloatArray,
        cbs: FloatArray | None = None,
    ) -> None:
        self.pairs = pairs
        self.similarity = np.array(similarity, dtype=np.float32)
        self.loss = np.array(loss, dtype=np.float32)
        self.cbs = None if cbs is None else np.array(cbs, dtype=np.float32)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Overwrite the scores of pairs ``[B]``; the last entry of a repeated pair counts."""
        self.similarity[pair_ids], self.loss[pair_ids] = similarity, loss

    def subset(self, kept: BoolArray, kept_pairs: TrainingPairs) -> PairScores:
        """Return the scores of pairs ``kept``, bool ``[N]``, for their subset ``kept_pairs``."""
        cbs = None if self.cbs is None else self.cbs[kept]
        return PairScores(kept_pairs, self.similarity[kept], self.loss[kept], cbs)

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays that training changes."""
        return {"similarity": self.similarity.copy(), "loss": self.loss.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.similarity = np.array(state["similarity"], dtype=np.float32)
        self.loss = np.array(state["loss"], dtype=np.float32)


@dataclass(frozen=True)
class Plan:
    """The seed and the size of a run.

    Attributes:
        seed: the run's seed.
        max_steps: t_max, the number of optimizer steps.
        batch_size: pairs per optimizer step, over all devices and accumulated batches.

    Examples:
        >>> from opera.methods import Plan
        >>> Plan(seed=0, max_steps=100, batch_size=64).batch_size
        64
    """

    seed: int
    max_steps: int
    batch_size: int


@dataclass(frozen=True)
class Draw:
    """The pairs of one step.

    Attributes:
        pair_ids: int64 ``[plan.batch_size]``.
        weights: float32 ``[plan.batch_size]``, factors on the losses, before their mean.

    Examples:
        >>> from opera.methods import Draw
        >>> Draw.unweighted([3, 1]).weights
        array([1., 1.], dtype=float32)
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

    Examples:
        >>> from opera.methods import Probabilities
        >>> pairs = TrainingPairs.from_arrays([0, 0, 1], [5, 6, 7])
        >>> Probabilities.of_pairs(pairs, [0.25, 0.25, 0.5]).query
        array([0.5, 0.5])
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
        """Build from P(q, d) ``[N]``, for methods that sample pairs and not queries."""
        joint = np.asarray(pair, dtype=np.float64)
        query = pairs.sum_by_query(joint)
        return cls.of(pairs, query, joint / np.where(query > 0, query, 1)[pairs.pair_query])


class NoSettings(Settings):
    """The settings of a method that has none.

    Examples:
        >>> from opera.methods import NoSettings
        >>> NoSettings.parse({})
        NoSettings()
    """


S = TypeVar("S", bound=Settings)


class Method(ABC, Generic[S]):
    """Base class of all methods, generic in the class of the method's settings.

    Draws depend only on the seed, the step, the settings and the scores observed so far.

    Args:
        pairs: the training pairs.
        plan: seed, steps and batch size of the run.
        settings: the settings of the method.
        scores: the base model's scores of all pairs, if :meth:`needs_scores`.

    Class attributes:
        name: the value of the setting ``method``; upper and lower case do not differ.
        title: the full name, for tables.
        settings_class: the class of the settings.
        weighs: whether draws have weights other than 1.
        state: names of the attributes that a checkpoint stores: arrays and numbers.

    Attributes:
        kept: bool ``[N]``, false for pairs that the method prunes before training.
        visits: the first visit of each pair; the sampler updates it.

    Raises:
        ValueError: if scores are required and missing.

    Examples:
        >>> from opera.methods import Method, NoSettings
        >>> class Uniform(Method[NoSettings]):
        ...     name, title, settings_class = "uniform", "Each pair equally often", NoSettings
        ...
        ...     def probabilities(self, step):
        ...         n_pairs = self.pairs.n_pairs
        ...         return Probabilities.of_pairs(self.pairs, np.full(n_pairs, 1 / n_pairs))
        ...
        ...     def draw(self, step):
        ...         rng = generator(self.plan.seed, "uniform.pairs", step)
        ...         ids = rng.integers(self.pairs.n_pairs, size=self.plan.batch_size)
        ...         return Draw.unweighted(ids)
        >>> pairs = TrainingPairs.from_arrays([0, 1], [5, 6])
        >>> method = Uniform(pairs, Plan(seed=0, max_steps=100, batch_size=4), NoSettings())
        >>> len(method.draw(step=0).pair_ids)
        4
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
        self.kept: BoolArray = np.broadcast_to(np.True_, pairs.n_pairs)  # uses no memory
        self.visits = FirstVisits.none(pairs.n_pairs)
        self.start()

    def start(self) -> None:
        """Prepare draws; the constructor calls this last."""

    @classmethod
    def needs_scores(cls, settings: S) -> bool:
        """Whether the method starts from the base model's scores of all pairs."""
        return False

    @classmethod
    def cbs_pool_size(cls, settings: S) -> int:
        """The number of documents that CBS ranks a pair among (Appendix D.1); 0 without CBS."""
        return 0

    @classmethod
    def check(cls, settings: S, n_queries: int, n_pairs: int) -> None:
        """Check the settings for data of this size, before any long work.

        Raises:
            SettingError: if they cannot work.
        """

    @abstractmethod
    def draw(self, step: int) -> Draw:
        """Sample the ``plan.batch_size`` pairs of ``step``; called with consecutive steps."""

    @abstractmethod
    def probabilities(self, step: int) -> Probabilities:
        """Return the exact sampling probabilities at ``step``, the last step that was sampled.

        Before anything is sampled, these are the values of the first step. If a step spans two
        passes or pools, the probabilities are those of the later one.
        """

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Update from one step: pair ids, cosines and unweighted losses, each ``[B]``."""

    def schedule(self, step: int) -> dict[str, float]:
        """Return the scheduled values and thresholds at ``step``, by name.

        The names are the same at every step, and become columns of ``trace.parquet``. NaN means
        that a value is not known yet.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: arrays and numbers in nested dicts.

        By default, these are the attributes of :attr:`state`.
        """
        return {name.lstrip("_"): copy(getattr(self, name)) for name in self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned. A number may come as a 0-d array."""
        for name in self.state:
            value, kind = state[name.lstrip("_")], type(getattr(self, name))
            setattr(self, name, np.array(value) if kind is np.ndarray else kind(value))

    def summary(self) -> dict[str, Any]:
        """Return facts for the run's record, such as how many pairs the method kept."""
        return {"queries": self.pairs.n_queries, "pairs": self.pairs.n_pairs}
