"""When does dp help a static model? Learning rates, temperatures and positives per query.

    OMP_NUM_THREADS=1 python reproduction/studies/regimes.py  # trains what is missing (an hour)
    python reproduction/studies/regimes.py --tables           # fills docs/benchmarks.md, prints all comparisons

potion-base-4m without the guard, 150 steps of 64 queries, random negatives. Reads ``../shared``, and stops with a
message if it is absent.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.core.intervals import signed
from study import ROOT, STATIC_MODEL, STORED, OverSettings, Results, fill, need, table_lines
from transformer import Run, load

KEY = ("set", "regime", "temperature", "lr", "method", "seed")
PROBLEMS = {
    "NFCorpus, at most 1 kept": ("nfcorpus", "positives=1"),
    "NFCorpus, at most 4 kept": ("nfcorpus", "positives=4"),
    "NFCorpus, at most 16 kept": ("nfcorpus", "positives=16"),
    "NFCorpus (43)": ("nfcorpus", "plain"),
    "EntailmentBank (4.4)": ("entailmentbank", "plain"),
    "ToolLens (2.7)": ("toollens", "plain"),
    "SciFact (1.1)": ("scifact", "plain"),
}
"""Data sets with their positives per query, and how transformer.py names them."""
RATES, TEMPERATURES, METHODS, SEEDS = (1e-3, 1e-2), (0.02, 0.05), ("ft", "dp", "dp:levels=document"), (0, 1)
MEASURES = ("nDCG@10", "R@20")


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and return the test measures of the base and the fine-tuned model, and of each query."""
    method, *options = run["method"].split(":")
    with tempfile.TemporaryDirectory() as folder:
        trained = opera.adapt(
            load(Run(run["set"], "ft", regime=run["regime"])),
            model=STATIC_MODEL,
            out=Path(folder, "run"),
            method=method,
            seed=run["seed"],
            guard=False,
            max_steps=150,
            per_device_train_batch_size=64,
            learning_rate=run["lr"],
            temperature=run["temperature"],
            negatives="random",
            **dict(option.split("=") for option in options),
        )
        base = {f"base {name}": round(100 * trained.measures["base"][name], 2) for name in MEASURES}
        final = {f"test {name}": round(100 * trained.measures["final"][name], 2) for name in MEASURES}
        queries = trained.per_query()
        return {**base, **final, **{name: queries[f"final {name}"].to_numpy() for name in MEASURES}}


def difference(results: Results, method: str, name: str, **fields: Any) -> str:
    """A method against ft on the test queries, in points with its 95% interval; ``*`` for p < 0.05.

    A query counts once, with its mean over the seeds.
    """
    ft, other = (
        np.mean([row[name] for row in results.select(method=label, **fields)], axis=0, dtype=float)
        for label in ("ft", method)
    )
    test = OverSettings.of(100 * (other - ft))
    star = "*" if test.p < 0.05 else ""
    return f"{signed(test.difference)} ({signed(test.low)} to {signed(test.high)}){star}"


def page_table(results: Results) -> str:
    """The table of docs/benchmarks.md: both learning rates at temperature 0.05."""
    rows = []
    for title, (name, regime) in PROBLEMS.items():
        row = [title]
        for lr in RATES:
            fields = {"set": name, "regime": regime, "lr": lr, "temperature": 0.05}
            ft = np.mean([run["test nDCG@10"] for run in results.select(method="ft", **fields)])
            row += [f"{ft:.1f}", difference(results, "dp", "nDCG@10", **fields)]
        rows.append(row)
    return table_lines(["positives per query", "`ft`, slow", "`dp` − `ft`", "`ft`, OPERA's rate", "`dp` − `ft`"], rows)


def main() -> None:
    """Train what is missing, then make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    options = parser.parse_args()
    results = Results(STORED / "regimes.csv", KEY)
    grid = list(itertools.product(RATES, TEMPERATURES, PROBLEMS.values()))
    if not options.tables:
        need("../shared/data", "../shared/models")
        logging.disable(logging.INFO)
        for seed, (lr, temperature, (name, regime)), method in itertools.product(SEEDS, grid, METHODS):
            run = dict(zip(KEY, (name, regime, temperature, lr, method, seed), strict=True))
            if not results.has(run):
                results.add(run, **measure(run))
                print(*run.values(), flush=True)
    for lr, temperature, (name, regime) in grid:
        fields = {"set": name, "regime": regime, "temperature": temperature, "lr": lr}
        parts = [f"{m} {method} {difference(results, method, m, **fields)}" for method in METHODS[1:] for m in MEASURES]
        print(*fields.values(), *parts, sep="; ")
    fill(ROOT / "docs" / "benchmarks.md", {"regimes": page_table(results)})


if __name__ == "__main__":
    main()
