"""Pruning once, before training: keep the best pairs (SP, Section 2.2) or random pairs (RP).

``PruningMethod`` is the base class of all methods that select pairs before training.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, PairScores, Probabilities
from opera.methods.draws import ShuffledPasses

CBS_POOL = 10_000  # Appendix D.1
PairScore = Literal["similarity", "cbs"]


def kept_count(n_pairs: int, retention: float) -> int:
    """Equation 4: ⌊k·N⌋, the number of kept pairs. 1e-9 corrects binary rounding."""
    return math.floor(retention * n_pairs + 1e-9)


def keep_highest(scores: FloatArray, count: int, then: FloatArray | None = None) -> BoolArray:
    """Equation 2, the indicators I_{q,d}: mark the ``count`` highest scores, bool ``[N]``.

    ``then`` breaks ties, highest first; position breaks remaining ties, earliest first.
    """
    highest = np.zeros(len(scores), dtype=bool)
    keys = [-np.asarray(part, dtype=np.float64) for part in (then, scores) if part is not None]
    highest[np.lexsort(keys)[:count]] = True
    return highest


def keep_best_pairs(scores: PairScores, by: PairScore, count: int) -> BoolArray:
    """Mark the ``count`` best pairs by similarity (Section 2.2) or by CBS (Appendix D.1).

    CBS has many ties, mostly at its best value 1; similarity breaks them.
    """
    if by == "similarity":
        return keep_highest(scores.similarity, count)
    assert scores.cbs is not None
    return keep_highest(scores.cbs, count, then=scores.similarity)


class RetentionSettings(Settings):
    """The retention rate."""

    k: float = setting(
        0.25, "fraction of the training pairs to keep (retention rate)", "Table 9", gt=0, le=1
    )


class SelectionSettings(RetentionSettings):
    """The retention rate, and the score that ranks the pairs."""

    score: PairScore = setting(
        "similarity",
        "score of the pairs: cosine similarity, or CBS, their rank among random documents",
        "Appendix D.1",
    )
    cbs_pool: int = setting(
        CBS_POOL,
        "number of random documents that CBS ranks each pair among",
        "Appendix D.1",
        ge=1,
        le=100_000_000,
    )


R = TypeVar("R", bound=RetentionSettings)


class PruningMethod(Method[R]):
    """Base class of methods that prune once, before training.

    They keep the ⌊k·N⌋ pairs with the highest scores of the base model. A checkpoint stores the
    kept pairs, because new scores may order the pairs at the border differently.

    Attributes:
        kept: bool ``[N]``.
        kept_ids: int64, the kept pairs.
        kept_queries: int64, the queries with a kept pair (I_q = 1).
    """

    def start(self) -> None:
        """Select the pairs."""
        self.keep(self.select(kept_count(self.pairs.n_pairs, self.settings.k)))

    def select(self, count: int) -> BoolArray:
        """Mark the ``count`` pairs to keep: bool ``[N]``."""
        assert self.scores is not None
        assert isinstance(self.settings, SelectionSettings)
        return keep_best_pairs(self.scores, self.settings.score, count)

    def keep(self, kept: BoolArray) -> None:
        """Prepare to sample from the kept pairs, bool ``[N]``; called again when a run resumes."""
        self.kept = kept
        self.kept_ids = np.flatnonzero(kept)
        self.kept_queries = np.flatnonzero(self.pairs.sum_by_query(kept))

    @classmethod
    def needs_scores(cls, settings: R) -> bool:
        """Whether the base model ranks the pairs."""
        return isinstance(settings, SelectionSettings)

    @classmethod
    def cbs_pool_size(cls, settings: R) -> int:
        """``cbs_pool`` with ``score=cbs``, otherwise 0."""
        if isinstance(settings, SelectionSettings) and settings.score == "cbs":
            return settings.cbs_pool
        return 0

    @classmethod
    def check(cls, settings: R, n_queries: int, n_pairs: int) -> None:
        """Check that the retention rate keeps a pair."""
        if kept_count(n_pairs, settings.k) == 0:
            raise SettingError(
                f"k={settings.k}: must keep at least one pair, but ⌊{settings.k}·{n_pairs}⌋ = 0; "
                f"use k={math.ceil(1e6 / n_pairs) / 1e6:g} or more"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the kept pairs."""
        return {"kept": np.packbits(self.kept)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.keep(np.unpackbits(state["kept"], count=self.pairs.n_pairs).astype(bool))

    def summary(self) -> dict[str, Any]:
        """Return the numbers of pairs and queries, and how many are kept."""
        return {
            **super().summary(),
            "kept_pairs": len(self.kept_ids),
            "kept_queries": len(self.kept_queries),
        }


QueryWeighting = Literal["pairs", "uniform"]


def static_probabilities(
    pairs: TrainingPairs, kept: BoolArray, query_weighting: QueryWeighting = "pairs"
) -> Probabilities:
    """Equation 3: P(q) = kept pairs of q / all kept pairs, P(d|q) = I_{q,d} / kept pairs of q.

    With ``query_weighting="uniform"`` (the authors' release; erratum 7), P(q) is uniform over the
    queries with a kept pair.
    """
    per_query = pairs.sum_by_query(kept)
    weight = per_query if query_weighting == "pairs" else (per_query > 0).astype(np.float64)
    return Probabilities.of(
        pairs, weight / weight.sum(), kept / np.maximum(per_query, 1)[pairs.pair_query]
    )


class KeptPassesSettings(RetentionSettings):
    """The retention rate, and how often to sample each query."""

    query_weighting: QueryWeighting = setting(
        "pairs",
        "P(q) over the kept pairs: proportional to them (the paper) or uniform over queries (the "
        "release)",
        "Equation 3; erratum 7",
    )


class StaticSettings(SelectionSettings, KeptPassesSettings):
    """Settings of sp."""


class CBSSettings(StaticSettings):
    """Settings of sp+cbs."""

    score: Literal["cbs"] = setting("cbs", "score of the pairs", "Appendix D.1")


P = TypeVar("P", bound=KeptPassesSettings)


class StaticPruning(PruningMethod[P]):
    """Shuffled passes over the ⌊k·N⌋ pairs that the base model scores best (similarity or CBS).

    A pass holds every kept pair once. With ``query_weighting=uniform`` it holds every kept query
    once, with one of its kept pairs drawn uniformly.
    """

    name = "sp"
    title = "Static pruning"
    settings_class: ClassVar[type[Settings]] = StaticSettings

    def keep(self, kept: BoolArray) -> None:
        """Set up the passes."""
        super().keep(kept)
        self._kept_per_query = self.pairs.sum_by_query(self.kept).astype(np.int64)
        # Index in kept_ids of each query's first kept pair.
        self._first_kept = np.cumsum(self._kept_per_query) - self._kept_per_query
        weighting = self.settings.query_weighting
        items = self.kept_ids if weighting == "pairs" else self.kept_queries
        self._passes = ShuffledPasses(self.plan.seed, f"{self.name}.{weighting}", len(items))

    def draw(self, step: int) -> Draw:
        """Return the next ``batch_size`` pairs of the pass."""
        items = self._passes.take(step * self.plan.batch_size, self.plan.batch_size)
        if self.settings.query_weighting == "pairs":
            return Draw.unweighted(self.kept_ids[items])
        queries = self.kept_queries[items]
        rng = generator(self.plan.seed, f"{self.name}.documents", step)
        chosen: NDArray[np.int64] = self._first_kept[queries] + rng.integers(
            self._kept_per_query[queries]
        )
        return Draw.unweighted(self.kept_ids[chosen])

    def probabilities(self, step: int) -> Probabilities:
        """Equation 3, at every step."""
        return static_probabilities(self.pairs, self.kept, self.settings.query_weighting)


class CBSPruning(StaticPruning[CBSSettings]):
    """SP by corpus-based scores (CBS): the row CBS of the paper's Table 10."""

    name = "sp+cbs"
    title = "Static pruning by CBS"
    settings_class = CBSSettings


class RandomPruning(StaticPruning[KeptPassesSettings]):
    """Keep ⌊k·N⌋ random pairs."""

    name = "rp"
    title = "Random pruning"
    settings_class = KeptPassesSettings

    def select(self, count: int) -> BoolArray:
        """Mark random pairs."""
        return keep_highest(generator(self.plan.seed, "rp.keep").random(self.pairs.n_pairs), count)
