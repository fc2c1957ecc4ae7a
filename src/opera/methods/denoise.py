"""Denoising (denoise): sample pairs less often if they look wrong at their first visit."""

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
"""Lower bound of the probability that a pair is correct, so that every pair may be sampled."""
UPDATES = 10
"""How often a run updates the probabilities."""


def denoising_probabilities(pairs: TrainingPairs, correct: FloatArray) -> Probabilities:
    """P(d|q) is proportional to each pair's probability of being correct, ``[N]``, and P(q) to the
    largest probability of the query's pairs.
    """
    pair = np.asarray(correct, dtype=np.float64)
    query = np.maximum.reduceat(pair, pairs.query_offsets[:-1])
    document = pair / pairs.sum_by_query(pair)[pairs.pair_query]
    return Probabilities.of(pairs, query / query.sum(), document)


class Denoise(FineTuning):
    """Plain fine-tuning that samples a pair less often if its label looks wrong.

    ``ft`` samples a query. The query is accepted with the largest probability of its pairs to be
    correct; otherwise the next accepted query of a separate pass replaces it. The query's document
    is accepted with its probability to be correct, divided by the largest; otherwise a document of
    the query is sampled by these probabilities. If no label looks wrong, the draws are identical to
    ``ft``.

    A batch holds a query twice only if too few other queries look correct. So if a batch is almost
    as large as the data, queries are sampled more evenly than :meth:`probabilities` says.

    The probabilities come from :func:`opera.labels.estimate.probability_wrong`, and need neither
    base scores nor settings.
    """

    name = "denoise"
    title = "Denoising"
    state = ("_correct", "_updated", "_position")

    def start(self) -> None:
        """Assume that all pairs are correct."""
        super().start()
        self._others = ShuffledPasses(self.plan.seed, "denoise.queries", self.pairs.n_queries)
        self._correct: NDArray[Any] = np.ones(self.pairs.n_pairs, dtype=np.float32)
        self._updated, self._position = -1, 0

    def draw(self, step: int) -> Draw:
        """Return the pairs of ``ft``, with replacements for rejected queries and documents."""
        self._update(step)
        pair_ids, rng = super().draw(step).pair_ids, generator(self.plan.seed, "denoise", step)
        queries = self.pairs.pair_query[pair_ids].astype(np.int64)
        largest = self._largest(queries)
        query_accepted = rng.random(len(pair_ids)) < largest
        accepted = query_accepted & (rng.random(len(pair_ids)) < self._correct[pair_ids] / largest)
        count = int((~query_accepted).sum())
        queries[~query_accepted] = self._replacements(rng, queries[query_accepted], count)
        rejected = np.flatnonzero(~accepted)
        pair_ids[rejected] = draw_weighted_documents(
            rng, self.pairs, queries[rejected], lambda ids: self._correct[ids]
        )
        return Draw.unweighted(pair_ids)

    def probabilities(self, step: int) -> Probabilities:
        """Return the probabilities of the last update."""
        return denoising_probabilities(self.pairs, self._correct)

    def schedule(self, step: int) -> dict[str, float]:
        """Return the mean probability of a pair to be wrong."""
        return {"probability_wrong": float(1 - self._correct.mean(dtype=np.float64))}

    def _replacements(
        self, rng: np.random.Generator, batch: IntArray, count: int
    ) -> NDArray[np.int64]:
        """Return ``count`` accepted queries of the separate passes.

        They are not in the batch, unless a full pass has no other accepted query.
        """
        accepted, proposed = np.empty(0, dtype=np.int64), 0
        while (missing := count - len(accepted)) > 0:
            queries = self._others.take(self._position, missing)
            self._position, proposed = self._position + missing, proposed + missing
            queries = queries[rng.random(missing) < self._largest(queries)]
            if proposed <= self.pairs.n_queries:
                new = np.setdiff1d(queries, np.concatenate([batch, accepted]))
                queries = rng.permutation(new)
            accepted = np.concatenate([accepted, queries])
        return accepted

    def _largest(self, queries: IntArray) -> NDArray[np.float32]:
        """Return the largest probability of each query's pairs to be correct: ``[m]``."""
        pair_ids, offsets = self.pairs.of_queries(queries)
        return np.maximum.reduceat(self._correct[pair_ids], offsets[:-1])

    def _update(self, step: int) -> None:
        """Update the probabilities at the start, and after each tenth of the run."""
        number = step * UPDATES // self.plan.max_steps
        if number != self._updated:
            self._updated = number
            wrong = probability_wrong(self.pairs, self.visits)
            self._correct = np.maximum(LEAST, 1 - wrong).astype(np.float32)
