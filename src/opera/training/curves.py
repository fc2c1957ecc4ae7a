"""What a run logs beside the loss: the method's schedule, and how much of the data was drawn so far."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from opera.training.sampler import PairSampler

PREFIX = "opera/"


class Curves:
    """Counts what a sampler has drawn, a step at a time.

    Args:
        sampler: draws the pairs.
    """

    def __init__(self, sampler: PairSampler) -> None:
        self.sampler, self._counted = sampler, 0
        self._pairs = np.zeros(sampler.pairs.n_pairs, dtype=bool)
        self._queries = np.zeros(sampler.pairs.n_queries, dtype=bool)

    def values(self, schedule: Mapping[str, float | None]) -> dict[str, float]:
        """Return the values to log: those of the schedule that are known yet, and the shares drawn.

        Args:
            schedule: the method's, at the step that was trained last.
        """
        for pair_ids in self.sampler.drawn[self._counted :]:
            self._pairs[pair_ids] = True
            self._queries[self.sampler.pairs.pair_query[pair_ids]] = True
        self._counted = len(self.sampler.drawn)
        known = {
            name: value
            for name, value in schedule.items()
            if value is not None and math.isfinite(value)
        }
        coverage = {"coverage_pairs": self._pairs.mean(), "coverage_queries": self._queries.mean()}
        return {f"{PREFIX}{name}": float(value) for name, value in (known | coverage).items()}
