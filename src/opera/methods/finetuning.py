"""Fine-tuning (FT), the baseline: queries are equally frequent, and so are a query's documents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data.pairs import TrainingPairs
from opera.methods.base import Draw, Method, NoSettings, Probabilities
from opera.methods.draws import ShuffledPasses, draw_documents


def finetuning_probabilities(pairs: TrainingPairs) -> Probabilities:
    """Equation 1: P(q) = 1/n and P(d|q) = 1/m_q."""
    return Probabilities.of(pairs, uniform_queries(pairs), uniform_documents(pairs))


def uniform_queries(pairs: TrainingPairs) -> NDArray[np.float64]:
    """P(q) = 1/n: float64 ``[n]``."""
    return np.full(pairs.n_queries, 1 / pairs.n_queries)


def uniform_documents(pairs: TrainingPairs) -> NDArray[np.float64]:
    """P(d|q) = 1/m_q: float64 ``[N]``."""
    return 1 / pairs.positives_per_query[pairs.pair_query]


class FineTuning(Method[NoSettings]):
    """Shuffled passes over the queries, with a uniform positive document for each."""

    name = "ft"
    title = "Fine-tuning"

    def start(self) -> None:
        """Set up the passes."""
        self._passes = ShuffledPasses(self.plan.seed, "ft.queries", self.pairs.n_queries)

    def draw(self, step: int) -> Draw:
        """Return the next ``batch_size`` queries of the pass, each with a positive document."""
        queries = self._passes.take(step * self.plan.batch_size, self.plan.batch_size)
        return Draw.unweighted(
            draw_documents(generator(self.plan.seed, "ft.documents", step), self.pairs, queries)
        )

    def probabilities(self, step: int) -> Probabilities:
        """Equation 1, at every step."""
        return finetuning_probabilities(self.pairs)
