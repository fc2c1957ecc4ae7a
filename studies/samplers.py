"""Which sampler helps, under a tuned batch, temperature, rate, steps and share λ: every method in every world.

    OMP_NUM_THREADS=1 .venv/bin/python studies/samplers.py --all      # trains what is missing
    OMP_NUM_THREADS=1 .venv/bin/python studies/samplers.py --tables

The first reads ``../shared``, and stops with a message if it is absent; finished trainings are kept in runs/curves, so
it can be stopped at any time. The second fills in docs/samplers.md, and writes studies/results/samplers.csv.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from curves import Curves, measure_curves
from opera.data import draw_missing_splits
from opera_paper.noise import add_wrong_pairs
from page import ROOT, fill, need
from sampler_results import Training, write_rows
from sampler_tables import all_tables
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
NOISY_WORLDS = ("scifact", "entailmentbank")
NOISES = (0.1, 0.3, 0.5)
NOISY_METHODS = ("ft", "infobatch", "sp:k={true:g}", "dp", "sp+dp:k={true:g}")
"""Under noise, sp and sp+dp are given the share of true pairs."""
SEEDS = (0, 1, 2)
CURVES = Path("runs/curves")
PAGE = ROOT / "docs" / "samplers.md"

PLANS = ((WORLDS, METHODS, (0.0,)), (NOISY_WORLDS, NOISY_METHODS, NOISES))
"""Worlds, methods and shares of false pairs of everything that the page shows."""

Cell = dict[str, list[Training]]


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
    if noise:  # the dev split, which measure_curves would draw otherwise, stays clean
        data = draw_missing_splits(data, seed=seed, needs_dev=True, future="like-test")
        data, _ = add_wrong_pairs(data, "random", noise, seed, splits=("train",))
    curves = measure_curves(data, name, settings, seed)
    curves.write(path)
    means = [f"{100 * value:.1f}" for value in curves.test[:, 0].mean(1)[::2]]
    print(f"{path}: {curves.steps} steps, test nDCG@10 by λ {' '.join(means)}", flush=True)


def cell(world: str, methods: Iterable[str], noise: float = 0) -> Cell:
    """Read the trainings of a world by method, of the seeds that every method has finished.

    With noise, methods without any finished training are left out.
    """
    names = [method.format(true=1 - noise) for method in methods]
    if noise:
        names = [name for name in names if any(place(world, name, seed, noise).is_file() for seed in SEEDS)]
    seeds = [seed for seed in SEEDS if all(place(world, name, seed, noise).is_file() for name in names)]
    return {
        name: [Training(world, name, noise, seed, Curves.read(place(world, name, seed, noise))) for seed in seeds]
        for name in names
    }


def cells(worlds: Iterable[str], methods: Iterable[str]) -> dict[str, Cell]:
    """Read the worlds in which every method has finished some seed."""
    found = {world: cell(world, methods) for world in worlds}
    return {world: of for world, of in found.items() if of["ft"]}


def write_tables() -> None:
    """Fill in the page, and write a row per training."""
    clean = cells(WORLDS, METHODS)
    noisy = {(world, noise): cell(world, NOISY_METHODS, noise) for world in NOISY_WORLDS for noise in NOISES}
    noisy = {key: of for key, of in noisy.items() if of.get("ft")}
    every = [(of, METHODS) for of in clean.values()]
    every += [(of, tuple(of)) for of in noisy.values()]
    write_rows([training for of, methods in every for method in methods for training in of[method]])
    fill(PAGE, all_tables(clean, noisy))


def main() -> None:
    """Train what is missing, then make the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--methods", default=",".join(METHODS), help="{true:g} is the share of true pairs")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--noise", default="0", help="shares of false pairs, drawn at random")
    parser.add_argument("--all", action="store_true", help="train everything that the page shows")
    parser.add_argument("--tables", action="store_true", help="train nothing; make the tables of what is there")
    arguments = parser.parse_args()
    if arguments.tables:
        write_tables()
        return
    need(MODEL, str(DATA))
    logging.disable(logging.INFO)
    listed = [arguments.worlds.split(","), arguments.methods.split(","), map(float, arguments.noise.split(","))]
    plans = PLANS if arguments.all else [tuple(map(tuple, listed))]
    for seed in map(int, arguments.seeds.split(",")):
        for worlds, methods, noises in plans:
            for noise, world, method in itertools.product(noises, worlds, methods):
                run(world, method.format(true=1 - noise), seed, noise)


if __name__ == "__main__":
    main()
