"""Does ``--preset release`` draw what the authors' release draws? Drives its sampler of dp and ours on the same scores.

    git clone https://github.com/autogluon/autogluon-rag
    OMP_NUM_THREADS=1 .venv/bin/python studies/release.py --release autogluon-rag/projects/opera

The release is no part of this project: its sampler is loaded from the folder given. Pairs and pretrained similarities
are those of NFCorpus with the small static model. Writes studies/results/release.csv and fills in tables of
docs/paper.md. Reads ``../shared``, and stops with a message if it is absent. Takes about three minutes.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.recipe import make_recipe, recipe
from opera.core.arrays import FloatArray
from opera.core.rng import generator
from opera.methods.base import Plan
from opera.methods.dynamic import DynamicPruning, DynamicSettings, document_probabilities, document_weights
from opera.methods.scores import PairScores
from opera.runs.folder import RunWriter
from opera.training.train import train
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.prepare import Prepared, load_and_check
from page import ROOT, fill, need, table_lines
from release_sampler import ReleaseSampler, load_release
from worlds import DATA, MODEL, load_world

ROWS, PAGE = ROOT / "studies" / "results" / "release.csv", ROOT / "docs" / "paper.md"
BATCH, MAX_STEPS = 64, 2000
STAGES = (0, 500, 1000, 1500, 1999)
REDRAWS = 400
SEEDS = range(5)
SETTINGS = DynamicSettings(
    **{name: value for name, value in recipe("release").items() if name in DynamicSettings.model_fields}
)


def training_set() -> tuple[Prepared, TrainingSet]:
    """NFCorpus with the small static model, prepared as a run with the release's preset."""
    trained = {**recipe("release", methods=["dp"]), "seed": 0, "max_steps": 400, "learning_rate": 1e-3}
    quiet = {"logging_steps": 1000, "save_steps": 10**6, "per_device_train_batch_size": BATCH}
    prepared = load_and_check(load_world("nfcorpus"), MODEL, make_recipe({**trained, **quiet, "negatives": "random"}))
    return prepared, build_training_set(prepared)


def drifted(similarity: FloatArray, step: int) -> NDArray[np.float32]:
    """Similarities ``[N]`` at a step of a made-up training: each pair moves on a line of its own."""
    slope = generator(0, "study.drift").normal(0.05, 0.1, len(similarity))
    return np.clip(similarity + slope * step / MAX_STEPS, -1, 1).astype(np.float32)


def same_scores(pairs_of: TrainingSet, sampler: ReleaseSampler) -> list[dict[str, Any]]:
    """Compare pool and probabilities at some steps, where both samplers hold the same scores of all pairs."""
    pairs, rows = pairs_of.pairs, []
    assert pairs_of.similarity is not None
    for step in STAGES:
        similarity = drifted(pairs_of.similarity, step)
        release = sampler.state_at(step, similarity, REDRAWS)
        ours = DynamicPruning(pairs, Plan(0, MAX_STEPS, BATCH), SETTINGS, PairScores(pairs, similarity, similarity))
        probabilities, schedule = ours.probabilities(step), ours.schedule(step)
        top = ours._top.probabilities(ours._ranking.scores()) == 1 if ours._ranking is not None else np.empty(0, bool)
        expected = probabilities.query * ours.pool_size
        # A query that is not a top query of the release is in its pool or not: a binomial over the redraws.
        spread = np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / REDRAWS)
        away = np.abs(release.in_pool - expected)[~(top | release.top)] / spread[~(top | release.top)]
        rows.append(
            {
                "step": step,
                "pool_ours": ours.pool_size,
                "pool_release": release.pool_size,
                "top_ours": int(top.sum()),
                "top_release": int(release.top.sum()),
                "top_in_one_only": int((top != release.top).sum()),
                "threshold_difference": abs(schedule["document_threshold"] - release.threshold),
                "greatest_P_document": float(np.abs(probabilities.document - release.document).max()),
                "mean_square_z_query": float((away**2).mean()),
            }
        )
    return rows


