"""Does the guard keep its promise? The base, the fine-tuned and the final model of runs with all defaults.

    OMP_NUM_THREADS=1 python reproduction/studies/negatives.py --kinds default --seeds 0,1,2    # trains
    python reproduction/studies/guard.py          # fills tables of docs/did-it-help.md and README, draws a figure
    python reproduction/studies/guard.py --fit    # fits a(0) of the rule, also without each data set

The runs have measured every mixture of base and fine-tuned weights on dev and test (negatives.py), so that this script
replays the guard's rule with any constants. The fine-tuned model has λ = 1.
"""

from __future__ import annotations

import argparse
import itertools
from unittest.mock import patch

import pandas as pd

from negative_kinds import DEFAULT
from negatives import KEY, final, replayed
from opera.core.figures import mean_interval, signed
from opera.guard import rule
from study import ROOT, SETS, STORED, Results, fill, table_lines

PAGE, FIGURE = ROOT / "docs" / "did-it-help.md", ROOT / "docs" / "never-worse.svg"
KINDS = {
    "": "as they are",
    "+n60": "60 train queries (`+n60`)",
    "+new": "new documents (`+new`)",
    "+new+n200": "new documents, 200 train queries (`+new+n200`)",
}
"""What was done to the data sets, and the names of it in the table."""
COMPARED = ("base", "fine_tuned", "final")
ANCHORS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""The values of a(0) to try."""
MOST_LOSS = 0.3
"""Points that the worst run may lose to the base model."""


def load_runs() -> pd.DataFrame:
    """A line per run with all defaults: the setting, the three models on test, and λ."""
    lines = [
        {
            "setting": f"{name}{change}",
            "kind": change,
            "data": name,
            "seed": row["seed"],
            "base": row["test 0.0 nDCG@10"],
            "fine_tuned": row["test 1.0 nDCG@10"],
            "final": final(row),
            "mixing_weight": replayed(row),
        }
        for change, name in itertools.product(KINDS, SETS)
        for row in Results(STORED / "negatives.csv", KEY).select(
            model="static", kind=DEFAULT, setting=f"{name}{change}"
        )
    ]
    return pd.DataFrame(lines)


def settings_table(runs: pd.DataFrame) -> str:
    """A line per kind of setting: nDCG@10 over the data sets, and the lowest changes."""
    heads = ["setting", "base", "fine-tuned", "final", "worst fine-tuned", "worst final", "λ"]
    lines = []
    for kind, title in KINDS.items():
        chosen = runs[runs.kind == kind]
        means = chosen.groupby("setting")[list(COMPARED)].mean()
        worst = [signed((means[name] - means.base).min()) for name in COMPARED[1:]]
        weights = f"{chosen.mixing_weight.min():g} to {chosen.mixing_weight.max():g}"
        lines.append([title, *(f"{mean:.1f}" for mean in means.mean()), *worst, weights])
    return table_lines(heads, lines)


def summary(runs: pd.DataFrame) -> str:
    """The final model against base and fine-tuned; data sets are the sample, since settings of one set are alike."""
    lines = []
    for other in ("base", "fine_tuned"):
        sets = (runs.final - runs[other]).groupby(runs.setting).mean().groupby(lambda name: name.split("+")[0]).mean()
        low, high = mean_interval(sets.to_numpy())
        lines.append(f"final - {other}: {signed(sets.mean())} ({signed(low)} to {signed(high)})")
    return "\n".join([*lines, f"worst run: {_worst(runs)} compared with the base model"])


def fit() -> str:
    """A line per a(0): the mean over new documents and the worst run; then the best a(0) without each data set."""
    results = {}
    for anchor in ANCHORS:
        with patch.object(rule, "STATIC_ANCHOR", (anchor, *rule.STATIC_ANCHOR[1:])):
            runs = load_runs()
        results[anchor] = runs[runs.kind.str.contains("new")]
    lines = [[f"{anchor:g}", f"{_mean(runs):.2f}", _worst(runs)] for anchor, runs in results.items()]
    for name in SETS:
        others = {anchor: runs[runs.data != name] for anchor, runs in results.items()}
        safe = [anchor for anchor, runs in others.items() if (runs.final - runs.base).min() >= -MOST_LOSS]
        chosen = max(safe, key=lambda anchor: _mean(others[anchor]))
        left_out = results[chosen][results[chosen].data == name]
        lines.append([f"{chosen:g}, fitted without {name}", f"{_mean(left_out):.2f}", _worst(left_out)])
    return table_lines(["a(0)", "final", "worst run"], lines)


def _worst(runs: pd.DataFrame) -> str:
    return signed((runs.final - runs.base).min())


def _mean(runs: pd.DataFrame) -> float:
    return float(runs.groupby("setting").final.mean().mean())


def draw(runs: pd.DataFrame) -> None:
    """Draw points of nDCG@10 compared with the base model: fine-tuned and final, by setting."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "opera"
    import matplotlib.pyplot as plt

    means = runs.groupby("setting", sort=False)[list(COMPARED)].mean()
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
    """Make the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="print the table of constants")
    if parser.parse_args().fit:
        print(fit())
        return
    runs = load_runs()
    fill(PAGE, {"settings": settings_table(runs)})
    print(summary(runs))
    draw(runs)


if __name__ == "__main__":
    main()
