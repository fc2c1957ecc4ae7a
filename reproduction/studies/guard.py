"""Does the guard keep its promise? Train with all defaults in many settings, and compare the models.

    OMP_NUM_THREADS=1 python reproduction/studies/guard.py             # trains what is missing, then fills the tables
    OMP_NUM_THREADS=1 python reproduction/studies/guard.py --tables    # makes the tables of the stored results

Each setting is trained three times: with ``like-test``, the default, which reads one number of test; with the
true value, which reads nothing of test; and with ``both``. Every run has the base model, the fine-tuned
model (λ = 1: the same method, batch, steps, rate, temperature and mask, trained on all pairs) and the final model.
Writes results/guard.csv and docs/never-worse.svg, and fills the tables of docs/did-it-help.md and README.md. Reads
``../shared``. Finished runs are not repeated, so the study can be stopped at any time.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import pandas as pd

import opera
from opera.core.intervals import mean_interval, signed
from opera.run_folder.folder import Run, holds_run
from study import ROOT, STATIC_MODEL, STORED, Results, fill, load_setting, need, table_lines, words

PAGE, FIGURE = ROOT / "docs" / "did-it-help.md", ROOT / "docs" / "never-worse.svg"
RUNS = Path("runs/guard")
KEY = ("model", "setting", "expected_documents", "seed")
SETS = ("entailmentbank", "scifact", "nfcorpus", "toollens")
SETTINGS = [f"{name}{change}" for change in ("", "+new", "+n60", "+new+n200") for name in SETS]
KINDS = {
    "": "as they are",
    "+n60": "60 queries (`+n60`)",
    "+new": "new documents (`+new`)",
    "+new+n200": "new documents, 200 queries (`+new+n200`)",
}
"""What was done to the data sets, and the names of it in the table."""
MODELS: dict[str, str | Path] = {"static": STATIC_MODEL, "minilm": "minilm"}
MEASURES = {"nDCG@10": "", "R@20": "_recall"}
"""Measures, and the endings of their columns."""
COMPARED = ("base", "fine_tuned", "final")
FUTURES = {"like-test": "`like-test`", "true": "the true one", "both": "`both`"}
"""Values of the study's ``--futures``, and their names in the tables."""


def train(run: dict[str, Any], out: Path, **settings: Any) -> Run:
    """Train with all defaults but ``settings``, unless it is done. Remove runs/guard after a change of OPERA."""
    resume = holds_run(out)
    if resume and Run.open(out).finished:
        return Run.open(out)
    data = load_setting(run["setting"], run["seed"])
    return opera.adapt(data, model=MODELS[run["model"]], out=out, seed=run["seed"], resume=resume, **settings)


