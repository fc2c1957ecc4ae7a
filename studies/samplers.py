"""Which sampler helps, under a tuned batch, temperature, rate, steps and share λ: every method in every world.

    OMP_NUM_THREADS=1 .venv/bin/python studies/samplers.py            # trains what is missing, then fills in the tables
    OMP_NUM_THREADS=1 .venv/bin/python studies/samplers.py --tables

Fills in the tables of docs/samplers.md. Reads ``../shared``, and stops with a message if it is absent. Finished
trainings are kept in runs/curves, so it can be stopped at any time.
"""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import Any

from curves import measure_curves
from page import need
from worlds import DATA, MODEL, load_world

FIXED = {"temperature": 0.05, "learning_rate": 1e-2}
BATCH, EPOCHS, LEAST_STEPS, MOST_STEPS = 256, 20, 50, 300
SETS = ("scifact", "entailmentbank", "nfcorpus", "toollens")
WORLDS = (*SETS, *(f"{name}+new" for name in SETS))
METHODS = (
    "ft",
    "infobatch",
    "sp:k=0.75",
    "dp",
    "dp:query_score=loss",
    "dp:query_score=similarity",
    "dp:levels=query",
    "dp:levels=document",
)
CURVES = Path("runs/curves")


def settings_of(queries: int, method: str) -> tuple[str, dict[str, Any]]:
    """Split ``dp:levels=query`` into method and settings; add batch and steps for a number of training queries."""
    name, *own = method.split(":")
    batch = min(BATCH, max(8, queries // 2))
    steps = min(MOST_STEPS, max(LEAST_STEPS, round(EPOCHS * queries / batch)))
    sizes = {"per_device_train_batch_size": batch, "max_steps": steps}
    return name, {**FIXED, **sizes, **dict(assignment.split("=") for assignment in own)}


def place(world: str, method: str, seed: int, noise: float = 0) -> Path:
    """Return the file of one training."""
    noisy = f",noise={noise:g}" if noise else ""
    return CURVES / world / f"{re.sub(':', ',', method)}{noisy}" / f"seed{seed}.npz"


def run(world: str, method: str, seed: int, noise: float = 0) -> None:
    """Train and measure, unless it is done."""
    path = place(world, method, seed, noise)
    if path.is_file():
        return
    data = load_world(world, seed)
    name, settings = settings_of(data.training_split().n_queries, method)
    if noise:
        settings |= {"noise": "random", "noise_share": noise}
    curves = measure_curves(data, name, settings, seed)
    curves.write(path)
    means = [f"{100 * value:.1f}" for value in curves.test[:, 0].mean(1)[::2]]
    print(f"{path}: {curves.steps} steps, test nDCG@10 by λ {' '.join(means)}", flush=True)


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--noise", default="0")
    arguments = parser.parse_args()
    need(MODEL, str(DATA))
    logging.disable(logging.INFO)
    for seed in map(int, arguments.seeds.split(",")):
        for noise in map(float, arguments.noise.split(",")):
            for world in arguments.worlds.split(","):
                for method in arguments.methods.split(","):
                    run(world, method, seed, noise)


if __name__ == "__main__":
    main()
