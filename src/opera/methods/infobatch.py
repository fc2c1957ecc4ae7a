"""InfoBatch at query level: what training has learned is shown less often, with a larger loss weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Plan, Probabilities
from opera.methods.draws import draw_documents
from opera.methods.finetuning import uniform_documents
from opera.methods.scores import PairScores


def learned_queries(loss: FloatArray) -> BoolArray:
    """Mark the queries whose latest loss ``[n]`` lies strictly below the mean; nan, not seen yet, is no loss at all."""
    seen = ~np.isnan(loss)
    if not seen.any():
        return seen
    above_lowest = np.asarray(loss, dtype=np.float64) - loss[seen].min()  # so that the mean of equal losses is exact
    return np.asarray(seen & (above_lowest < above_lowest[seen].mean()))


def kept_of_learned(count: int, rho: float) -> int:
    """``int((1 - ρ)·|learned|)``: how many of ``count`` learned queries a pass keeps."""
    return int((1 - rho) * count + 1e-9)


def infobatch_probabilities(pairs: TrainingPairs, learned: BoolArray, rho: float) -> Probabilities:
    """P(q), P(d|q) and loss weights of a pass that pruned ``learned``, bool ``[n]``.

    A pass holds every other query and a random part of the learned ones; each of its S queries is drawn once:
    P(q) = 1/S, or kept/(S·|learned|) for a learned one, whose loss weight is 1/(1 - ρ).
    """
    count = int(learned.sum())
    kept = kept_of_learned(count, rho)
    size = pairs.n_queries - count + kept
    query = np.where(learned, kept / max(1, count), 1.0) / size
    return Probabilities.of(pairs, query, uniform_documents(pairs), np.where(learned, 1 / (1 - rho), 1.0))


class InfoBatchSettings(Settings):
    """Settings of infobatch."""

    rho: float = setting(
        0.25,
        "ρ, share of the learned queries that a pass leaves out (InfoBatch's code: 0.5)",
        "the release",
        ge=0,
        lt=1,
    )
    delta: float = setting(
        0.875,
        "δ, share of the steps after which every query is shown, unweighted",
        "InfoBatch's code",
        ge=0,
        le=1,
    )


class InfoBatch(Method[InfoBatchSettings]):
    """Passes over the queries that leave out a part of the learned ones; one positive uniformly among the query's.

    A query's score is the latest unweighted loss of one of its pairs. The first pass is whole, and a query not seen yet
    when the second begins counts neither as learned nor in the mean.
    From step ⌈δ·t_max⌉ on a pruned pass is given up and whole passes follow, with weight 1. Passes vary in length;
    the step budget alone says when training ends.
    """

    name = "infobatch"
    title = "InfoBatch"
    settings_class = InfoBatchSettings

    def __init__(
        self, pairs: TrainingPairs, plan: Plan, settings: InfoBatchSettings, scores: PairScores | None = None
    ) -> None:
        super().__init__(pairs, plan, settings, scores)
        self.anneal_from = math.ceil(settings.delta * plan.max_steps)
        self._loss = np.full(pairs.n_queries, math.nan)
        self._learned = np.zeros(pairs.n_queries, dtype=bool)
        self._mean_loss = math.nan
        self._queue = np.empty(0, dtype=np.int64)
        self._passes = 0

    def draw(self, step: int) -> Draw:
        """Return the next ``batch_size`` queries of the pass with a positive document each, and their weights."""
        if step >= self.anneal_from and self._learned.any():
            self._queue = np.empty(0, dtype=np.int64)
        taken, weights, missing = [], [], self.plan.batch_size
        while missing:
            if len(self._queue) == 0:
                self._begin_pass(step)
            part, self._queue = self._queue[:missing], self._queue[missing:]
            taken.append(part)
            weights.append(np.where(self._learned[part], 1 / (1 - self.settings.rho), 1.0))
            missing -= len(part)
        rng = generator(self.plan.seed, "infobatch.documents", step)
        chosen = draw_documents(rng, self.pairs, np.concatenate(taken))
        return Draw(chosen, np.concatenate(weights).astype(np.float32))

    def probabilities(self, step: int) -> Probabilities:
        """Those of the pass in force; of the first one before anything is drawn."""
        learned = self._learned if self._passes else self._learned_now(step)
        return infobatch_probabilities(self.pairs, learned, self.settings.rho)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Keep each query's latest loss; where a query stands twice, its last entry counts."""
        self._loss[self.pairs.pair_query[pair_ids]] = loss

    def schedule(self, step: int) -> dict[str, float]:
        """Return the mean loss that divides the queries of the pass in force; NaN in the first pass."""
        return {"query_threshold": self._mean_loss}

    def state_dict(self) -> dict[str, Any]:
        """The losses, and what is left of the pass in force."""
        return {
            "loss": self._loss.copy(),
            "learned": self._learned.copy(),
            "mean_loss": self._mean_loss,
            "queue": self._queue.copy(),
            "passes": self._passes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._loss = np.array(state["loss"], dtype=np.float64)
        self._learned = np.array(state["learned"], dtype=bool)
        self._mean_loss = float(state["mean_loss"])
        self._queue = np.array(state["queue"], dtype=np.int64)
        self._passes = int(state["passes"])

    def _learned_now(self, step: int) -> NDArray[np.bool_]:
        if step >= self.anneal_from:
            return np.zeros(self.pairs.n_queries, dtype=bool)
        return learned_queries(self._loss)

    def _begin_pass(self, step: int) -> None:
        rng = generator(self.plan.seed, "infobatch.pass", self._passes)
        self._learned = self._learned_now(step)
        seen = self._loss[~np.isnan(self._loss)]
        self._mean_loss = float(seen.mean()) if len(seen) else math.nan
        learned = np.flatnonzero(self._learned)
        kept = rng.choice(learned, kept_of_learned(len(learned), self.settings.rho), replace=False)
        self._queue = rng.permutation(np.concatenate([np.flatnonzero(~self._learned), kept]))
        self._passes += 1