def told(setting: str, expected_documents: str) -> str:
    """Return the value of ``--expected-documents`` for a run."""
    true = "new" if "+new" in setting else "known"
    return true if expected_documents == "true" else expected_documents


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train a run; return its test figures in points, and what the guard saw."""
    home = RUNS / run["model"] / run["setting"]
    trained = train(
        run,
        home / f"{run['expected_documents']}-seed{run['seed']}",
        expected_documents=told(run["setting"], run["expected_documents"]),
    )
    guard, measures = trained.record.guard, dict(trained.measures)
    assert guard is not None
    if not guard.refit:  # the training did not see all pairs
        unguarded = train(run, home / f"unguarded-seed{run['seed']}", guard=False)
        measures["fine_tuned"] = unguarded.measures["final"]
    return {
        "queries": trained.record.data.counts["train_queries"],
        "seen": -1.0 if guard.test_seen is None else guard.test_seen,
        "mixing_weight": guard.mixing_weight,
        "verdict": guard.dev_verdict,
        **{f"dev_{name}": 100 * getattr(guard.dev, name) for name in ("difference", "low", "high")},
        **{f"{name}{end}": 100 * measures[name][m] for m, end in MEASURES.items() for name in COMPARED},
    }


def settings_table(runs: pd.DataFrame) -> str:
    """A line per kind of setting, told ``like-test``: nDCG@10 over the data sets, and the lowest changes."""
    heads = ["setting", "base", "fine-tuned", "final", "worst fine-tuned", "worst final", "λ"]
    lines = []
    for kind, title in KINDS.items():
        chosen = runs[
            (runs.expected_documents == "like-test") & (runs.setting.str.replace("^[a-z]+", "", regex=True) == kind)
        ]
        means = chosen.groupby("setting")[list(COMPARED)].mean()
        worst = [signed((means[name] - means.base).min()) for name in COMPARED[1:]]
        weights = f"{chosen.mixing_weight.min():g} to {chosen.mixing_weight.max():g}"
        lines.append([title, *(f"{mean:.1f}" for mean in means.mean()), *worst, weights])
    return table_lines(heads, lines)


def readme_table(runs: pd.DataFrame) -> str:
    """Two lines per data set: nDCG@10 of the three models on known and on new documents."""
    means = runs[runs.expected_documents == "like-test"].groupby("setting")[list(COMPARED)].mean()
    lines = [
        [name, kind, *(f"{value:.1f}" for value in means.loc[setting])]
        for name in SETS
        for kind, setting in (("known", name), ("new", f"{name}+new"))
    ]
    return table_lines(["data", "documents", "base", "fine-tuned", "OPERA"], lines)


def summary_table(runs: pd.DataFrame) -> str:
    """The final model against base and fine-tuned; data sets are the sample, since settings of one set are alike."""
    names = {"base": "base model", "fine_tuned": "fine-tuned"}
    heads = [
        "`--expected-documents`",
        *(head for name in names.values() for head in (f"against {name}", "worst setting")),
    ]
    lines = []
    for expected_documents, title in FUTURES.items():
        told_so, line = runs[runs.expected_documents == expected_documents], [title]
        for other in names:
            settings = (told_so.final - told_so[other]).groupby(told_so.setting, sort=False).mean()
            sets = settings.groupby(settings.index.str.split("+").str[0], sort=False).mean()
            low, high = mean_interval(sets.to_numpy())
            line += [f"{signed(sets.mean())} ({signed(low)} to {signed(high)})", signed(settings.min())]
        lines.append(line)
    return table_lines(heads, lines)


def draw(runs: pd.DataFrame) -> None:
    """Draw points of nDCG@10 compared with the base model: fine-tuned and final, by setting."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "opera"
    import matplotlib.pyplot as plt

    means = runs[runs.expected_documents == "like-test"].groupby("setting", sort=False)[list(COMPARED)].mean()
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(means) + 1.1), layout="constrained")
    for place, (setting, row) in enumerate(means[::-1].iterrows()):
        tuned, final = row.fine_tuned - row.base, row.final - row.base
        axes.plot([tuned, final], [place, place], color="#bbbbbb", zorder=1)
        axes.scatter(tuned, place, color="#c0504d", marker="x", zorder=2, label=None if place else "fine-tuned")
        axes.scatter(final, place, color="#1f6f8b", zorder=3, label=None if place else "final model")
        axes.text(-13.4, place, setting, ha="right", va="center", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xscale="symlog", yticks=[], xlim=(-13, 90), xlabel="points of nDCG@10 above the base model (test)")
    axes.set_xticks([-10, -3, 0, 3, 10, 30], labels=["−10", "−3", "0", "+3", "+10", "+30"])
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(FIGURE, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Train what is missing, then make the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="train nothing; make the tables of the stored results")
    parser.add_argument("--model", choices=list(MODELS), default="static")
    for option, values in {"--settings": SETTINGS, "--seeds": "012", "--futures": FUTURES}.items():
        parser.add_argument(option, type=words, default=list(values))
    options = parser.parse_args()
    results = Results(STORED / "guard.csv", KEY)
    if not options.tables:
        need("../shared/data", "../shared/models")
        for expected_documents, seed, setting in itertools.product(
            options.futures, map(int, options.seeds), options.settings
        ):
            run = dict(zip(KEY, (options.model, setting, expected_documents, seed), strict=True))
            if not results.has(run):
                results.add(run, **measure(run))
    rows = pd.DataFrame(results.select(model="static"))
    rows = rows.assign(order=rows.setting.map(SETTINGS.index)).sort_values(["order", "seed"])
    fill(PAGE, {"settings": settings_table(rows)})
    fill(ROOT / "README.md", {"readme": readme_table(rows)})
    print(summary_table(rows))
    draw(rows)


if __name__ == "__main__":
    main()
