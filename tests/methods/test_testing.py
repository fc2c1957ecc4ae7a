"""Each check of ``opera.methods.testing`` fails for a method that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opera.methods import Draw, Method, Probabilities, testing
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch


class DoubledProbabilities(FineTuning):
    def probabilities(self, step: int) -> Probabilities:
        p = super().probabilities(step)
        return Probabilities(2 * p.query, p.document, p.query_weight, p.pair_query)


class UniformProbabilities(FineTuning):
    def probabilities(self, step: int) -> Probabilities:
        return Probabilities.of_pairs(self.pairs, np.full(self.pairs.n_pairs, 1 / self.pairs.n_pairs))


class WithoutQueue(InfoBatch):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "queue": np.empty(0, dtype=np.int64)}


class ChangedByReading(FineTuning):
    reads = 0

    def schedule(self, step: int) -> dict[str, float]:
        self.reads += 1
        return {}

    def draw(self, step: int) -> Draw:
        return super().draw(step + self.reads)


@pytest.mark.parametrize(
    ("check", "method_class", "message"),
    [
        (testing.check_probabilities, DoubledProbabilities, "must sum to one"),
        (testing.check_draws, UniformProbabilities, "must follow the probabilities"),
        (testing.check_resume, WithoutQueue, "a resumed method must draw the same"),
        (testing.check_training, ChangedByReading, "the same seed must draw the same"),
    ],
)
def test_a_broken_method_fails(check: Callable[..., None], method_class: type[Method[Any]], message: str) -> None:
    for run in (check, testing.check_method):
        with pytest.raises(AssertionError, match=message):
            run(method_class, method_class.settings_class())
