"""When does dp help a static model? Learning rates, temperatures, positives per query and wrong labels.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.core.figures import signed
from study import ROOT, STATIC_MODEL, STORED, OverSettings, Results, fill, need, table_lines
from transformer import Run, load

KEY = ("set", "regime", "temperature", "lr", "method", "seed")
PROBLEMS = {
    "NFCorpus, at most 1 kept": ("nfcorpus", "positives=1"),
    "NFCorpus, at most 4 kept": ("nfcorpus", "positives=4"),
    "NFCorpus, at most 16 kept": ("nfcorpus", "positives=16"),
    "NFCorpus": ("nfcorpus", "plain"),
    "EntailmentBank": ("entailmentbank", "plain"),
    "ToolLens": ("toollens", "plain"),
    "SciFact": ("scifact", "plain"),
}
"""Data sets and regimes, as transformer.py names them."""
WHOLE = {title: name for title, (name, regime) in PROBLEMS.items() if regime == "plain"}
WRONG = {"none": "plain", "30%": "wrong labels=0.3", "50%": "wrong labels=0.5"}
"""The fraction of wrong labels in train, and its regime."""
RATES, TEMPERATURES, SEEDS = (1e-3, 1e-2), (0.02, 0.05), (0, 1)
METHODS, NOISY_METHODS = ("ft", "dp", "dp:levels=document"), ("ft", "dp", "denoise", "dp+denoise")
MEASURES = ("nDCG@10", "R@20")


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and return the test measures of the base and the fine-tuned model, and of each query."""
    method, *options = run["method"].split(":")
    with tempfile.TemporaryDirectory() as folder:
        trained = opera.adapt(
            load(Run(run["set"], "ft", seed=run["seed"], regime=run["regime"])),
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


def runs() -> Iterator[dict[str, Any]]:
    """All runs: the clean data first; wrong labels at temperature 0.05 only."""
    clean = itertools.product(SEEDS, RATES, TEMPERATURES, PROBLEMS.values(), METHODS)
    with_wrong = itertools.product(WHOLE.values(), (regime for regime in WRONG.values() if regime != "plain"))
    noisy = itertools.product(SEEDS, RATES, (0.05,), with_wrong, NOISY_METHODS)
    for seed, lr, temperature, (name, regime), method in itertools.chain(clean, noisy):
        yield dict(zip(KEY, (name, regime, temperature, lr, method, seed), strict=True))


def against_ft(results: Results, method: str, name: str, **fields: Any) -> OverSettings:
    """A method against ft on the test queries, in points. A query counts once, with its mean over the seeds."""
    ft, other = (
        np.mean([row[name] for row in results.select(method=label, **fields)], axis=0, dtype=float)
        for label in ("ft", method)
    )
    return OverSettings.of(100 * (other - ft))


def in_words(test: OverSettings) -> str:
    """A difference with its 95% interval; ``*`` for p < 0.05."""
    return f"{signed(test.difference)} ({signed(test.low)} to {signed(test.high)}){'*' * (test.p < 0.05)}"


def page_table(results: Results) -> str:
    """The table of docs/benchmarks.md: dp against ft at temperature 0.05, by learning rate and wrong labels."""
    columns = list(itertools.product(RATES, WRONG.values()))
    rows = [
        [title, *(_cell(results, {"set": name, "lr": lr, "regime": regime}) for lr, regime in columns)]
        for title, name in WHOLE.items()
    ]
    return table_lines(["data", *(f"{rate}, {share}" for rate in ("slow", "fast") for share in WRONG)], rows)


def _cell(results: Results, fields: dict[str, Any]) -> str:
    test = against_ft(results, "dp", "nDCG@10", temperature=0.05, **fields)
    return signed(test.difference) + "*" * (test.p < 0.05)


def main() -> None:
    """Train what is missing, then make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing")
    options = parser.parse_args()
    results = Results(STORED / "regimes.csv", KEY)
    if not options.tables:
        need("../shared/data", "../shared/models")
        logging.disable(logging.INFO)
        for run in runs():
            if not results.has(run):
                results.add(run, **measure(run))
                print(*run.values(), flush=True)
    settings: dict[tuple[Any, ...], list[str]] = {}
    for run in runs():
        if results.has(run):
            settings.setdefault(tuple(run[name] for name in KEY[:4]), []).append(run["method"])
    for setting, methods in settings.items():
        fields = dict(zip(KEY, setting, strict=False))
        others = [method for method in dict.fromkeys(methods) if method != "ft"]
        parts = [
            f"{measure} {method} {in_words(against_ft(results, method, measure, **fields))}"
            for method in others
            for measure in MEASURES
        ]
        print(*setting, *parts, sep="; ")
    fill(ROOT / "docs" / "benchmarks.md", {"regimes": page_table(results)})


if __name__ == "__main__":
    main()
