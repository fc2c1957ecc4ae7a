"""dp and denoise together, as a method: dp's draws times the probability of each pair to be correct.

OPERA_EXTENSIONS=dp_denoise PYTHONPATH=reproduction/studies opera train DATA --model MODEL --method dp+denoise --out run
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.labels.estimate import probability_wrong
from opera.methods import Draw, Probabilities, register_method
from opera.methods.denoise import LEAST, UPDATES
from opera.methods.draws import draw_weighted_documents
from opera.methods.dynamic import DynamicPruning


@register_method
class DynamicDenoise(DynamicPruning):
    """Dynamic pruning that rejects queries and documents whose labels look wrong.

    A sampled query stays with the largest probability of its pairs to be correct; otherwise dp samples another. The
    document of a query is sampled by dp's weight times its probability to be correct.
    """

    name = "dp+denoise"
    title = "Dynamic pruning with denoising"
    state = (*DynamicPruning.state, "_correct", "_updated")

    def start(self) -> None:
        """Every pair counts as correct."""
        super().start()
        self._correct: NDArray[Any] = np.ones(self.pairs.n_pairs, dtype=np.float32)
        self._updated = -1

    def draw(self, step: int) -> Draw:
        """Sample queries by dp until the batch is full, then a document for each."""
        self._update(step)
        rng, size = generator(self.plan.seed, "dp+denoise", step), self.plan.batch_size
        queries, proposed = np.empty(0, dtype=np.int64), 0
        while len(queries) < size:
            sampled = self._sample_queries(step)
            sampled = sampled[rng.random(size) < self._largest(sampled)]
            if proposed <= self.pairs.n_queries:
                sampled = sampled[~np.isin(sampled, queries)]
                sampled = sampled[np.sort(np.unique(sampled, return_index=True)[1])]
            queries, proposed = np.concatenate([queries, sampled])[:size], proposed + size

        def weigh(pair_ids: IntArray) -> NDArray[np.float64]:
            correct: NDArray[np.float64] = self._correct[pair_ids].astype(np.float64)
            return self._document_weights(pair_ids, step) * correct

        return Draw.unweighted(draw_weighted_documents(rng, self.pairs, queries, weigh))

    def probabilities(self, step: int) -> Probabilities:
        """dp's probabilities times the probability to be correct, scaled to sum to one."""
        dynamic = super().probabilities(step)
        every_pair = np.arange(self.pairs.n_pairs)
        query = dynamic.query * self._largest(np.arange(self.pairs.n_queries))
        document = self._document_weights(every_pair, step) * self._correct
        document = document / self.pairs.sum_by_query(document)[self.pairs.pair_query]
        return Probabilities.of(self.pairs, query / query.sum(), document)

    def _largest(self, queries: IntArray) -> NDArray[np.float32]:
        """The largest probability to be correct among each query's pairs: float32 ``[m]``."""
        pair_ids, offsets = self.pairs.of_queries(queries)
        return np.maximum.reduceat(self._correct[pair_ids], offsets[:-1])

    def _update(self, step: int) -> None:
        """Estimate the probabilities again, ten times in a run."""
        number = step * UPDATES // self.plan.max_steps
        if number != self._updated:
            self._updated = number
            wrong = probability_wrong(self.pairs, self.visits)
            self._correct = np.maximum(LEAST, 1 - wrong).astype(np.float32)
