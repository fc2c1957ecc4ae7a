"""How often does the guard say "better" where nothing is gained? Real curves with random signs, dev splits of 6 to 500.

    OMP_NUM_THREADS=1 .venv/bin/python studies/verdict.py static
    .venv/bin/python studies/verdict.py transformer    # trains all-MiniLM-L6-v2 for 40 steps: some 10 minutes
    .venv/bin/python studies/verdict.py --tables

A training of EntailmentBank and one of SciFact are measured on their test queries at every share λ. A query's
differences from the untrained model, by λ, get one random sign: their distribution, their zeros and how shares move
together stay, and no share gains anything on average. From these, dev splits are drawn with replacement, and the guard
chooses and judges. Three ways are compared: the interval of the queries that chose λ; of halves that choose for each
other, which is what a run reports; and the verdict, which also asks for 20 queries. Fills in a table of
docs/when-fine-tuning-hurts.md.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curves import SHARES, measure_curves
from opera.core.intervals import mean_interval, signed
from opera.training.guard.rule import (
    Kind,
    choose_share,
    cross_fitted,
    guarded_measure,
    shares_to_try,
    verdict_of,
)
from page import ROOT, fill, need, table_lines
from samplers import settings_of
from worlds import DATA, MODEL, load_world

PAGE = ROOT / "docs" / "when-fine-tuning-hurts.md"
RESULTS = ROOT / "studies" / "results" / "verdict.csv"
KEPT = Path("runs/verdict")
SETS = ("entailmentbank", "scifact")
QUERIES = (10, 100, 500)
SEEN = (0.0, 1.0)
TRIALS = 2000
HEADS = ["model", "queries", "seen", "naive better", "honest better", "verdict better", "naive gain", "honest gain"]


def curves_of(kind: str, name: str) -> NDArray[np.float64]:
    """nDCG@10 of each test query at every share: float64 ``[shares, queries]``; trained once and kept."""
    path = KEPT / f"{kind}-{name}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, _static(name) if kind == "static" else _transformer(name))
    return np.load(path)


def _static(name: str) -> NDArray[np.float64]:
    world = load_world(name)
    curves = measure_curves(world, "ft", settings_of(world.training_split().n_queries, "ft")[1], 0)
    return curves.test[[SHARES.index(share) for share in shares_to_try(static=True)], 0]


def _transformer(name: str) -> NDArray[np.float64]:
    import opera
    from opera.retrieval.models import load_model
    from opera.training.guard.choice import Weights, mix

    settings = {"method": "ft", "guard": False, "max_steps": 40, "per_device_train_batch_size": 32}
    data = load_world(name)
    run = opera.adapt(data, model="minilm", out=KEPT / name, overwrite=True, max_passage_length=64, **settings)
    tuned, model = Weights.of(load_model(run.model_path, "cpu")), load_model("minilm", "cpu")
    untrained, values = Weights.of(model), []
    for share in shares_to_try(static=False):
        mix(untrained, tuned, share).put_into(model)
        folder = KEPT / f"{name}-{share}"
        model.save_pretrained(str(folder), create_model_card=False)
        values.append(
            opera.evaluate(data, model=folder, measures="nDCG@10", max_passage_length=64).per_query["nDCG@10"]
        )
    return np.array(values)


def simulate(curves: NDArray[np.float64], static: bool, queries: int, seen: float, seed: int) -> NDArray[np.float64]:
    """Draw dev splits without a gain: ``[trials, 5]``: better by each of three ways, and two gains."""
    rng, shares, found = np.random.default_rng(seed), shares_to_try(static), []
    for trial in range(TRIALS):
        drawn = curves[:, rng.integers(curves.shape[1], size=queries)]
        flipped = (drawn - drawn[0]) * rng.choice((-1, 1), queries)
        per_query = dict(zip(shares, flipped, strict=True))
        kinds = [Kind(np.ones(queries, dtype=bool), seen)]
        share = choose_share(per_query, kinds, static)
        naive, honest = per_query[share], cross_fitted(per_query, kinds, static, trial)
        zeros = np.zeros(queries)
        verdict = verdict_of(share, guarded_measure(zeros, zeros, honest if share > 0 else zeros), queries)
        better = [share > 0 and mean_interval(values)[0] > 0 for values in (naive, honest)]
        found.append([*better, verdict == "better", naive.mean(), honest.mean()])
    return np.array(found, dtype=np.float64)


def main() -> None:
    """Simulate one kind of model, and make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=("static", "transformer"))
    parser.add_argument("--tables", action="store_true", help="make the table of the committed results")
    arguments = parser.parse_args()
    rows = list(csv.reader(RESULTS.open(encoding="utf-8")))[1:] if RESULTS.is_file() else []
    if arguments.kind and not arguments.tables:
        need(MODEL, str(DATA))
        rows = [row for row in rows if row[0] != arguments.kind]
        curves = [curves_of(arguments.kind, name) for name in SETS]
        for queries in QUERIES:
            for seen in SEEN:
                parts = [simulate(each, arguments.kind == "static", queries, seen, n) for n, each in enumerate(curves)]
                means = np.concatenate(parts).mean(0)
                rows.append([arguments.kind, str(queries), f"{seen:g}", *(f"{mean:.4f}" for mean in means)])
        with RESULTS.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADS, *rows])
    shown = [
        [kind, queries, f"{float(seen):.0%}", *(f"{float(rate):.1%}" for rate in rates[:3])]
        + [signed(100 * float(gain)) for gain in rates[3:]]
        for kind, queries, seen, *rates in rows
    ]
    heads = ["model", "dev queries", "seen", "“better”: the queries that chose", "halves", "the verdict"]
    fill(PAGE, {"verdict": table_lines([*heads, "mean gain: the queries that chose", "halves"], shown)})


if __name__ == "__main__":
    main()
