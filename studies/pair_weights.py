"""What do weights of pairs do? Simulated clicks on real data.

    python studies/pair_weights.py ../shared/data/nfcorpus ../shared/models/potion-base-4m --seeds 0,1,2

Adds false pairs, queries with random documents, until they are 30% of the training pairs. Every pair gets clicks:
1 + Poisson(4) if it is true, 1 + Poisson(1) if it is false; so weights say something about the labels, and are often
wrong. Trains each method without weights and with them, without the guard, and measures on test. Prints the mean over
the seeds, and the paired test against the same method without weights over the test queries, each one's difference
averaged over the seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import opera
from opera.core.rng import generator
from opera.data import Qrels
from opera.experiments.analysis.significance import paired_test

MEASURE = "nDCG@10"
FALSE_SHARE, TRUE_CLICKS, FALSE_CLICKS = 0.3, 4.0, 1.0
CELLS: dict[str, list[dict[str, Any]]] = {
    "ft": [{}, {"pair_weights": "loss"}],
    "sp": [{"k": 0.7}, {"k": 0.7, "pair_weights": "scores"}],
    "dp": [{}, {"pair_weights": "scores"}, {"pair_weights": "loss"}],
}


def with_clicks(data: opera.RetrievalData, seed: int) -> opera.RetrievalData:
    """Add false pairs to train, and clicks to all of them."""
    train, rng = data.split("train").relevant(), generator(seed, "study.clicks")
    true_rows = train.query_rows[train.query_index]
    count = round(len(true_rows) * FALSE_SHARE / (1 - FALSE_SHARE))
    query = np.concatenate([true_rows, rng.choice(true_rows, count)])
    doc = np.concatenate([train.doc_rows, rng.integers(len(data.corpus), size=count)])
    clicks = 1 + rng.poisson(np.repeat([TRUE_CLICKS, FALSE_CLICKS], [len(true_rows), count]))
    keys = query.astype(np.int64) << 32 | doc
    first = np.sort(np.unique(keys, return_index=True)[1])  # a false pair that happens to be true stays true
    qrels = Qrels.from_arrays(query[first], doc[first], np.ones(len(first), dtype=np.int64), clicks[first])
    return replace(data, fingerprint=f"{data.fingerprint}/clicks/{seed}", splits={**data.splits, "train": qrels})


def measured(
    data: opera.RetrievalData, options: argparse.Namespace, method: str, more: dict[str, Any], seed: int
) -> np.ndarray:
    """Train and return the measure of each test query."""
    with TemporaryDirectory() as folder:
        run = opera.adapt(
            data,
            model=options.model,
            out=Path(folder) / "run",
            method=method,
            seed=seed,
            max_steps=options.steps,
            batch_size=options.batch_size,
            guard=False,
            **more,
        )
        return np.array(run.per_query()[f"after {MEASURE}"])


def main() -> None:
    """Train and print all cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    data, seeds = opera.load_data(options.data), [int(seed) for seed in options.seeds.split(",")]
    clean = np.mean([measured(data, options, "ft", {}, seed) for seed in seeds], axis=0)
    print(f"ft on the true pairs alone: {MEASURE} {clean.mean():.4f}", flush=True)
    clicked = [with_clicks(data, seed) for seed in seeds]
    for method, cells in CELLS.items():
        plain = None
        for more in cells:
            values = [measured(own, options, method, more, seed) for own, seed in zip(clicked, seeds, strict=True)]
            mean = np.mean(values, axis=0)
            line = f"{method} {more}: {MEASURE} {mean.mean():.4f}, seeds {[round(float(v.mean()), 4) for v in values]}"
            if plain is None:
                plain = mean
            else:
                test = paired_test(mean - plain)
                line += f"; {100 * test.difference:+.2f} points [{100 * test.low:+.2f}, {100 * test.high:+.2f}], "
                line += f"p = {test.t_test:.2g}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
