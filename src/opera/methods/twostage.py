"""Static pruning, then dynamic pruning of what it kept (SP+DP, Section 3.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.methods.base import Draw, Probabilities
from opera.methods.dynamic import DynamicPruning, DynamicSettings
from opera.methods.scores import PairScores
from opera.methods.selection import PruningMethod, SelectionSettings, kept_count


class TwoStageSettings(SelectionSettings, DynamicSettings):
    """Settings of sp+dp: those of the selection and those of dp."""


class StaticThenDynamic(PruningMethod[TwoStageSettings]):
    """Keep the ⌊k·N⌋ best pairs once, then run dynamic pruning on the queries and pairs that are
    left.

    Attributes:
        scores: the base model's; never updated.
        dynamic: the second stage, on the kept pairs, renumbered, and their scores, which training
            updates.
    """

    name = "sp+dp"
    title = "Static, then dynamic pruning"
    settings_class = TwoStageSettings
    scores: PairScores

    def keep(self, kept: BoolArray) -> None:
        """Set up the second stage."""
        super().keep(kept)
        kept_pairs, _ = self.pairs.subset(self.kept)
        self._id_among_kept = np.cumsum(self.kept) - 1
        kept_scores = self.scores.subset(self.kept, kept_pairs)
        self.dynamic = DynamicPruning(kept_pairs, self.plan, self.settings, kept_scores)

    @classmethod
    def check(cls, settings: TwoStageSettings, n_queries: int, n_pairs: int) -> None:
        """Refuse what either stage refuses."""
        super().check(settings, n_queries, n_pairs)
        DynamicPruning.check(settings, n_queries, kept_count(n_pairs, settings.k))

    def draw(self, step: int) -> Draw:
        """Return what dynamic pruning draws from the kept pairs."""
        drawn = self.dynamic.draw(step)
        return Draw(self.kept_ids[drawn.pair_ids], drawn.weights)

    def probabilities(self, step: int) -> Probabilities:
        """Equation 5 over the kept pairs; 0 for the pruned."""
        kept = self.dynamic.probabilities(step)
        query, document = np.zeros(self.pairs.n_queries), np.zeros(self.pairs.n_pairs)
        query[self.kept_queries], document[self.kept] = kept.query, kept.document
        return Probabilities.of(self.pairs, query, document)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Update the scores of the kept pairs of the batch."""
        ids = np.asarray(pair_ids, dtype=np.int64)
        kept = self.kept[ids]
        self.dynamic.observe(
            self._id_among_kept[ids[kept]], np.asarray(similarity)[kept], np.asarray(loss)[kept]
        )

    def schedule(self, step: int) -> dict[str, float]:
        """Return the schedule of dynamic pruning."""
        return self.dynamic.schedule(step)

    def state_dict(self) -> dict[str, Any]:
        """What was kept, and the state of dynamic pruning."""
        return {**super().state_dict(), "dynamic": self.dynamic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.dynamic.load_state_dict(state["dynamic"])

    def summary(self) -> dict[str, Any]:
        """How much was kept, and the pool size n₀ over the kept queries."""
        return {**super().summary(), "pool_size": self.dynamic.pool_size}
