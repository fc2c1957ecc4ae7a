"""How does NPC compare with ``denoise`` and plain fine-tuning on noisy labels?

    OMP_NUM_THREADS=1 python reproduction/studies/npc_compare.py             # trains what is missing
    OMP_NUM_THREADS=1 python reproduction/studies/npc_compare.py --tables    # prints the tables

The settings are those of false_labels.py: potion-base-4m, all defaults, the guard included, false pairs in
train and dev. ``npc`` is ``method=ft`` with ``loss=npc`` (npc.py). Each row of results/npc.csv is one
run. Finished runs are not repeated, so the study can be stopped at any time. Reads ``../shared``.

Columns: ``auc`` is the probability that a false pair scores worse than a true one. The score is the p-value of the
first visit for ft and denoise, and the perplexity of the last scoring pass for npc; ``first_auc`` is that of npc's
first pass. ``estimated`` is the noise rate by the run: from first visits, or the rate of noisy pairs in
npc's last pass. ``seconds`` is processor time in both trainings of a run, scoring included.
"""

from __future__ import annotations

import argparse
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
from false_labels import DATA, MODELS, auc, has_run, is_wrong, noisy
from npc import NoisyPairLoss
from study import STORED, Results, Row, need, table_lines, words

SETS = ("scifact", "entailmentbank", "toollens")
NOISES = ("random:0.3", "random:0.5", "hard:0.3", "neighbour:0.3", "clean")
METHODS = ("ft", "denoise", "npc")
SEEDS = (0, 1, 2)
RESULTS = STORED / "npc.csv"
RUN = ("set", "noise", "method", "seed")
MEASURES = ("nDCG@10", "R@20")


class Clock(TrainerCallback):  # type: ignore[misc]
    """Adds up the processor time of trainings."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start."""
        self.seconds -= time.process_time()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop."""
        self.seconds += time.process_time()


def train(run: Row) -> Row:
    """Train once, and compare what the run says about its labels with the truth."""
    clean, clock = opera.load_data(DATA / run["set"]), Clock()
    source, settings = MODELS["static"]
    chosen = {"method": "ft", "loss": "npc"} if run["method"] == "npc" else {"method": run["method"]}
    NoisyPairLoss.trainings.clear()
    with TemporaryDirectory() as folder:
        trained = opera.adapt(
            noisy(run["set"], run["noise"], run["seed"]),
            model=source, out=Path(folder) / "run", seed=run["seed"], callbacks=[clock],
            negatives="random", **chosen, **settings,
        )  # fmt: skip
        pairs, record, measures = trained.pairs().to_pandas(), trained.record, trained.measures
    wrong = is_wrong(clean, pairs)
    assert record.guard is not None
    return {
        "truth": wrong.mean(),
        **(detected_by_npc(wrong) if run["method"] == "npc" else detected_by_rank(pairs, record, wrong)),
        "mixing_weight": record.guard.mixing_weight,
        **{measure: 100 * measures["final"][measure] for measure in MEASURES},
        **{f"fine_tuned {measure}": 100 * measures["fine_tuned"][measure] for measure in MEASURES},
        "base nDCG@10": 100 * measures["base"]["nDCG@10"],
        "seconds": clock.seconds,
    }


def detected_by_npc(wrong: np.ndarray) -> dict[str, Any]:
    """Compare the scoring passes of the last training with the truth, bool ``[N]``."""
    detections = NoisyPairLoss.trainings[-1].detections
    first, last = detections[0], detections[-1]
    assert len(last.noisy) == len(wrong)  # the last training is the one that the run describes
    return {
        "estimated": last.noisy.mean(),
        "first_estimated": first.noisy.mean(),
        "auc": auc(last.perplexity, wrong) if wrong.any() else None,
        "first_auc": auc(first.perplexity, wrong) if wrong.any() else None,
        "listed": last.noisy.sum(),
        "listed_wrong": (last.noisy & wrong).sum(),
        "passes": len(detections),
    }


def detected_by_rank(pairs: Any, record: Any, wrong: np.ndarray) -> dict[str, Any]:
    """Compare what first visits say with the truth, bool ``[N]``."""
    visited, listed = pairs.first_rank.notna().to_numpy(), (pairs.probability_wrong > 0.5).to_numpy()
    return {
        "estimated": record.noisy_labels.noise_rate,
        "auc": auc(pairs.first_rank.to_numpy()[visited], wrong[visited]) if wrong.any() else None,
        "listed": listed.sum(),
        "listed_wrong": (listed & wrong).sum(),
    }


def main() -> None:
    """Train what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, values in {"--sets": SETS, "--noises": NOISES, "--methods": METHODS, "--seeds": "012"}.items():
        parser.add_argument(option, type=words, default=list(values))
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    results = Results(RESULTS, RUN)
    if options.tables:
        print(tables(results))
        return
    need("../shared/data", "../shared/models")
    for seed, noise, name, method in itertools.product(options.seeds, options.noises, options.sets, options.methods):
        run = dict(zip(RUN, (name, noise, method, int(seed)), strict=True))
        if has_run(name, noise, method) and not results.has(run):
            results.add(run, **train(run))
            print(results.of(run), flush=True)


def tables(results: Results) -> str:
    """How well wrong pairs are found, and what each method reaches, means over the seeds."""
    lines, gains = [], defaultdict(list)
    for name, noise in itertools.product(SETS, NOISES):
        runs = [{row["seed"]: row for row in results.select(set=name, noise=noise, method=m)} for m in METHODS]
        seeds = sorted(set.intersection(*(set(of_method) for of_method in runs)))
        if not seeds:
            continue
        fine_tuned, denoise, npc = mean = [_means([of_method[seed] for seed in seeds]) for of_method in runs]
        lines.append((
            name, noise, str(len(seeds)),
            *(f"{m['auc']:.3f}" for m in (denoise, npc)), f"{npc['first_auc']:.3f}",
            *(f"{m['estimated']:.2f}" for m in (denoise, npc)),
            *(f"{m['listed']:,.0f}, {m['listed_wrong'] / max(m['listed'], 1):.0%} wrong" for m in (denoise, npc)),
            *(f"{m['nDCG@10']:.1f} / {m['R@20']:.1f}" for m in mean),
            *(f"{m['seconds']:.0f}" for m in mean),
        ))  # fmt: skip
        if noise != "clean":
            for measure in MEASURES:
                gains["denoise", measure].append(denoise[measure] - fine_tuned[measure])
                gains["npc", measure].append(npc[measure] - fine_tuned[measure])
                gains["npc over denoise", measure].append(npc[measure] - denoise[measure])
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


def _means(rows: list[Row]) -> dict[str, float]:
    return {
        column: float(np.mean([row[column] for row in rows])) if rows[0][column] is not None else np.nan
        for column in rows[0]
        if column not in RUN
    }


if __name__ == "__main__":
    main()
