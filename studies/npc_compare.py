"""How does NPC compare with ``denoise`` and plain fine-tuning on noisy labels?

    OMP_NUM_THREADS=1 .venv/bin/python studies/npc_compare.py             # trains what is missing
    OMP_NUM_THREADS=1 .venv/bin/python studies/npc_compare.py --tables    # prints the tables

The settings are those of studies/false_labels.py: potion-base-4m, all defaults, the guard included, false pairs in
train and dev. ``npc`` is ``method=ft`` with ``loss=npc`` (studies/npc.py). Each row of studies/results/npc.csv is one
run. Finished runs are not repeated, so the study can be stopped at any time. Reads ``../shared``.

Columns: ``auc`` is the probability that a false pair scores worse than a true one. The score is the p-value of the
first visit for ft and denoise, and the perplexity of the last scoring pass for npc; ``first_auc`` is that of npc's
first pass. ``estimated`` is the share of false pairs by the run: by first visits, or the share of noisy pairs in
npc's last pass. ``seconds`` is processor time in both trainings of a run, scoring included.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp
from transformers import TrainerCallback

import opera
from false_labels import DATA, MODELS, UNTRAINED, auc, is_false, noisy
from npc import NoisyPairLoss
from page import ROOT, need, table_lines

SETS = ("scifact", "entailmentbank", "toollens")
NOISES = ("random:0.3", "random:0.5", "hard:0.3", "neighbour:0.3", "clean")
METHODS = ("ft", "denoise", "npc")
SEEDS = (0, 1, 2)
RESULTS = ROOT / "studies" / "results" / "npc.csv"
RUN = ("set", "noise", "method", "seed")
MEASURES = ("nDCG@10", "R@20")
COLUMNS = (
    *RUN, "truth", "estimated", "auc", "first_auc", "first_estimated", "listed", "listed_false", "passes",
    "mixing_weight", *MEASURES, *(f"fine_tuned {measure}" for measure in MEASURES), "base nDCG@10", "seconds",
)  # fmt: skip


class Clock(TrainerCallback):
    """Adds up the processor time of trainings."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start."""
        self.seconds -= time.process_time()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop."""
        self.seconds += time.process_time()


def train(name: str, noise: str, method: str, seed: int) -> dict[str, Any]:
    """Train once, and compare what the run says about its labels with the truth."""
    data, clean, clock = noisy(name, noise, seed), opera.load_data(ROOT / DATA / name), Clock()
    source, settings = MODELS["static"]
    chosen = {"method": "ft", "loss": "npc"} if method == "npc" else {"method": method}
    NoisyPairLoss.trainings.clear()
    with TemporaryDirectory() as folder:
        run = opera.adapt(
            data, model=source, out=Path(folder) / "run", seed=seed, callbacks=[clock], **chosen, **settings
        )
        pairs, record, measures = run.pairs().to_pandas(), run.record, run.measures
    false = is_false(clean, pairs)
    assert record.guard is not None
    return {
        **dict(zip(RUN, (name, noise, method, seed), strict=True)),
        "truth": false.mean(),
        **(found_by_npc(false) if method == "npc" else found_by_first_visits(pairs, record, false)),
        "mixing_weight": record.guard.share,
        **{measure: 100 * measures["after"][measure] for measure in MEASURES},
        **{f"fine_tuned {measure}": 100 * measures["fine_tuned"][measure] for measure in MEASURES},
        "base nDCG@10": 100 * measures["before"]["nDCG@10"],
        "seconds": clock.seconds,
    }


def found_by_npc(false: np.ndarray) -> dict[str, Any]:
    """Compare the scoring passes of the last training with the truth, bool ``[N]``."""
    detections = NoisyPairLoss.trainings[-1].detections
    first, last = detections[0], detections[-1]
    assert len(last.noisy) == len(false)  # the last training is the one that the run describes
    return {
        "estimated": last.noisy.mean(),
        "first_estimated": first.noisy.mean(),
        "auc": auc(last.perplexity, false) if false.any() else None,
        "first_auc": auc(first.perplexity, false) if false.any() else None,
        "listed": last.noisy.sum(),
        "listed_false": (last.noisy & false).sum(),
        "passes": len(detections),
    }


def found_by_first_visits(pairs: Any, record: Any, false: np.ndarray) -> dict[str, Any]:
    """Compare what first visits say with the truth, bool ``[N]``."""
    visited, listed = pairs.first_rank.notna().to_numpy(), (pairs.probability_false > 0.5).to_numpy()
    return {
        "estimated": record.false_pairs.share,
        "auc": auc(pairs.first_rank.to_numpy()[visited], false[visited]) if false.any() else None,
        "listed": listed.sum(),
        "listed_false": (listed & false).sum(),
    }


def main() -> None:
    """Train what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, values in {"--sets": SETS, "--noises": NOISES, "--methods": METHODS}.items():
        parser.add_argument(option, type=lambda text: text.split(","), default=values)
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=SEEDS)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        print(tables(results()))
        return
    need(UNTRAINED, *(f"{DATA}/{name}" for name in SETS))
    finished = {(row["set"], row["noise"], row["method"], int(row["seed"])) for row in results()}
    runs = itertools.product(options.seeds, options.noises, options.sets, options.methods)
    for seed, noise, name, method in runs:
        ordered = name == "entailmentbank" or not noise.startswith("neighbour")
        if (name, noise, method, seed) not in finished and ordered:
            append(train(name, noise, method, seed))


