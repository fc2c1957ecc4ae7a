"""InfoBatch at query level: learned queries are sampled less often, with larger loss weights."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray
from opera.core.rng import generator
from opera.core.settings import Settings, setting
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, Probabilities
from opera.methods.draws import draw_documents
from opera.methods.finetuning import uniform_documents


def learned_queries(loss: FloatArray) -> BoolArray:
    """Mark the queries whose latest loss ``[n]`` is below the mean; NaN means no loss yet."""
    seen = ~np.isnan(loss)
    if not seen.any():
        return seen
    # Differences from the lowest loss make the mean of equal losses exact.
    above_lowest = np.asarray(loss, dtype=np.float64) - loss[seen].min()
    return np.asarray(seen & (above_lowest < above_lowest[seen].mean()))


def kept_of_learned(count: int, rho: float) -> int:
    """``int((1 - ρ)·|learned|)``: how many of ``count`` learned queries a pass keeps.

    1e-9 corrects binary rounding.
    """
    return int((1 - rho) * count + 1e-9)


def infobatch_probabilities(pairs: TrainingPairs, learned: BoolArray, rho: float) -> Probabilities:
    """P(q) and P(d|q) of a pass that prunes a part of the ``learned`` queries, bool ``[n]``.

    A pass has S queries: a random part of the learned queries, and all other queries. P(q) is
    kept/(S·|learned|) for a learned query, and 1/S for other queries.
    """
    count = int(learned.sum())
    count_kept = kept_of_learned(count, rho)
    size = pairs.n_queries - count + count_kept
    query = np.where(learned, count_kept / max(1, count), 1.0) / size
    return Probabilities.of(pairs, query, uniform_documents(pairs))


class InfoBatchSettings(Settings):
    """Settings of infobatch."""

    rho: float = setting(
        0.25,
        "ρ, fraction of the learned queries that each pass prunes (InfoBatch's code: 0.5)",
        "the release",
        ge=0,
        lt=1,
    )
    delta: float = setting(
        0.875,
        "δ, fraction of the steps after which passes prune nothing and weights are 1",
        "InfoBatch's code",
        ge=0,
        le=1,
    )


class InfoBatch(Method[InfoBatchSettings]):
    """Sample queries in passes that leave out some learned queries; documents are uniform.

    A query's score is the latest unweighted loss of one of its pairs. The first pass prunes
    nothing. A query without a loss when the second pass begins is not learned, and does not count
    in the mean. At step ⌈δ·t_max⌉ a pruned pass is abandoned; later passes prune nothing, and all
    weights are 1. Passes vary in length; only the number of steps ends training.

    Attributes:
        anneal_from: ⌈δ·t_max⌉.
    """

    name = "infobatch"
    title = "InfoBatch"
    settings_class = InfoBatchSettings
    weighs = True
    state = ("_loss", "_learned", "_mean_loss", "_queue", "_passes")

    def start(self) -> None:
        """Start without losses, before the first pass."""
        n = self.pairs.n_queries
        self.anneal_from = math.ceil(self.settings.delta * self.plan.max_steps)
        self._loss, self._learned = np.full(n, math.nan), np.zeros(n, dtype=bool)
        self._mean_loss = math.nan
        self._queue = np.empty(0, dtype=np.int64)
        self._passes = 0

    def draw(self, step: int) -> Draw:
        """Return a positive document of each of the pass's next queries, with their weights."""
        if step >= self.anneal_from and self._learned.any():  # annealing abandons a pruned pass
            self._queue = np.empty(0, dtype=np.int64)
        size, queries, weights = self.plan.batch_size, self._queue, self._weights_of(self._queue)
        while len(queries) < size:  # queries have the weight of the pass that they belong to
            new = self._begin_pass(step)
            queries = np.concatenate([queries, new])
            weights = np.concatenate([weights, self._weights_of(new)])
        self._queue = queries[size:]
        rng = generator(self.plan.seed, "infobatch.documents", step)
        chosen = draw_documents(rng, self.pairs, queries[:size])
        return Draw(chosen, weights[:size].astype(np.float32))

    def probabilities(self, step: int) -> Probabilities:
        """Return the probabilities of the current pass, or of the first pass before any draw."""
        learned = self._learned if self._passes else self._learned_at(step)
        return infobatch_probabilities(self.pairs, learned, self.settings.rho)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Store each query's latest loss; the last entry of a repeated query counts."""
        self._loss[self.pairs.pair_query[pair_ids]] = loss

    def schedule(self, step: int) -> dict[str, float]:
        """Return the mean loss that divides the queries of the current pass; NaN in the first."""
        return {"query_threshold": self._mean_loss}

    def _learned_at(self, step: int) -> BoolArray:
        """Mark the learned queries of a pass that begins at ``step``; none during annealing."""
        if step >= self.anneal_from:
            return np.zeros(self.pairs.n_queries, dtype=bool)
        return learned_queries(self._loss)

    def _weights_of(self, queries: IntArray) -> NDArray[np.float64]:
        """Return the loss weights of queries in the current pass: float64 ``[m]``."""
        return np.where(self._learned[queries], 1 / (1 - self.settings.rho), 1.0)

    def _begin_pass(self, step: int) -> NDArray[np.int64]:
        """Return the queries of a new pass, in random order."""
        rng = generator(self.plan.seed, "infobatch.pass", self._passes)
        self._passes += 1
        self._learned = self._learned_at(step)
        seen = self._loss[~np.isnan(self._loss)]
        self._mean_loss = float(seen.mean()) if len(seen) else math.nan
        learned = np.flatnonzero(self._learned)
        kept = kept_of_learned(len(learned), self.settings.rho)
        kept_learned = rng.choice(learned, kept, replace=False)
        return rng.permutation(np.concatenate([np.flatnonzero(~self._learned), kept_learned]))
