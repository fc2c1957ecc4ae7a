"""Denoising (denoise): pairs that look false at their first visit are drawn less."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, NoSettings, Probabilities
from opera.methods.draws import ShuffledPasses, draw_weighted_documents
from opera.methods.first_visits import probability_false

LEAST = 0.01
"""The least that a pair or a query is drawn, of what it would be if it were surely true."""
UPDATES = 10
"""How often in a run the probabilities are computed anew."""


def denoising_probabilities(pairs: TrainingPairs, true: FloatArray) -> Probabilities:
    """P(q) in proportion to the most probable of its pairs, P(d|q) to each pair's probability to be
    true, ``true`` ``[N]``.
    """
    of_pair = np.asarray(true, dtype=np.float64)
    query = np.maximum.reduceat(of_pair, pairs.query_offsets[:-1])
    document = of_pair / pairs.sum_by_query(of_pair)[pairs.pair_query]
    return Probabilities.of(pairs, query / query.sum(), document)


class Denoise(Method[NoSettings]):
    """Shuffled passes over the queries, each taken with the probability that it has a true pair;
    one positive document, by its probability to be true.

    Probabilities are those of :func:`opera.methods.first_visits.probability_false`, computed anew
    ten times in a run. They need no untrained model and no setting.
    """

    name = "denoise"
    title = "Denoising"
    state = ("_true", "_updated", "_position")

    def start(self) -> None:
        """No pair is doubted yet."""
        self._passes = ShuffledPasses(self.plan.seed, "denoise.queries", self.pairs.n_queries)
        self._true: NDArray[Any] = np.ones(self.pairs.n_pairs, dtype=np.float32)
        self._updated, self._position = -1, 0

    def draw(self, step: int) -> Draw:
        """Return the next queries of the passes that are taken, each with a positive document."""
        self._update(step)
        rng = generator(self.plan.seed, "denoise", step)
        taken = np.empty(0, dtype=np.int64)
        while len(taken) < self.plan.batch_size:
            missing = self.plan.batch_size - len(taken)
            queries = self._passes.take(self._position, missing)
            self._position += missing
            own, offsets = self.pairs.of_queries(queries)
            weight = np.maximum.reduceat(self._true[own], offsets[:-1])
            taken = np.concatenate([taken, queries[rng.random(missing) < weight]])
        return Draw.unweighted(
            draw_weighted_documents(rng, self.pairs, taken, lambda ids: self._true[ids])
        )

    def probabilities(self, step: int) -> Probabilities:
        """Those of the last update."""
        return denoising_probabilities(self.pairs, self._true)

    def schedule(self, step: int) -> dict[str, float]:
        """Return the mean probability of a pair to be false."""
        return {"probability_false": float(1 - self._true.mean(dtype=np.float64))}

    def _update(self, step: int) -> None:
        """Compute the probabilities anew where a tenth of the run has passed."""
        number = step * UPDATES // self.plan.max_steps
        if number > self._updated:
            self._updated = number
            false = probability_false(self.pairs, self.visits)
            self._true = np.maximum(LEAST, 1 - false).astype(np.float32)