def results() -> list[dict[str, str]]:
    """Read the finished runs."""
    if not RESULTS.is_file():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(row: dict[str, Any]) -> None:
    """Add a finished run to the results, and print it."""
    new = not RESULTS.is_file()
    shown = {key: round(float(value), 4) if isinstance(value, float) else value for key, value in row.items()}
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(shown)
    print(shown, flush=True)


def tables(rows: list[dict[str, str]]) -> str:
    """How well false pairs are found, and what each method reaches, means over the seeds."""
    by_run: dict[tuple[str, ...], dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        by_run[row["set"], row["noise"], row["method"]][row["seed"]] = row
    lines, gains = [], defaultdict(list)
    for name, noise in itertools.product(SETS, NOISES):
        present = [by_run[name, noise, method] for method in METHODS]
        seeds = sorted(set.intersection(*(set(runs) for runs in present)))
        if not seeds:
            continue
        mean = [_means([runs[seed] for seed in seeds]) for runs in present]
        fine_tuned, denoise, npc = mean
        lines.append((
            name, noise, str(len(seeds)),
            *(f"{m['auc']:.3f}" for m in (denoise, npc)), f"{npc['first_auc']:.3f}",
            *(f"{m['estimated']:.2f}" for m in (denoise, npc)),
            *(f"{m['listed']:,.0f}, {m['listed_false'] / max(m['listed'], 1):.0%} false" for m in (denoise, npc)),
            *(f"{m['nDCG@10']:.1f} / {m['R@20']:.1f}" for m in mean),
            *(f"{m['seconds']:.0f}" for m in mean),
        ))  # fmt: skip
        for measure, (method, m) in itertools.product(MEASURES, zip(METHODS[1:], mean[1:], strict=True)):
            if noise != "clean":
                gains[method, measure].append(m[measure] - fine_tuned[measure])
        if noise != "clean":
            gains["npc over denoise", "nDCG@10"].append(npc["nDCG@10"] - denoise["nDCG@10"])
            gains["npc over denoise", "R@20"].append(npc["R@20"] - denoise["R@20"])
    heads = (
        "data", "noise", "seeds", "AUC denoise", "AUC npc", "AUC npc, first pass", "estimated denoise",
        "estimated npc", "listed denoise", "listed npc", *(f"nDCG@10 / R@20 {method}" for method in METHODS),
        *(f"seconds {method}" for method in METHODS),
    )  # fmt: skip
    summary = [
        f"{method}, {measure}: {np.mean(values):+.2f} over {len(values)} settings"
        + (f", p = {ttest_1samp(values, 0).pvalue:.2g}" if len(values) > 1 else "")
        for (method, measure), values in gains.items()
    ]
    return "\n".join([table_lines(heads, lines), *summary])


def _means(rows: list[dict[str, str]]) -> dict[str, float]:
    values = {column: [float(row[column]) for row in rows if row[column]] for column in COLUMNS if column not in RUN}
    return {column: float(np.mean(numbers)) if numbers else np.nan for column, numbers in values.items()}


if __name__ == "__main__":
    main()
