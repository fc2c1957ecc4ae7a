"""Static pruning, then dynamic pruning of the kept pairs (SP+DP, Section 3.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.methods.base import Draw, PairScores, Probabilities
from opera.methods.dynamic import DynamicPruning, DynamicSettings
from opera.methods.static import PruningMethod, SelectionSettings, kept_count


class TwoStageSettings(SelectionSettings, DynamicSettings):
    """Settings of sp+dp: settings of sp and of dp."""


class StaticThenDynamic(PruningMethod[TwoStageSettings]):
    """Keep the ⌊k·N⌋ best pairs once, then run dynamic pruning on them.

    Attributes:
        scores: the base model's scores, without updates.
        dynamic: dynamic pruning on the kept pairs, renumbered, with scores that training updates.
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
        """Check the settings of both stages."""
        super().check(settings, n_queries, n_pairs)
        DynamicPruning.check(settings, n_queries, kept_count(n_pairs, settings.k))

    def draw(self, step: int) -> Draw:
        """Return the draw of dynamic pruning."""
        draw = self.dynamic.draw(step)
        return Draw(self.kept_ids[draw.pair_ids], draw.weights)

    def probabilities(self, step: int) -> Probabilities:
        """Equation 5 over the kept pairs; 0 for pruned pairs."""
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
        """Return the kept pairs, and the state of dynamic pruning."""
        return {**super().state_dict(), "dynamic": self.dynamic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self.dynamic.load_state_dict(state["dynamic"])

    def summary(self) -> dict[str, Any]:
        """Add the pool size n₀ over the kept queries."""
        return {**super().summary(), "pool_size": self.dynamic.pool_size}
