"""Does the adapter rank methods as training the whole model does? The static model, with and without it, on test.

    OMP_NUM_THREADS=1 python studies/proxy.py --out proxy.jsonl
    python studies/proxy.py --out proxy.jsonl --table

Every line written is one training: test nDCG@10 before and after. Finished trainings are not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from opera.config.recipe import make_recipe
from opera.data import load_data
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.runs.folder import RunWriter
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared, load_and_check

MODEL = "../shared/models/potion-base-4m"
SETS = ("entailmentbank", "scifact", "nfcorpus", "toollens")
METHODS: dict[str, dict[str, Any]] = {"ft": {}, "infobatch": {}, "sp:k=.75": {"k": 0.75}, "dp": {}}
KINDS: dict[str, dict[str, Any]] = {
    "whole": {"learning_rate": 1e-2},
    "query": {"learning_rate": 3e-3, "adapter": "query"},
    "both": {"learning_rate": 3e-3, "adapter": "both"},
}
SHARED = {
    "max_steps": 150,
    "per_device_train_batch_size": 128,
    "temperature": 0.05,
    "warmup_ratio": 0.0,
    "save_steps": 10_000,
    "guard": False,
}
MEASURE = "nDCG@10"


def jobs(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield every training: all methods of one seed first, so that an interrupted study compares whole sets of them."""
    for seed, data, kind, method in product(range(seeds), SETS, KINDS, METHODS):
        yield {"data": data, "kind": kind, "method": method, "seed": seed}


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Train once; return test nDCG@10 before and after."""
    name = job["method"].split(":")[0]
    values = {**SHARED, **KINDS[job["kind"]], **METHODS[job["method"]], "method": name, "seed": job["seed"]}
    prepared = load_and_check(load_data(f"../shared/data/{job['data']}"), MODEL, make_recipe(values))
    prepared.encode()
    before = _test(prepared.model.encoder, prepared)
    training_set = build_training_set(prepared)
    with TemporaryDirectory() as folder:
        method = prepared.recipe.make_method(training_set.pairs, training_set.scores, 1)
        train(prepared.model.trained, training_set, method, prepared.settings, RunWriter(Path(folder)))
    return {"before": before, "after": _test(Encoder(prepared.model.trained, use_cache=False), prepared)}


def _test(encoder: Encoder, prepared: Prepared) -> float:
    return evaluate_encoder(encoder, prepared.data.drawn, "test", [MEASURE]).measures[MEASURE]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Make the table: mean gain of each method in points, and Spearman's rank correlation with the whole model."""
    lines = ["| data | trained | " + " | ".join(METHODS) + " | Spearman |", "|---" * (len(METHODS) + 3) + "|"]
    correlations: dict[str, list[float]] = {}
    for data, kind in product(SETS, KINDS):
        means = _gains(rows, data, kind)
        if len(means) < len(METHODS):
            continue
        cells = " | ".join(f"{gain:+.1f}" for gain in means)
        rank = spearmanr(means, _gains(rows, data, "whole")).statistic if kind != "whole" else None
        correlations.setdefault(kind, []).extend([] if rank is None else [rank])
        lines.append(f"| {data} | {kind} | {cells} | {'' if rank is None else f'{rank:+.1f}'} |")
    for kind, values in correlations.items():
        if values:
            lines.append(f"\nmean Spearman, {kind}: {np.mean(values):+.2f}; data sets: {len(values)}")
    return lines


def _gains(rows: list[dict[str, Any]], data: str, kind: str) -> list[float]:
    """Mean gain of each method in points."""
    chosen = [row for row in rows if (row["data"], row["kind"]) == (data, kind)]
    found = [[100 * (row["after"] - row["before"]) for row in chosen if row["method"] == name] for name in METHODS]
    return [float(np.mean(gains)) for gains in found if gains]


def main() -> None:
    """Train what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    rows = [json.loads(line) for line in lines]
    if arguments.table:
        print("\n".join(table(rows)))
        return
    torch.set_num_threads(1)
    done = [{name: row[name] for name in ("data", "kind", "method", "seed")} for row in rows]
    for job in jobs(arguments.seeds):
        if job not in done:
            with arguments.out.open("a") as file:
                file.write(json.dumps({**job, **measure(job)}) + "\n")


if __name__ == "__main__":
    main()
