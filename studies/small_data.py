"""Does choosing λ by four dev draws help on small data? Four more trainings choose λ for one on all pairs.

    OMP_NUM_THREADS=1 .venv/bin/python studies/small_data.py            # trains what is missing, then prints the table
    OMP_NUM_THREADS=1 .venv/bin/python studies/small_data.py --table    # prints the table of the results

On the small settings of studies/guard.py, static model, defaults. Each row holds the test nDCG@10 of the base model,
of the final model of ``opera train``, and of a training on all pairs mixed with the base model by three λ: the run's
own, the one with the best mean on the dev queries of four draws, and the mean of what the rule chooses on these draws.
Finished rows are not repeated. Reads ``../shared``, and stops with a message if it is absent.
"""

from __future__ import annotations

import argparse
import csv
import logging
import shutil

import numpy as np
from sentence_transformers import SentenceTransformer

import opera
from opera.core.intervals import mean_interval
from opera.training.guard.choice import Weights, mix
from opera.training.guard.rule import FINE
from page import ROOT, need, table_lines
from worlds import MODEL, load_world

RESULTS = ROOT / "studies" / "results" / "small_data.csv"
RUNS = ROOT / "runs" / "small_data"
SETS = ("scifact", "entailmentbank", "nfcorpus", "toollens")
WORLDS = (*(f"{name}+n60" for name in SETS), *(f"{name}+new+n200" for name in SETS))
SEEDS, DRAWS, MEASURE = 3, 4, "nDCG@10"
MODELS = ("base", "final", "all at the run's λ", "all at the best mean", "all at the mean λ")
COLUMNS = ("world", "seed", *MODELS, "λ of the run", "λ of the best mean", "mean λ")


def measure(world: str, seed: int) -> dict[str, object]:
    """Train and measure one row."""
    data, folder = load_world(world, seed), RUNS / f"{world}-{seed}"

    def train(name: str, **settings: object) -> opera.Run:
        return opera.adapt(data, model=str(MODEL), out=folder / name, overwrite=True, **settings)

    run = train("run", seed=seed)
    draws = [train(f"draw{number}", seed=100 * (seed + 1) + number, refit=False) for number in range(DRAWS)]
    everything = train("all", seed=seed, guard=False)
    guards = [draw.record.guard for draw in draws]
    assert run.record.guard is not None
    counts = [guard.dev_queries for guard in guards]
    curve = np.average([[point.mean for point in guard.curve] for guard in guards], axis=0, weights=counts)
    mean_weight = float(np.mean([guard.share for guard in guards]))
    weights = (run.record.guard.share, FINE[int(curve.argmax())], mean_weight)
    model = SentenceTransformer(str(MODEL))
    base, fine_tuned = Weights.of(model), Weights.of(SentenceTransformer(str(everything.model_path)))
    values = [run.measures["before"][MEASURE], run.measures["after"][MEASURE]]
    for weight in weights:
        mix(base, fine_tuned, weight).put_into(model)
        model.save_pretrained(str(folder / "mixed"), create_model_card=False)
        values.append(opera.evaluate(data, model=folder / "mixed", measures=[MEASURE]).measures[MEASURE])
    shutil.rmtree(folder)
    points = [f"{100 * value:.3f}" for value in values]
    return dict(zip(COLUMNS, (world, seed, *points, *(f"{weight:g}" for weight in weights)), strict=True))


def read_rows() -> list[dict[str, str]]:
    """Read the finished rows."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]]) -> str:
    """Means by setting, and differences from the final model over the settings."""
    lines, differences = [], []
    for world in WORLDS:
        values = np.array([[float(row[name]) for name in MODELS] for row in rows if row["world"] == world])
        if len(values):
            weights = [", ".join(row[name] for row in rows if row["world"] == world) for name in COLUMNS[-3:]]
            lines.append([world, *(f"{value:.1f}" for value in values.mean(axis=0)), *weights])
            differences.append((values - values[:, 1:2]).mean(axis=0))
    cells = []
    for column in np.array(differences).T:
        low, high = mean_interval(column)
        cells.append(f"{column.mean():+.2f} ({low:+.2f} to {high:+.2f})")
    return table_lines(["setting", *MODELS, *COLUMNS[-3:]], [*lines, ["against final", *cells, "", "", ""]])


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    rows = read_rows()
    if not parser.parse_args().table:
        need("../shared/data")
        logging.disable(logging.INFO)
        finished = {(row["world"], int(row["seed"])) for row in rows}
        for seed in range(SEEDS):
            for world in WORLDS:
                if (world, seed) in finished:
                    continue
                rows.append({name: str(value) for name, value in measure(world, seed).items()})
                with RESULTS.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
                print(rows[-1], flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
