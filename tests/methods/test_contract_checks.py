"""Each check of the contract fails for a method that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opera.core.arrays import FloatArray, IntArray
from opera.core.settings import Settings
from opera.data.pairs import TrainingPairs
from opera.methods import METHODS, Draw, Method, NoSettings, Plan, Probabilities
from opera.methods import contract as checks
from opera.methods.finetuning import FineTuning
from opera.methods.infobatch import InfoBatch
from opera.methods.static import StaticPruning


class Undocumented(Settings):
    power: float = 2.0


class WithoutHelp(FineTuning):
    settings_class = Undocumented


class WithColon(FineTuning):
    name = "ft:2"


class CBSWithoutScores(FineTuning):
    @classmethod
    def cbs_pool_size(cls, settings: NoSettings) -> int:
        return 10


class WorksWithoutItsScores(FineTuning):
    def __init__(self, pairs: TrainingPairs, plan: Plan, settings: NoSettings, scores: Any = None) -> None:
        super().__init__(pairs, plan, settings, checks.some_scores(pairs))

    @classmethod
    def needs_scores(cls, settings: NoSettings) -> bool:
        return True


class Int32(FineTuning):
    def draw(self, step: int) -> Draw:
        drawn = super().draw(step)
        return Draw(drawn.pair_ids.astype(np.int32), drawn.weights)  # type: ignore[arg-type]


class ZeroWeights(FineTuning):
    def draw(self, step: int) -> Draw:
        drawn = super().draw(step)
        return Draw(drawn.pair_ids, drawn.weights * 0)


class HalfABatch(FineTuning):
    def draw(self, step: int) -> Draw:
        return Draw.unweighted(super().draw(step).pair_ids[:4])


class DrawsPruned(StaticPruning):
    def draw(self, step: int) -> Draw:
        return Draw.unweighted(np.flatnonzero(~self.kept)[:8])


class DoubledQueries(FineTuning):
    def probabilities(self, step: int) -> Probabilities:
        p = super().probabilities(step)
        return Probabilities(2 * p.query, p.document, p.query_weight, p.pair_query)


class PrunedArePossible(StaticPruning):
    def probabilities(self, step: int) -> Probabilities:
        return Probabilities.of_pairs(self.pairs, np.full(self.pairs.n_pairs, 1 / self.pairs.n_pairs))


class UnstatedWeight(FineTuning):
    def draw(self, step: int) -> Draw:
        drawn = super().draw(step)
        return Draw(drawn.pair_ids, drawn.weights * 2)


class DrawsTheImpossible(StaticPruning):
    def draw(self, step: int) -> Draw:
        return Draw.unweighted(np.arange(8))


class StatesAnotherDistribution(FineTuning):
    def probabilities(self, step: int) -> Probabilities:
        return Probabilities.of_pairs(self.pairs, np.full(self.pairs.n_pairs, 1 / self.pairs.n_pairs))


class ChangedByReading(FineTuning):
    reads = 0

    def probabilities(self, step: int) -> Probabilities:
        self.reads += 1
        return super().probabilities(step)

    def draw(self, step: int) -> Draw:
        return super().draw(step + self.reads)


class Forgetful(InfoBatch):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "queue": np.empty(0, dtype=np.int64)}


class SavesObjects(FineTuning):
    def state_dict(self) -> dict[str, Any]:
        return {"settings": self.settings}


class NamesComeAndGo(FineTuning):
    def schedule(self, step: int) -> dict[str, float]:
        return {"alpha": 1.0} if step < 5 else {}


class IntegerSchedule(FineTuning):
    def schedule(self, step: int) -> dict[str, float]:
        return {"alpha": step}


class ScheduledLoss(FineTuning):
    def schedule(self, step: int) -> dict[str, float]:
        return {"loss": 1.0}


class EachQueryOnce(FineTuning):
    def draw(self, step: int) -> Draw:
        return Draw.unweighted(super().draw(step).pair_ids[: self.pairs.n_queries])


class Overflows(FineTuning):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.losses = np.zeros(self.pairs.n_pairs, dtype=np.float32)

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        self.losses[pair_ids] = loss

    def probabilities(self, step: int) -> Probabilities:
        with np.errstate(over="ignore", invalid="ignore"):
            weight = np.exp(self.losses)
            return Probabilities.of_pairs(self.pairs, weight / weight.sum())


BROKEN: list[tuple[Callable[..., None], type[Method[Any]], str]] = [
    (checks.check_declaration, WithoutHelp, "power must have a help text"),
    (checks.check_declaration, WithColon, "name must not be empty or hold"),
    (checks.check_scores, CBSWithoutScores, "a method that uses CBS needs scores"),
    (checks.check_scores, WorksWithoutItsScores, "must refuse to work without scores"),
    (checks.check_steps, Int32, "pair_ids must be int64"),
    (checks.check_steps, ZeroWeights, "weights must be positive"),
    (checks.check_steps, DrawsPruned, "must never be drawn"),
    (checks.check_steps, HalfABatch, "plan.batch_size pairs"),
    (checks.check_steps, DoubledQueries, "must sum to one"),
    (checks.check_steps, PrunedArePossible, "must have probability 0"),
    (checks.check_possible, UnstatedWeight, "another weight than in probabilities"),
    (checks.check_possible, DrawsTheImpossible, "has probability 0"),
    (checks.check_frequencies, StatesAnotherDistribution, "do not follow the probabilities"),
    (checks.check_frequencies, DrawsTheImpossible, "pairs with probability 0 are drawn"),
    (checks.check_seed, ChangedByReading, "reading must not change them"),
    (checks.check_resume, Forgetful, "must be those of the saved method"),
    (checks.check_resume, SavesObjects, "must be an array or a number"),
    (checks.check_steps, NamesComeAndGo, "same names at every step"),
    (checks.check_steps, IntegerSchedule, "must be floats"),
    (checks.check_steps, ScheduledLoss, "columns of these names"),
    (checks.check_extremes, EachQueryOnce, "no whole batch"),
    (checks.check_extremes, Overflows, "P is"),
]


@pytest.mark.parametrize(("check", "method", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_method_fails(check: Callable[..., None], method: type[Method[Any]], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(method, method.settings_class())


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, _, _ in BROKEN} == set(checks.CHECKS)


def test_check_method_runs_all_checks_with_the_default_settings() -> None:
    checks.check_method(METHODS["ft"])
    with pytest.raises(AssertionError, match="weights must be positive"):
        checks.check_method(ZeroWeights)
