"""Do the intervals of cut-offs and noise rates hold the truth? Simulations, 2 minutes.

    OMP_NUM_THREADS=1 python reproduction/studies/intervals.py

Fills the tables of docs/deploy.md (cut-offs) and docs/noisy-labels.md (noise rates).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.labels.estimate import LATER, noise_interval, noise_rate
from opera.run_folder.cutoffs import fit_cutoffs
from study import ROOT, fill, table_lines

Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]

GRID = np.linspace(0, 1, 20_001)
RELATIONS: dict[str, tuple[Curve, float]] = {
    "0.72 at every score": (lambda x: 0.72 + 0 * x, 0.8),
    "0.5 to 0.79": (lambda x: 0.5 + 0.29 * x, 0.8),
    "0.5 to 0.9": (lambda x: 0.5 + 0.4 * x, 0.8),
    "0.05 to 0.95": (lambda x: 1 / (1 + np.exp(-6 * (x - 0.5))), 0.8),
    "0.002 to 0.998": (lambda x: 1 / (1 + np.exp(-12 * (x - 0.5))), 0.9),
}
"""The probability that the best document is relevant, by its score, uniform in 0 to 1; and the target."""
QUERIES = (100, 300, 1000)
OFTEN = 0.2
"""The interval is shown if at least this fraction of the simulations gives a cut-off."""
RATES = (0, 0.005, 0.01, 0.02, 0.1, 0.3)
PAIRS = (300, 1000, 10_000)
CLUSTERS = {"1": (1, 0.0), "10": (10, 0.0), "10, alike": (10, 0.3)}
"""Pairs per query, and the correlation of their labels."""


def cutoff_row(name: str, queries: int, runs: int) -> list[str]:
    """Choose a cut-off in every simulation; say how often there is one, and whether its interval holds."""
    curve, target = RELATIONS[name]
    precision_above = np.cumsum(curve(GRID)[::-1])[::-1] / np.arange(len(GRID), 0, -1)
    rows = []
    for run in range(runs):
        rng = generator(run, f"study.intervals.{name}", queries)
        scores = rng.random(queries)
        cutoff = fit_cutoffs(scores.astype(np.float32), rng.random(queries) < curve(scores)).cutoff(target)
        if cutoff is not None:
            true = precision_above[int(cutoff.score * (len(GRID) - 1))]
            rows.append((cutoff.answered, cutoff.low <= true <= cutoff.high, true < target))
    given = len(rows) / runs
    cells = [f"{value:.1%}" for value in np.mean(rows, axis=0)] if given >= OFTEN else ["", "", ""]
    return [name, f"{target:.0%}", f"{queries:,}", f"{1 - given:.0%}", *cells]


def noise_cell(pairs: int, per_query: int, correlation: float, rate: float, runs: int) -> str:
    """Say how often the interval holds the noise rate, and its mean width in points."""
    holds, width = [], []
    for run in range(runs):
        rng = generator(run, f"study.intervals.{per_query}.{correlation}.{rate}", pairs)
        rate_of_query = np.full(pairs // per_query, float(rate))
        if correlation and rate:
            others = (1 - correlation) / correlation
            rate_of_query = rng.beta(rate * others, (1 - rate) * others, len(rate_of_query))
        query = np.repeat(np.arange(len(rate_of_query)), per_query)
        p = np.where(rng.random(pairs) < rate_of_query[query], rng.random(pairs), rng.beta(0.5, 30, pairs))
        later = rng.permutation(pairs)[: max(LATER, pairs // 2)]
        low, high = noise_interval(noise_rate(p[later]), [(1.0, p[later], query[later])])
        holds.append(low <= rate <= high)
        width.append(100 * (high - low))
    return f"{np.mean(holds):.1%}, {np.mean(width):.1f}"


def main() -> None:
    """Simulate, and fill the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulations of each row")
    runs = parser.parse_args().runs
    heads = ["relevant", "target", "queries", "no cut-off", "answered", "interval holds", "below target"]
    rows = [cutoff_row(name, queries, runs) for name in RELATIONS for queries in QUERIES]
    fill(ROOT / "docs" / "deploy.md", {"cutoff_intervals": table_lines(heads, rows)})
    heads = ["training pairs", "per query", *(f"{rate:.1%}" for rate in RATES)]
    rows = [
        [f"{pairs:,}", name, *(noise_cell(pairs, *cluster, rate, runs) for rate in RATES)]
        for pairs in PAIRS
        for name, cluster in CLUSTERS.items()
    ]
    fill(ROOT / "docs" / "noisy-labels.md", {"noise_intervals": table_lines(heads, rows)})


if __name__ == "__main__":
    main()