def whole_training(pairs_of: TrainingSet, folder: Path) -> list[dict[str, Any]]:
    """Share of the draws by quarter of the queries, of pretrained similarity, over a whole made-up training."""
    pairs, start = pairs_of.pairs, pairs_of.similarity
    assert start is not None
    mean = pairs.sum_by_query(start) / pairs.positives_per_query
    quarter = np.argsort(np.argsort(-mean)) * 4 // pairs.n_queries
    shares: dict[str, list[NDArray[np.float64]]] = {"ours": [], "release": []}
    for seed in SEEDS:
        method = DynamicPruning(pairs, Plan(seed, MAX_STEPS, BATCH), SETTINGS, PairScores(pairs, start, start))
        release = ReleaseSampler(load_release(folder), pairs, start, MAX_STEPS, seed)
        drawn = {"ours": np.zeros(4), "release": np.zeros(4)}
        for step in range(MAX_STEPS):
            now = drifted(start, step)
            ids = method.draw(step).pair_ids
            method.observe(ids, now[ids], now[ids])
            drawn["ours"] += np.bincount(quarter[pairs.pair_query[ids]], minlength=4)
            theirs = release.draw(step, BATCH)
            release.observe(theirs, now[theirs])
            drawn["release"] += np.bincount(quarter[pairs.pair_query[theirs]], minlength=4)
        for name, counts in drawn.items():
            shares[name].append(counts / counts.sum())
    return [
        {
            "quarter": number + 1,
            **{name: float(np.mean([share[number] for share in each])) for name, each in shares.items()},
            **{f"{name}_sd": float(np.std([share[number] for share in each], ddof=1)) for name, each in shares.items()},
        }
        for number in range(4)
    ]


class WatchedPruning(DynamicPruning):
    """dp that notes, at the end of each pass, how far its documents' probabilities are from those of frozen scores."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.distances: list[float] = []
        self._frozen = self.scores.similarity.copy()

    def _refresh(self, step: int) -> None:
        if self._refreshes:
            high = [np.asarray(values > self._threshold) for values in (self._frozen, self.scores.similarity)]
            frozen, latest = (document_probabilities(self.pairs, document_weights(marks, 5.0)) for marks in high)
            self.distances.append(float((self.pairs.sum_by_query(np.abs(frozen - latest)) / 2).mean()))
        self._frozen = self.scores.similarity.copy()
        super()._refresh(step)


def frozen_or_latest(prepared: Prepared, trained_on: TrainingSet) -> float:
    """Train for real; the mean total variation distance between P(d|q) by frozen and by latest similarities.

    The release freezes the similarities for a pass, we read the latest at each step. At the end of a pass, over all
    queries and passes.
    """
    settings = prepared.settings
    plan = Plan(0, settings.max_steps or 0, BATCH)
    method = WatchedPruning(trained_on.pairs, plan, SETTINGS, trained_on.scores)
    with tempfile.TemporaryDirectory() as folder:
        train(prepared.model.trained, trained_on, method, settings, RunWriter(Path(folder)))
    return float(np.mean(method.distances))


def table(same: list[dict[str, Any]]) -> str:
    """The table of docs/paper.md: both at the same scores."""
    heads = [
        "step",
        "pool, ours",
        "release",
        "top queries, ours",
        "release",
        "in one only",
        "T apart",
        "P(d\\|q) apart",
        "z²",
    ]
    counts = ("step", "pool_ours", "pool_release", "top_ours", "top_release", "top_in_one_only")
    rows = [
        [f"{row[name]:,}" for name in counts]
        + [f"{row[name]:.1e}" for name in ("threshold_difference", "greatest_P_document")]
        + [f"{row['mean_square_z_query']:.2f}"]
        for row in same
    ]
    return table_lines(heads, rows)


def main() -> None:
    """Compare, write the rows, and fill in the table."""
    parser = argparse.ArgumentParser(description="Compare the release's sampler with ours.")
    parser.add_argument("--release", type=Path, required=True, help="its folder projects/opera")
    folder = parser.parse_args().release
    if not (folder / "opera" / "data" / "sampler.py").is_file():
        sys.exit(f"{folder}: holds no opera/data/sampler.py; give the release's folder projects/opera")
    need(MODEL, str(DATA))
    logging.disable(logging.INFO)
    prepared, pairs_of = training_set()
    assert pairs_of.similarity is not None
    sampler = ReleaseSampler(load_release(folder), pairs_of.pairs, pairs_of.similarity, MAX_STEPS, 0)
    same, whole = same_scores(pairs_of, sampler), whole_training(pairs_of, folder)
    frozen = frozen_or_latest(prepared, pairs_of)
    rows = [{"part": "same scores", **row} for row in same] + [{"part": "whole training", **row} for row in whole]
    rows.append({"part": "frozen similarities", "total_variation": frozen})
    names = list(dict.fromkeys(name for row in rows for name in row))
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    fill(PAGE, {"release-same": table(same)})


if __name__ == "__main__":
    main()
