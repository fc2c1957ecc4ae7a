"""Does the guard keep its promise? Train with all defaults in many worlds, and set the models side by side.

    OMP_NUM_THREADS=1 .venv/bin/python studies/guard.py             # trains what is missing, then fills in the tables
    OMP_NUM_THREADS=1 .venv/bin/python studies/guard.py --tables    # makes the tables of the committed results

Each world is trained three times: with ``--future like-test``, the default, which reads one number of test; with the
true ``--future``, which reads nothing of it; and with ``--future both``. Every run has the untrained model, the
fine-tuned one (λ = 1: the same method, batch, steps, rate, temperature and mask, trained on everything) and the one
handed over. Writes studies/results/guard.csv and docs/never-worse.svg, and fills in the tables of
docs/when-fine-tuning-hurts.md. Reads ``../shared``, and stops with a message if it is absent. Finished runs are not
repeated, so it can be stopped at any time.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from opera.core.intervals import mean_interval, signed
from opera.runs.folder import Run, holds_run
from page import ROOT, fill, need, table_lines
from worlds import DATA, MODEL, load_world

PAGE = ROOT / "docs" / "when-fine-tuning-hurts.md"
FIGURE = ROOT / "docs" / "never-worse.svg"
RESULTS = ROOT / "studies" / "results" / "guard.csv"
RUNS = Path("runs/guard")
SETS = ("entailmentbank", "scifact", "nfcorpus", "toollens")
WORLDS = (
    *SETS,
    *(f"{name}+new" for name in SETS),
    *(f"{name}+n60" for name in SETS),
    *(f"{name}+new+n200" for name in SETS),
)
MODELS = {"static": MODEL, "minilm": "minilm"}
MEASURES = ("nDCG@10", "R@20")
UNGUARDED = ("--set", "guard=false")
COMPARED = ("before", "fine_tuned", "after")
FUTURES = {"like-test": "like-test", "true": "the true --future", "both": "both"}
"""What is told of the future, and its name in the tables."""


@dataclass(frozen=True)
class Row:
    """One run: measures of the test split, by model; ``seen`` is known where it was read."""

    model: str
    world: str
    future: str
    seed: int
    queries: int
    seen: float
    share: float
    verdict: str
    dev_difference: float
    dev_low: float
    dev_high: float
    before: float
    fine_tuned: float
    after: float
    before_recall: float
    fine_tuned_recall: float
    after_recall: float


def train(model: str, world: str, seed: int, settings: Sequence[str], name: str = "") -> Path:
    """Run ``opera train`` with all defaults but ``settings``, unless it is done. Remove runs/guard after a change."""
    from opera.cli import main

    out = RUNS / model / world / f"{name}seed{seed}"
    if holds_run(out) and Run.open(out).finished:
        return out
    folder = RUNS / "data" / (f"{world}-{seed}" if "+n" in world.replace("+new", "") else world)
    if not (folder / "qrels").is_dir():
        load_world(world, seed).write_beir(folder)
    sys.argv = ["opera", "train", str(folder), "--model", MODELS[model], "--out", str(out), "--seed", str(seed)]
    sys.argv += ["--resume" if holds_run(out) else "--overwrite", *settings]
    try:
        main()
    except SystemExit as end:  # every command ends so, after success too
        if end.code:
            raise RuntimeError(f"{out}: exit status {end.code}") from end
    return out


def told(world: str, future: str) -> str:
    """What a run is told of tomorrow's queries."""
    true = "new-documents" if "+new" in world else "same-documents"
    return true if future == "true" else future


def read_row(out: Path, future: str) -> Row:
    """Read the figures of one run."""
    run = Run.open(out)
    guard, measures = run.record.guard, run.measures
    assert guard is not None
    values = {
        f"{name}{suffix}": round(100 * measures[name][measure], 3)
        for measure, suffix in zip(MEASURES, ("", "_recall"), strict=True)
        for name in COMPARED
    }
    return Row(
        model=out.parts[-3],
        world=out.parts[-2],
        future=future,
        seed=run.record.seed,
        queries=run.record.data.counts["train_queries"],
        seen=-1.0 if guard.test_seen is None else round(guard.test_seen, 3),
        share=guard.share,
        verdict=guard.verdict,
        dev_difference=round(100 * guard.dev.difference, 3),
        dev_low=round(100 * guard.dev.low, 3),
        dev_high=round(100 * guard.dev.high, 3),
        **values,
    )


def with_fine_tuned(row: Row, out: Path) -> Row:
    """Take the fine-tuned model's figures from a run without the guard."""
    values = [round(100 * Run.open(out).measures["after"][measure], 3) for measure in MEASURES]
    return replace(row, fine_tuned=values[0], fine_tuned_recall=values[1])


def write_rows(rows: Sequence[Row]) -> None:
    """Write the committed results, sorted."""
    RESULTS.parent.mkdir(exist_ok=True)
    order = {world: place for place, world in enumerate(WORLDS)}
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.model, row.future, order[row.world], row.seed)):
            writer.writerow(asdict(row))


