"""Pruning before training: static pruning (SP) keeps the best pairs, random pruning (RP) any."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Plan, Probabilities
from opera.methods.draws import ShuffledPasses
from opera.methods.scores import PairScores

CBS_POOL = 10_000  # Appendix D.1
PairScore = Literal["similarity", "cbs"]


def kept_count(n_pairs: int, retention: float) -> int:
    """Return ⌊k·N⌋, how many pairs are kept (Equation 4); 0.29 of 100 is 29, whatever binary makes of 0.29."""
    return math.floor(retention * n_pairs + 1e-9)


def keep_highest(scores: FloatArray, count: int, then: FloatArray | None = None) -> BoolArray:
    """I_{q,d} of Section 2.2: mark the ``count`` highest of the scores ``[N]``.

    Equal ones go by ``then``, highest first, where it is given; of those still equal, the earlier.
    """
    keep = np.zeros(len(scores), dtype=bool)
    keys = [-np.asarray(part, dtype=np.float64) for part in (then, scores) if part is not None]
    keep[np.lexsort(keys)[:count]] = True
    return keep


def keep_best_pairs(scores: PairScores, by: PairScore, count: int) -> BoolArray:
    """Mark the ``count`` best pairs, bool ``[N]``: by similarity (Section 2.2), or by CBS (Appendix D.1).

    CBS ties often, most of all at its best value of 1: pairs of equal CBS go by similarity.
    """
    if by == "similarity":
        return keep_highest(scores.similarity, count)
    assert scores.cbs is not None
    return keep_highest(scores.cbs, count, then=scores.similarity)


def static_probabilities(pairs: TrainingPairs, keep: BoolArray, query_weighting: str = "pairs") -> Probabilities:
    """Equation 3: P(q) = kept pairs of q / all kept pairs, P(d|q) = I_{q,d} / kept pairs of q.

    With ``query_weighting="uniform"`` (the authors' release; paper.md, row 7), P(q) is one over the number of queries
    that keep a pair.
    """
    kept = pairs.sum_by_query(keep)
    weight = kept if query_weighting == "pairs" else (kept > 0).astype(np.float64)
    return Probabilities.of(pairs, weight / weight.sum(), keep / np.maximum(kept, 1)[pairs.pair_query])


def refuse_empty(settings: RetentionSettings, n_pairs: int) -> None:
    """Refuse a retention rate that keeps nothing.

    Raises:
        SettingError: with the numbers.
    """
    if kept_count(n_pairs, settings.k) == 0:
        raise SettingError(
            f"k={settings.k} keeps ⌊{settings.k}·{n_pairs}⌋ = 0 of {n_pairs} pairs: all are pruned; "
            f"give k of at least {math.ceil(1e6 / n_pairs) / 1e6:g}"
        )


class RetentionSettings(Settings):
    """How much to keep."""

    k: float = setting(0.25, "share of the training pairs to keep (retention rate)", "Table 9", gt=0, le=1)


class RandomSettings(RetentionSettings):
    """Settings of rp."""

    query_weighting: Literal["pairs", "uniform"] = setting(
        "pairs",
        "P(q) over the kept pairs: in proportion to them (the paper) or uniform over queries (the release)",
        "Equation 3; paper.md, row 7",
    )


class SelectionSettings(RetentionSettings):
    """How much to keep, and what the best pairs are."""

    score: PairScore = setting(
        "similarity", "what the best pairs are: cosine, or cbs, consistency among random documents", "Appendix D.1"
    )
    cbs_pool: int = setting(CBS_POOL, "random documents that cbs ranks each pair among", "Appendix D.1", ge=1)

    @property
    def cbs_pool_size(self) -> int:
        """``cbs_pool`` where CBS is asked for, else 0."""
        return self.cbs_pool if self.score == "cbs" else 0


class StaticSettings(SelectionSettings, RandomSettings):
    """Settings of sp."""


class CBSSettings(StaticSettings):
    """Settings of sp+cbs."""

    score: Literal["cbs"] = setting("cbs", "what the best pairs are", "Appendix D.1")


P = TypeVar("P", bound=RandomSettings)


class StaticMethod(Method[P]):
    """Keep some pairs once, before training, and train on those alone, in shuffled passes."""

    settings_class = RandomSettings

    def __init__(self, pairs: TrainingPairs, plan: Plan, settings: P, scores: PairScores | None = None) -> None:
        super().__init__(pairs, plan, settings, scores)
        self._use(self.keep_pairs(kept_count(pairs.n_pairs, settings.k)))

    def _use(self, keep: BoolArray) -> None:
        pairs, self.kept = self.pairs, keep
        self._kept_ids = np.flatnonzero(self.kept)
        self._kept_by_query = pairs.sum_by_query(self.kept).astype(np.int64)
        self._first_kept = np.concatenate([[0], np.cumsum(self._kept_by_query)[:-1]])
        self._kept_queries = np.flatnonzero(self._kept_by_query)
        weighting = self.settings.query_weighting
        rows = self._kept_ids if weighting == "pairs" else self._kept_queries
        self._passes = ShuffledPasses(self.plan.seed, f"{self.name}.{weighting}", len(rows))

    @abstractmethod
    def keep_pairs(self, count: int) -> BoolArray:
        """Mark the ``count`` pairs to keep: bool ``[N]``."""

    @classmethod
    def check(cls, settings: P, n_queries: int, n_pairs: int) -> None:
        """Refuse a retention rate that keeps nothing."""
        refuse_empty(settings, n_pairs)

    def draw(self, step: int) -> Draw:
        """Return the next ``batch_size`` kept pairs of the pass (or kept queries, with one kept pair each)."""
        rows = self._passes.take(step * self.plan.batch_size, self.plan.batch_size)
        if self.settings.query_weighting == "pairs":
            return Draw.unweighted(self._kept_ids[rows])
        queries = self._kept_queries[rows]
        rng = generator(self.plan.seed, f"{self.name}.documents", step)
        chosen: NDArray[np.int64] = self._first_kept[queries] + rng.integers(self._kept_by_query[queries])
        return Draw.unweighted(self._kept_ids[chosen])

    def probabilities(self, step: int) -> Probabilities:
        """Equation 3, at every step."""
        return static_probabilities(self.pairs, self.kept, self.settings.query_weighting)

    def state_dict(self) -> dict[str, Any]:
        """What was kept: scores computed anew may rank pairs at the cut otherwise."""
        return {"kept": np.packbits(self.kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._use(np.unpackbits(state["kept"], count=self.pairs.n_pairs).astype(bool))

    def summary(self) -> dict[str, Any]:
        """How much was kept."""
        return {
            **super().summary(),
            "kept_pairs": len(self._kept_ids),
            "kept_queries": len(self._kept_queries),
        }


class StaticPruning(StaticMethod[StaticSettings]):
    """Keep the ⌊k·N⌋ best pairs: by the pretrained model's similarity, or by CBS."""

    name = "sp"
    title = "Static pruning"
    settings_class = StaticSettings

    @classmethod
    def needs_scores(cls, settings: StaticSettings) -> bool:
        """Pairs are ranked by the pretrained model."""
        return True

    @classmethod
    def cbs_pool_size(cls, settings: StaticSettings) -> int:
        """With ``score=cbs``."""
        return int(settings.cbs_pool_size)

    def keep_pairs(self, count: int) -> BoolArray:
        """Mark the best pairs."""
        assert self.scores is not None
        return keep_best_pairs(self.scores, self.settings.score, count)


class CBSPruning(StaticPruning):
    """Static pruning by CBS under a name of its own, for the row of Table 10; the same as sp with ``score=cbs``."""

    name = "sp+cbs"
    title = "Static pruning by CBS"
    settings_class = CBSSettings


class RandomPruning(StaticMethod[RandomSettings]):
    """Keep ⌊k·N⌋ pairs drawn uniformly."""

    name = "rp"
    title = "Random pruning"

    def keep_pairs(self, count: int) -> BoolArray:
        """Mark random pairs."""
        return keep_highest(generator(self.plan.seed, "rp.keep").random(self.pairs.n_pairs), count)
