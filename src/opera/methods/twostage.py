"""Static pruning, then dynamic pruning of what it kept (SP+DP): for data with known label noise (Section 3.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Plan, Probabilities
from opera.methods.dynamic import DynamicPruning, DynamicSettings
from opera.methods.scores import PairScores
from opera.methods.static import SelectionSettings, keep_best_pairs, kept_count, refuse_empty


class TwoStageSettings(SelectionSettings, DynamicSettings):
    """Settings of sp+dp: those of the selection and those of dp."""


class StaticThenDynamic(Method[TwoStageSettings]):
    """Keep the ⌊k·N⌋ best pairs once, then run dynamic pruning over the queries and pairs that are left."""

    name = "sp+dp"
    title = "Static, then dynamic pruning"
    settings_class = TwoStageSettings
    scores: PairScores  # as they were pretrained; those that training moves are the second stage's

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: TwoStageSettings, scores: PairScores | None = None
    ) -> None:
        super().__init__(pairs, plan, settings, scores)
        self._use(keep_best_pairs(self.scores, settings.score, kept_count(pairs.n_pairs, settings.k)))

    def _use(self, keep: BoolArray) -> None:
        self.kept = keep
        self._kept_ids = np.flatnonzero(keep)
        kept_pairs, self._kept_queries = self.pairs.subset(keep)
        self._number_among_kept = np.cumsum(keep) - 1
        kept_scores = self.scores.subset(keep, kept_pairs)
        self.dynamic = DynamicPruning(kept_pairs, self.plan, self.settings, kept_scores)

    @classmethod
    def needs_scores(cls, settings: TwoStageSettings) -> bool:
        """Both stages start from the pretrained model's scores."""
        return True

    @classmethod
    def cbs_pool_size(cls, settings: TwoStageSettings) -> int:
        """With ``score=cbs``."""
        return int(settings.cbs_pool_size)

    @classmethod
    def check(cls, settings: TwoStageSettings, n_queries: int, n_pairs: int) -> None:
        """Refuse what either stage refuses."""
        refuse_empty(settings, n_pairs)
        DynamicPruning.check(settings, n_queries, kept_count(n_pairs, settings.k))

    @property
    def similarity(self) -> FloatArray:
        """Of the kept pairs as training moves them, of the pruned as they were pretrained."""
        known = self.scores.similarity.copy()
        known[self.kept] = self.dynamic.scores.similarity
        return known

    def draw(self, step: int) -> Draw:
        """Return what dynamic pruning draws from the kept pairs."""
        drawn = self.dynamic.draw(step)
        return Draw(self._kept_ids[drawn.pair_ids], drawn.weights)

    def probabilities(self, step: int) -> Probabilities:
        """Equation 5 over the kept pairs; 0 for the pruned."""
        kept = self.dynamic.probabilities(step)
        query, document = np.zeros(self.pairs.n_queries), np.zeros(self.pairs.n_pairs)
        query[self._kept_queries], document[self.kept] = kept.query, kept.document
        return Probabilities.of(self.pairs, query, document)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Update the scores of the kept pairs among those seen."""
        ids = np.asarray(pair_ids, dtype=np.int64)
        mine = self.kept[ids]
        self.dynamic.observe(self._number_among_kept[ids[mine]], np.asarray(similarity)[mine], np.asarray(loss)[mine])

    def schedule(self, step: int) -> dict[str, float]:
        """Return the schedule of dynamic pruning."""
        return self.dynamic.schedule(step)

    def state_dict(self) -> dict[str, Any]:
        """What was kept, and dynamic pruning's."""
        return {"kept": np.packbits(self.kept), "dynamic": self.dynamic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._use(np.unpackbits(state["kept"], count=self.pairs.n_pairs).astype(bool))
        self.dynamic.load_state_dict(state["dynamic"])

    def summary(self) -> dict[str, Any]:
        """How much was kept, and the pool size n₀ over the kept queries."""
        return {
            **super().summary(),
            "kept_pairs": len(self._kept_ids),
            "kept_queries": len(self._kept_queries),
            "pool_size": self.dynamic.pool_size,
        }
