"""Denoising (denoise): pairs that look wrong at their first visit are drawn less."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.labels.estimate import probability_wrong
from opera.methods.base import Draw, Probabilities
from opera.methods.draws import ShuffledPasses, draw_weighted_documents
from opera.methods.finetuning import FineTuning

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


class Denoise(FineTuning):
    """Plain fine-tuning that draws a pair less often the more its label looks wrong.

    ``ft`` draws a query. It stays with the largest probability of its pairs to be correct;
    otherwise the next query of a separate pass that stays takes its place. The document of the
    query stays with its probability to be correct, divided by that largest one; otherwise a
    document of the query is drawn by these probabilities. If no label looks wrong, the draws are
    those of ``ft``. A batch holds a query twice only if too few other queries look correct. So if
    a batch is almost as large as the data, queries are drawn more evenly than
    :meth:`probabilities` says.

    The probabilities come from :func:`opera.labels.estimate.probability_wrong`. They are computed
    ten times in a run, and need no base model and no setting.
    """

    name = "denoise"
    title = "Denoising"
    state = ("_true", "_updated", "_position")

    def start(self) -> None:
        """No pair is doubted yet."""
        super().start()
        self._others = ShuffledPasses(self.plan.seed, "denoise.queries", self.pairs.n_queries)
        self._true: NDArray[Any] = np.ones(self.pairs.n_pairs, dtype=np.float32)
        self._updated, self._position = -1, 0

    def draw(self, step: int) -> Draw:
        """Return what ``ft`` draws, but for what looks wrong."""
        self._update(step)
        drawn, rng = super().draw(step).pair_ids, generator(self.plan.seed, "denoise", step)
        queries = self.pairs.pair_query[drawn].astype(np.int64)
        largest = self._largest(queries)
        stays = rng.random(len(drawn)) < largest
        chosen = stays & (rng.random(len(drawn)) < self._true[drawn] / largest)
        queries[~stays] = self._taken(rng, queries[stays], int((~stays).sum()))
        again = np.flatnonzero(~chosen)
        drawn[again] = draw_weighted_documents(
            rng, self.pairs, queries[again], lambda ids: self._true[ids]
        )
        return Draw.unweighted(drawn)

    def probabilities(self, step: int) -> Probabilities:
        """Those of the last update."""
        return denoising_probabilities(self.pairs, self._true)

    def schedule(self, step: int) -> dict[str, float]:
        """Return the mean probability of a pair to be false."""
        return {"probability_wrong": float(1 - self._true.mean(dtype=np.float64))}

    def _taken(self, rng: np.random.Generator, held: IntArray, count: int) -> NDArray[np.int64]:
        """Return ``count`` queries of the other passes, each taken with its probability: none that
        the batch holds, unless a whole pass has no others.
        """
        taken, seen = np.empty(0, dtype=np.int64), 0
        while (missing := count - len(taken)) > 0:
            queries = self._others.take(self._position, missing)
            self._position, seen = self._position + missing, seen + missing
            queries = queries[rng.random(missing) < self._largest(queries)]
            if seen <= self.pairs.n_queries:
                fresh = np.setdiff1d(queries, np.concatenate([held, taken]))
                queries = rng.permutation(fresh)
            taken = np.concatenate([taken, queries])
        return taken

    def _largest(self, queries: IntArray) -> NDArray[np.float32]:
        """The largest probability to be true of each query's pairs: ``[m]``."""
        pair_ids, offsets = self.pairs.of_queries(queries)
        return np.maximum.reduceat(self._true[pair_ids], offsets[:-1])

    def _update(self, step: int) -> None:
        """Compute the probabilities anew where a tenth of the run has passed."""
        number = step * UPDATES // self.plan.max_steps
        if number != self._updated:
            self._updated = number
            false = probability_wrong(self.pairs, self.visits)
            self._true = np.maximum(LEAST, 1 - false).astype(np.float32)
