"""What are weak pairs worth? Trains on the titles of a corpus alone, and measures on the set's own test split.

    OMP_NUM_THREADS=1 .venv/bin/python studies/weak_pairs.py

Writes weak pairs of each corpus with ``opera.pairs``, trains the small static model on them and, for comparison, on the
set's own training labels, each with three seeds and all defaults, and fills in a table of docs/data.md. Titles stay in
the documents that are searched. Trainings are kept in runs/weak-pairs, and those that are there are not repeated. Reads
``../shared``, and stops with a message if it is absent. Takes about 40 minutes.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.experiments.analysis.significance import paired_test
from opera.runs.folder import holds_run
from page import ROOT, fill, need, table_lines
from worlds import DATA, MODEL

PAGE, RUNS = ROOT / "docs" / "data.md", ROOT / "runs" / "weak-pairs"
SETS, SEEDS = ("nfcorpus", "scifact"), (0, 1, 2)
MEASURES = ("nDCG@10", "R@20")
WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "weak pairs": (True, {}),
    "own labels": (False, {}),
    "weak pairs, `--future same-documents`": (True, {"future": "same-documents"}),
}
"""Whether a way trains on weak pairs, and its settings."""


def trained(name: str, way: str, seed: int) -> Path:
    """Train, unless that was done before; return the run's folder."""
    weak, settings = WAYS[way]
    pairs = RUNS / f"{name}.csv"
    run = RUNS / f"{name}-{list(WAYS).index(way)}-{seed}"
    if not pairs.exists():
        RUNS.mkdir(parents=True, exist_ok=True)
        opera.pairs(DATA / name, out=pairs)
    if not (holds_run(run) and opera.Run.open(run).finished):
        opera.adapt(pairs if weak else DATA / name, model=MODEL, out=run, seed=seed, overwrite=True, **settings)
    return run


def rows_of(name: str) -> list[list[str]]:
    """Measure the untrained model and each way on the test split: rows of the table."""
    data = opera.load_data(DATA / name)
    untrained = opera.evaluate(data, model=MODEL, measures=MEASURES)
    rows = [[name, "untrained", *(f"{untrained.measures[measure]:.3f}" for measure in MEASURES)]]
    for way in WAYS:
        found = [opera.evaluate(data, model=trained(name, way, seed), measures=MEASURES) for seed in SEEDS]
        cells = []
        for measure in MEASURES:
            per_query = np.mean([each.per_query[measure] for each in found], axis=0)
            test = paired_test(per_query - untrained.per_query[measure])
            points = [f"{100 * value:+.1f}".replace("-", "−") for value in (test.difference, test.low, test.high)]
            cells.append(f"{per_query.mean():.3f}: {points[0]} ({points[1]} to {points[2]})")
        rows.append([name, way, *cells])
    return rows


def main() -> None:
    """Train, measure and fill in the table; ``--only`` trains one data set and fills in nothing."""
    parser = argparse.ArgumentParser(description="What are weak pairs worth?")
    parser.add_argument("--only", choices=SETS, help="train on this data set, and fill in nothing")
    only = parser.parse_args().only
    need(str(DATA), MODEL)
    if only:
        for way, seed in product(WAYS, SEEDS):
            print(trained(only, way, seed), flush=True)
        return
    rows = [row for name in SETS for row in rows_of(name)]
    fill(PAGE, {"weak-pairs": table_lines(["data", "trained on", *MEASURES], rows)})


if __name__ == "__main__":
    main()
