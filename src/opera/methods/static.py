"""Pruning once, before training: keep the best pairs (SP, Section 2.2) or random pairs (RP)."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Probabilities
from opera.methods.draws import ShuffledPasses
from opera.methods.selection import (
    PruningMethod,
    RetentionSettings,
    SelectionSettings,
    keep_highest,
)

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
