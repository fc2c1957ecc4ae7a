"""What studies/samplers.py measured, with λ chosen on dev by the product's rule; paired tests, and a simulated race."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from curves import MEASURES, SHARES, Curves, choose
from opera.experiments.analysis.significance import PairedTest, holm, paired_test
from opera.training.guard import rule
from page import ROOT

ROWS = ROOT / "studies" / "results" / "samplers.csv"
NDCG, RECALL = MEASURES
RACE = ("ft", "infobatch", "sp:k=0.75", "dp")


@dataclass(frozen=True)
class Training:
    """One training, measured at every share of the fine-tuned weights."""

    world: str
    method: str
    noise: float
    seed: int
    curves: Curves

    @cached_property
    def chosen(self) -> float:
        """The share λ that the guard chooses on dev."""
        dev = {share: self.curves.dev[SHARES.index(share), 0] for share in rule.shares_to_try(static=True)}
        return choose(dev, self.curves.test_seen)

    @cached_property
    def best(self) -> float:
        """The share with the highest nDCG@10 on test: an upper bound, not a choice anyone could make."""
        return SHARES[int(self.curves.test[:, 0].mean(axis=1).argmax())]

    @property
    def dev(self) -> float:
        """Mean nDCG@10 on dev at the chosen share."""
        return float(self.curves.dev[SHARES.index(self.chosen), 0].mean())

    def test(self, share: float, measure: str = NDCG) -> NDArray[np.float64]:
        """Each test query's measure at a share: float64 ``[queries]``."""
        return np.asarray(self.curves.test[SHARES.index(share), MEASURES.index(measure)])


At = Callable[[Training], float]
"""Which share of a training is compared."""


def at_chosen(training: Training) -> float:
    """The share that the guard chooses."""
    return training.chosen


def at_best(training: Training) -> float:
    """The share that is best on test."""
    return training.best


def at_one(training: Training) -> float:
    """The fine-tuned model."""
    return 1.0


def at_zero(training: Training) -> float:
    """The untrained model."""
    return 0.0


Cell = Mapping[str, Sequence[Training]]
"""The trainings of one world and noise, by method: the same seeds for each."""


def per_query(trainings: Sequence[Training], at: At = at_chosen, measure: str = NDCG) -> NDArray[np.float64]:
    """Each test query's measure, averaged over the seeds: float64 ``[queries]``."""
    return np.mean([training.test(at(training), measure) for training in trainings], axis=0)


def mean(trainings: Sequence[Training], at: At = at_chosen, measure: str = NDCG) -> float:
    """Mean over queries and seeds, times 100."""
    return 100 * float(per_query(trainings, at, measure).mean())


def against_ft(cell: Cell, methods: Sequence[str], at: At = at_chosen, measure: str = NDCG) -> dict[str, PairedTest]:
    """Test methods against ft over the test queries; p of the t-test in ``t_test_holm``, Holm over the methods."""
    baseline = per_query(cell["ft"], at, measure)
    found = {method: paired_test(per_query(cell[method], at, measure) - baseline) for method in methods}
    corrected = holm([test.t_test for test in found.values()])
    return {m: _with_holm(test, p) for (m, test), p in zip(found.items(), corrected, strict=True)}


def _with_holm(test: PairedTest, p: float) -> PairedTest:
    return PairedTest(**{**vars(test), "t_test_holm": p})


@dataclass(frozen=True)
class OverWorlds:
    """A difference with the worlds as the sample: mean, 95% interval and p of the t-test, in points."""

    difference: float
    low: float
    high: float
    p: float

    @classmethod
    def of(cls, differences: Sequence[float]) -> OverWorlds:
        """Test one difference per world; the interval is NaN for fewer than two worlds."""
        average = float(np.mean(differences))
        if len(differences) < 2 or np.ptp(differences) < 1e-12:
            return cls(average, np.nan, np.nan, np.nan)
        student = ttest_1samp(differences, 0)
        low, high = student.confidence_interval(0.95)
        return cls(average, float(low), float(high), float(student.pvalue))


@dataclass(frozen=True)
class Race:
    """One method per seed, chosen on dev among some that were all trained in full."""

    picks: tuple[str, ...]
    trainings: tuple[Training, ...]

    @classmethod
    def run(cls, cell: Cell, methods: Sequence[str]) -> Race:
        """Choose, for each seed, the method with the highest dev value at the share chosen for it."""
        by_seed = zip(*(cell[method] for method in methods), strict=True)
        won = tuple(max(entries, key=lambda training: training.dev) for entries in by_seed)
        return cls(tuple(training.method for training in won), won)


def write_rows(trainings: Sequence[Training], path: Path = ROWS) -> None:
    """Write a row per training, values times 100."""
    points = {"untrained": at_zero, "chosen": at_chosen, "fine_tuned": at_one, "best": at_best}
    heads = ["world", "method", "noise", "seed", "queries", "steps", "dev_queries", "dev_seen", "test_seen"]
    heads += ["chosen_share", "best_share", "chosen_dev_nDCG@10"]
    heads += [f"{name}_{measure}" for measure in MEASURES for name in points]
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        for t in sorted(trainings, key=lambda t: (t.world, t.noise, t.method, t.seed)):
            facts = [t.world, t.method, f"{t.noise:g}", t.seed, t.curves.queries, t.curves.steps]
            facts += [t.curves.dev.shape[2], f"{t.curves.dev_seen:.3f}", f"{t.curves.test_seen:.3f}"]
            facts += [f"{t.chosen:g}", f"{t.best:g}", f"{100 * t.dev:.2f}"]
            values = [mean([t], at, measure) for measure in MEASURES for at in points.values()]
            writer.writerow([*facts, *(f"{value:.2f}" for value in values)])
