"""Can false labels be told from hard true ones by a loss? That of the first visit, that of the last, or similarity.

    OMP_NUM_THREADS=1 .venv/bin/python studies/first_losses.py

Trains with ft on injected labels, writes studies/results/first-losses.csv and fills in a table of docs/samplers.md.
Reads ``../shared``, and stops with a message if it is absent. Takes about two minutes.
"""

from __future__ import annotations

import csv
import logging
import math
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from opera.config.recipe import make_recipe
from opera.core.arrays import FloatArray, IntArray
from opera.data.pairs import TrainingPairs
from opera.data.splits import draw_missing_splits
from opera.methods.base import NoSettings, Plan
from opera.methods.finetuning import FineTuning
from opera.runs.folder import RunWriter
from opera.training.train import train
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.prepare import Prepared, prepare
from page import fill, need, table_lines
from samplers import NOISY_WORLDS, PAGE, ROOT, settings_of
from worlds import DATA, MODEL, load_world

ROWS = ROOT / "studies" / "results" / "first-losses.csv"
CASES = [(world, kind, share) for world in NOISY_WORLDS for kind, share in (("random", 0.3), ("hard", 0.3))]


class ObservedFineTuning(FineTuning):
    """ft, with each pair's first and last loss: float64 ``[N]``, NaN where a pair was never drawn."""

    def __init__(self, pairs: TrainingPairs, plan: Plan) -> None:
        super().__init__(pairs, plan, NoSettings())
        self.first, self.last = (np.full(pairs.n_pairs, math.nan) for _ in range(2))

    def observe(self, pair_ids: IntArray, similarity: FloatArray, loss: FloatArray) -> None:
        """Keep the losses."""
        new = np.isnan(self.first[pair_ids])
        self.first[pair_ids[new]] = loss[new]
        self.last[pair_ids] = loss


def trained(prepared: Prepared, training_set: TrainingSet) -> ObservedFineTuning:
    """Train with ft, and return what it observed."""
    settings = prepared.settings
    plan = Plan(settings.seed, settings.max_steps, settings.per_device_train_batch_size)
    method = ObservedFineTuning(training_set.pairs, plan)
    with tempfile.TemporaryDirectory() as folder:
        train(prepared.model, training_set, method, settings, RunWriter(Path(folder)))
    return method


def separation(values: NDArray[np.float64], false: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: how often a false label has the higher value than a true one."""
    ranks, count = rankdata(values), int(false.sum())
    return float((ranks[false].sum() - count * (count + 1) / 2) / (count * (len(values) - count)))


def measure(world: str, kind: str, share: float) -> dict[str, str | float]:
    """Train once, and compare what tells false labels from true ones."""
    data = load_world(world)
    _, settings = settings_of(data.training_split().n_queries, "dp")  # dp, for its pretrained scores
    data = draw_missing_splits(data, seed=0, test_fraction=0.1, needs_dev=True, future="like-test")
    noise = {"noise": kind, "noise_share": share, "seed": 0}
    fixed = {"method": "dp", "logging_steps": 1000, "save_steps": 10**6}
    prepared = prepare(data, MODEL, make_recipe({**fixed, **settings, **noise}))
    training_set = build_training_set(prepared)
    assert training_set.similarity is not None
    before = -np.asarray(training_set.similarity, dtype=np.float64)
    method = trained(prepared, training_set)
    visited = ~np.isnan(method.first)
    false, first = training_set.injected[visited], method.first[visited]
    chance = math.log(prepared.settings.documents_per_pass(1))
    return {
        "world": world,
        "noise": kind,
        "share": share,
        "visited": int(visited.sum()),
        "AUC_similarity": separation(before[visited], false),
        "AUC_first_loss": separation(first, false),
        "AUC_last_loss": separation(method.last[visited], false),
        "true_above_chance": float((first[~false] > chance).mean()),
        "false_above_chance": float((first[false] > chance).mean()),
    }


def main() -> None:
    """Measure every case, and fill in the table."""
    need(MODEL, str(DATA))
    logging.disable(logging.INFO)
    rows = [measure(*case) for case in CASES]
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    heads = ["", "pairs visited", "similarity before", "first loss", "last loss", "true above chance", "false above"]
    cells = [
        [
            f"{row['world']}, {row['noise']} {row['share']:.0%}",
            f"{row['visited']:,}",
            *(f"{row[f'AUC_{name}']:.3f}" for name in ("similarity", "first_loss", "last_loss")),
            *(f"{row[name]:.0%}" for name in ("true_above_chance", "false_above_chance")),
        ]
        for row in rows
    ]
    fill(PAGE, {"first-losses": table_lines(heads, cells)})


if __name__ == "__main__":
    main()
