"""What a method is: something that, step after step, says which pairs to train on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods.scores import PairScores


@dataclass(frozen=True)
class Plan:
    """The facts of a run that methods need.

    Attributes:
        seed: the run's seed.
        max_steps: t_max, the number of optimizer steps.
        batch_size: how many pairs one optimizer step trains on, over all devices and accumulation.
    """

    seed: int
    max_steps: int
    batch_size: int


@dataclass(frozen=True)
class Draw:
    """What one step trains on.

    Attributes:
        pairs: int64 ``[plan.batch_size]``, numbers of pairs.
        weights: float32 ``[plan.batch_size]``, what each pair's loss is multiplied by before the batch's mean.
    """

    pairs: NDArray[np.int64]
    weights: NDArray[np.float32]

    @classmethod
    def unweighted(cls, pairs: IntArray) -> Draw:
        """Every pair counts once."""
        return cls(np.asarray(pairs, dtype=np.int64), np.ones(len(pairs), dtype=np.float32))


@dataclass(frozen=True)
class Probabilities:
    """The exact sampling probabilities at one step.

    Attributes:
        query: P(q), float64 ``[n]``, sums to 1.
        document: P(d|q), float64 ``[N]``, sums to 1 over each query with P(q) > 0.
        pair: P(q, d), float64 ``[N]``, sums to 1.
        weight: the loss weight that a draw of each pair comes with, float64 ``[N]``; 1 but for InfoBatch.
    """

    query: NDArray[np.float64]
    document: NDArray[np.float64]
    pair: NDArray[np.float64]
    weight: NDArray[np.float64]

    @classmethod
    def of(
        cls, pairs: TrainingPairs, query: FloatArray, document: FloatArray, query_weight: FloatArray | None = None
    ) -> Probabilities:
        """Build from P(q) ``[n]``, P(d|q) ``[N]`` and, where losses are weighted, the weight of each query ``[n]``."""
        q = np.asarray(query, dtype=np.float64)
        d = np.asarray(document, dtype=np.float64)
        weight = np.ones(pairs.n_queries) if query_weight is None else np.asarray(query_weight, dtype=np.float64)
        return cls(q, d, q[pairs.pair_query] * d, weight[pairs.pair_query])


@dataclass(frozen=True)
class Moment:
    """What a method's schedule says at one step; ``None`` where the method has no such thing.

    Attributes:
        alpha: query strength α.
        r: share of queries that count as high quality.
        beta: document strength β.
        v: document cutoff.
        query_threshold: lowest score among the top queries; for InfoBatch the mean loss below which a query is learned.
        document_threshold: T, the pair score above which a document counts as high quality, where it is one for all.
    """

    alpha: float | None = None
    r: float | None = None
    beta: float | None = None
    v: float | None = None
    query_threshold: float | None = None
    document_threshold: float | None = None


class NoSettings(Settings):
    """A method without settings of its own."""


class Method(ABC):
    """Base class of all methods; a new one is a subclass and a line in the registry.

    Draws depend on (seed, step), the settings and the scores observed so far, on nothing else.

    Class attributes:
        name: what users call it.
        title: its full name, for tables.
        settings_class: its own settings.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = NoSettings

    def __init__(self, pairs: TrainingPairs, plan: Plan, settings: Any, scores: PairScores | None = None) -> None:
        if scores is None and self.needs_scores(settings):
            raise ValueError(f"{self.name} needs the pretrained scores of all pairs")
        self.pairs, self.plan, self.settings, self.scores = pairs, plan, settings, scores

    @classmethod
    def needs_scores(cls, settings: Any) -> bool:
        """Whether the method starts from the pretrained model's scores of all pairs."""
        return False

    @classmethod
    def cbs_pool_size(cls, settings: Any) -> int:
        """How many random documents each pair must be ranked among (Appendix D.1); 0 where the method needs no CBS."""
        return 0

    @classmethod
    def check(cls, settings: Any, n_queries: int, n_pairs: int) -> None:
        """Refuse settings that cannot work on data of this size, before any long work.

        Raises:
            SettingError: with the numbers.
        """
        return None

    @abstractmethod
    def draw(self, step: int) -> Draw:
        """Return the ``plan.batch_size`` pairs to train on at ``step``. Steps are drawn in order."""

    @abstractmethod
    def probabilities(self, step: int) -> Probabilities:
        """Return the exact probabilities of one draw at ``step``: of the step drawn last, or of the first before any.

        Where a step spans two passes or pools, they are those of the later one.
        """

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Take note of what the forward pass gave for a batch; arrays ``[B]``."""
        return None

    def moment(self, step: int) -> Moment:
        """Return what the schedules say at ``step``."""
        return Moment()

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed, beside the constructor's arguments, to go on from here."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        return None

    @property
    def similarity(self) -> FloatArray | None:
        """The similarity of each pair as the method knows it now: ``[N]``; ``None`` for one that keeps no scores."""
        return None if self.scores is None else self.scores.similarity

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which pairs may be drawn at all: bool ``[N]``; false for those that were pruned before training."""
        return np.ones(self.pairs.n_pairs, dtype=bool)

    def summary(self) -> dict[str, Any]:
        """Facts about this method on this data worth keeping with the run, such as how many pairs it kept."""
        return {"queries": self.pairs.n_queries, "pairs": self.pairs.n_pairs}