def read_rows() -> list[Row]:
    """Read the committed results."""
    kinds = {field.name: {"str": str, "int": int, "float": float}[str(field.type)] for field in fields(Row)}
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return [Row(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def by_world(rows: Sequence[Row], model: str, future: str = "like-test") -> dict[str, list[Row]]:
    """Group the rows of a model by world."""
    worlds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if (row.model, row.future) == (model, future):
            worlds[row.world].append(row)
    return dict(worlds)


def world_table(rows: Sequence[Row], model: str) -> str:
    """A line per world, told ``like-test``: means over the seeds."""
    heads = ["world", "queries", "seen", "untrained", "fine-tuned", "handed over", "λ", "verdicts"]
    lines = []
    for world, runs in by_world(rows, model).items():
        cells = [measures_cell(runs, name) for name in ("before", "fine_tuned", "after")]
        shares = ", ".join(f"{row.share:g}" for row in runs)
        verdicts = ", ".join(row.verdict for row in runs)
        lines.append([world, f"{runs[0].queries:,}", f"{runs[0].seen:.0%}", *cells, shares, verdicts])
    return table_lines(heads, lines)


def measures_cell(runs: Sequence[Row], name: str) -> str:
    """Mean nDCG@10 and R@20 of one of the models."""
    return f"{mean(runs, name):.1f} / {mean(runs, f'{name}_recall'):.1f}" if runs else ""


def summary_table(rows: Sequence[Row], model: str) -> str:
    """Handed over against untrained and fine-tuned, with the data sets as the sample: worlds of one are alike."""
    heads = ["told", "against", *(f"{name}{of}" for name in MEASURES for of in ("", ": lowest world", ": lowest run"))]
    lines = []
    for future, name in FUTURES.items():
        worlds = by_world(rows, model, future)
        for other, label in (("before", "untrained"), ("fine_tuned", "fine-tuned")) if worlds else ():
            lines.append([name, label])
            for suffix in ("", "_recall"):
                runs = {
                    world: [getattr(row, f"after{suffix}") - getattr(row, f"{other}{suffix}") for row in of]
                    for world, of in worlds.items()
                }
                means = {world: float(np.mean(values)) for world, values in runs.items()}
                sets = [np.mean([value for world, value in means.items() if world.split("+")[0] == of]) for of in SETS]
                (low, high), lowest = mean_interval(np.array(sets)), min(means, key=lambda world: means[world])
                worst = min(value for values in runs.values() for value in values)
                lines[-1] += [f"{signed(float(np.mean(sets)))} ({signed(low)} to {signed(high)})"]
                lines[-1] += [f"{signed(means[lowest])} ({lowest})", signed(worst)]
    return table_lines(heads, lines)


def mean(runs: Sequence[Row], name: str) -> float:
    """Mean of a column over the seeds."""
    return float(np.mean([getattr(row, name) for row in runs]))


def draw(rows: Sequence[Row]) -> None:
    """Draw points of nDCG@10 against the untrained model: fine-tuned and handed over, by world."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "opera"
    import matplotlib.pyplot as plt

    worlds = by_world(rows, "static")
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(worlds) + 1.1), layout="constrained")
    for place, (world, runs) in enumerate(reversed(worlds.items())):
        before = mean(runs, "before")
        tuned, handed = (mean(runs, name) - before for name in ("fine_tuned", "after"))
        axes.plot([tuned, handed], [place, place], color="#bbbbbb", zorder=1)
        axes.scatter(tuned, place, color="#c0504d", marker="x", zorder=2, label="fine-tuned" if place == 0 else None)
        axes.scatter(handed, place, color="#1f6f8b", zorder=3, label="handed over" if place == 0 else None)
        axes.text(-13.4, place, world, ha="right", va="center", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xscale="symlog", yticks=[], xlim=(-13, 90), xlabel="points of nDCG@10 against the untrained model (test)")
    axes.set_xticks([-10, -3, 0, 3, 10, 30], labels=["−10", "−3", "0", "+3", "+10", "+30"])
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(FIGURE, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Train what is missing, then make the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="train nothing; make the tables of the committed results")
    parser.add_argument("--model", choices=list(MODELS), default="static")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--futures", default=",".join(FUTURES))
    parser.add_argument("--set", action="append", default=[], help="passed on to opera train")
    arguments = parser.parse_args()
    rows = {(row.model, row.world, row.future, row.seed): row for row in (read_rows() if RESULTS.is_file() else [])}
    if not arguments.tables:
        need(MODEL, str(DATA))
        settings = [word for value in arguments.set for word in ("--set", value)]
        for future in arguments.futures.split(","):
            for seed in map(int, arguments.seeds.split(",")):
                for world in arguments.worlds.split(","):
                    out = train(
                        arguments.model, world, seed, [*settings, "--future", told(world, future)], f"{future}-"
                    )
                    row, guard = read_row(out, future), Run.open(out).record.guard
                    if guard is None or not guard.refit:  # the training was not on everything
                        unguarded = train(row.model, world, seed, [*settings, *UNGUARDED], "unguarded-")
                        row = with_fine_tuned(row, unguarded)
                    rows[row.model, row.world, row.future, row.seed] = row
                    write_rows(list(rows.values()))
    every = read_rows()
    trained = [model for model in MODELS if by_world(every, model)]
    fill(PAGE, {f"worlds-{model}": world_table(every, model) for model in trained})
    fill(PAGE, {"summary-static": summary_table(every, "static")})
    draw(every)


if __name__ == "__main__":
    main()
