"""Two methods that draw a pair less often if its loss at its first visit is no better than chance.

A loss observed before a pair was ever trained on is a held-out loss. A query compared with C documents has the loss
log C by chance. A false label stays there; a hard but true one is usually below it:

    u = clip((log C - loss) / (s·log C), 0, 1),    w = 1 + (β - 1)·u,    w = β before the first visit

Loss, and so u, is that of the first visit and never changes again. With β = 1 the methods are ft and infobatch.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods import Draw, Method, Probabilities, register_method
from opera.methods.base import Plan
from opera.methods.draws import ShuffledPasses
from opera.methods.dynamic import document_probabilities
from opera.methods.infobatch import InfoBatch, InfoBatchSettings
from opera.methods.scores import PairScores


class FirstVisitSettings(Settings):
    """Settings of first-visit."""

    strength: float = setting(10.0, "β, how much more often a surely true pair is drawn than a doubtful one", "", ge=1)
    margin: float = setting(0.25, "s, share of log C below chance from which a pair counts as surely true", "", gt=0)
    compared: int = setting(
        0, "C, documents that a query is compared with; 0: two per pair in a step, a positive and a negative", "", ge=0
    )
    queries: Literal["all", "likely"] = setting(
        "all", "draw every query equally often, or those with surely true pairs more often", ""
    )


class FirstVisitInfoBatchSettings(InfoBatchSettings, FirstVisitSettings):
    """Settings of first-visit+infobatch."""

    queries: Literal["all"] = setting("all", "infobatch draws the queries", "")


class FirstVisits:
    """How sure each pair is, from its first visit.

    Attributes:
        sure: u, float64 ``[N]``; NaN before the first visit.
    """

    def __init__(self, pairs: TrainingPairs, plan: Plan, settings: FirstVisitSettings) -> None:
        self.pairs, self.settings = pairs, settings
        self.chance = math.log(max(2, settings.compared or 2 * plan.batch_size))
        self.sure = np.full(pairs.n_pairs, math.nan)

    def observe(self, pair_ids: IntArray, loss: FloatArray) -> None:
        """Keep u of the pairs that are new; of a pair listed twice, the first entry."""
        ids, at = np.unique(pair_ids, return_index=True)
        new = np.isnan(self.sure[ids])
        below = (self.chance - np.asarray(loss, dtype=np.float64)[at[new]]) / (self.settings.margin * self.chance)
        self.sure[ids[new]] = np.clip(below, 0, 1)

    def weights(self) -> NDArray[np.float64]:
        """W of each pair: float64 ``[N]``, from 1 to β."""
        return np.asarray(1 + (self.settings.strength - 1) * np.where(np.isnan(self.sure), 1, self.sure))

    def draw(self, rng: np.random.Generator, queries: IntArray) -> NDArray[np.int64]:
        """Draw a document per query by w: pair ids, int64 ``[B]``."""
        ends = np.concatenate([[0.0], np.cumsum(self.weights())])
        first, after = self.pairs.query_offsets[queries], self.pairs.query_offsets[queries + 1]
        places = ends[first] + rng.random(len(queries)) * (ends[after] - ends[first])
        return np.clip(np.searchsorted(ends, places, side="right") - 1, first, after - 1).astype(np.int64)

    def probabilities(self) -> NDArray[np.float64]:
        """P(d|q): float64 ``[N]``."""
        return document_probabilities(self.pairs, self.weights())


@register_method
class FirstVisit(Method[FirstVisitSettings]):
    """ft, but documents, and queries if asked for, by their first visits. The first pass is that of ft.

    With ``queries=likely`` a query of a pass is taken with probability (mean w of its pairs) / β.
    """

    name, title, settings_class = "first-visit", "Fine-tuning by first visits", FirstVisitSettings

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: FirstVisitSettings, scores: PairScores | None = None
    ) -> None:
        super().__init__(pairs, plan, settings, scores)
        self._visits = FirstVisits(pairs, plan, settings)
        self._passes = ShuffledPasses(plan.seed, "ft.queries", pairs.n_queries)
        self._position = 0

    def draw(self, step: int) -> Draw:
        """Return the next ``batch_size`` queries, each with a document."""
        rng = generator(self.plan.seed, "first_visit.documents", step)
        return Draw.unweighted(self._visits.draw(rng, self._next_queries(step)))

    def probabilities(self, step: int) -> Probabilities:
        """P(q) in proportion to the chance to be taken, P(d|q) to w."""
        taken = self._chance_taken()
        return Probabilities.of(self.pairs, taken / taken.sum(), self._visits.probabilities())

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Keep first losses."""
        self._visits.observe(pair_ids, loss)

    def state_dict(self) -> dict[str, Any]:
        """How sure each pair is, and the place in the passes."""
        return {"sure": self._visits.sure.copy(), "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._visits.sure = np.array(state["sure"], dtype=np.float64)
        self._position = int(state["position"])

    def _chance_taken(self) -> NDArray[np.float64]:
        if self.settings.queries == "all":
            return np.ones(self.pairs.n_queries)
        mean = self.pairs.sum_by_query(self._visits.weights()) / self.pairs.positives_per_query
        return np.asarray(mean / self.settings.strength)

    def _next_queries(self, step: int) -> NDArray[np.int64]:
        chance, rng = self._chance_taken(), generator(self.plan.seed, "first_visit.queries", step)
        taken, missing = [], self.plan.batch_size
        while missing:
            queries = self._passes.take(self._position, missing)
            self._position += missing
            taken.append(queries[rng.random(missing) < chance[queries]])
            missing -= len(taken[-1])
        return np.concatenate(taken)


@register_method
class FirstVisitInfoBatch(InfoBatch):
    """infobatch, but documents by their first visits."""

    name, title, settings_class = "first-visit+infobatch", "InfoBatch by first visits", FirstVisitInfoBatchSettings

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: FirstVisitInfoBatchSettings, scores: PairScores | None = None
    ) -> None:
        super().__init__(pairs, plan, settings, scores)
        self._visits = FirstVisits(pairs, plan, settings)

    def draw(self, step: int) -> Draw:
        """Take infobatch's queries and weights, each with a document drawn anew."""
        drawn = super().draw(step)
        rng = generator(self.plan.seed, "first_visit.documents", step)
        return Draw(self._visits.draw(rng, self.pairs.pair_query[drawn.pair_ids]), drawn.weights)

    def probabilities(self, step: int) -> Probabilities:
        """Those of infobatch for queries; P(d|q) in proportion to w."""
        queries = super().probabilities(step)
        return Probabilities.of(self.pairs, queries.query, self._visits.probabilities(), queries.query_weight)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Keep first losses, and each query's latest."""
        super().observe(pair_ids, similarity, loss)
        self._visits.observe(pair_ids, loss)

    def state_dict(self) -> dict[str, Any]:
        """How sure each pair is, beside infobatch's state."""
        return {**super().state_dict(), "sure": self._visits.sure.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._visits.sure = np.array(state["sure"], dtype=np.float64)
