"""Every method and ablation on NFCorpus with a small static model: fills the tables of docs/results.md.

    OMP_NUM_THREADS=1 .venv/bin/python studies/nfcorpus.py --runs runs/nfcorpus

Reads ``../shared``, and says so where it is absent. Finished runs are not repeated, so it can be stopped at any time;
``--tables`` makes the tables of what is there. The prose of the page is written by hand and left alone.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import ttest_rel

from opera.runs import Run, holds_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
DATA, MODEL = "../shared/data/nfcorpus", "../shared/models/potion-base-4m"
SEEDS, STEPS = (0, 1, 2), 600
MEASURES = ("nDCG@10", "retrieved_ideal_nDCG@10", "R@20", "RR@10", "Success@10")
TESTED = ("nDCG@10", "R@20")


@dataclass(frozen=True)
class Cell:
    """One row of a table: a method and its settings, run with every seed."""

    label: str
    method: str
    settings: dict[str, str] = field(default_factory=dict)

    def command(self, seed: int, out: str) -> list[str]:
        """Return the command line of one run."""
        fixed = f"--steps {STEPS} --batch-size 64 --lr 1e-2 --set temperature=0.05"
        own = "".join(f" --set {name}={value}" for name, value in self.settings.items())
        return (
            f"opera train {DATA} --model {MODEL} --method {self.method} --out {out} {fixed}{own} --seed {seed}".split()
        )

    def place(self, runs: Path, seed: int) -> Path:
        """Return the folder of one run."""
        parts = [self.method, *(f"{name}={value}" for name, value in sorted(self.settings.items()))]
        return runs / ",".join(parts).replace(":", "-") / f"seed{seed}"


FT, DP = Cell("ft", "ft"), Cell("dp", "dp")
SP = Cell("sp, k = .25", "sp", {"k": "0.25"})


def with_settings(cells: list[Cell], more: dict[str, str]) -> list[Cell]:
    """Return the cells with more settings each."""
    return [Cell(cell.label, cell.method, {**cell.settings, **more}) for cell in cells]


NOISE_METHODS = [
    FT,
    Cell("infobatch", "infobatch"),
    Cell("sp, k = .7", "sp", {"k": "0.7"}),
    DP,
    Cell("sp+dp, k = .7", "sp+dp", {"k": "0.7"}),
]
TABLES: dict[str, list[Cell]] = {
    "methods": [
        FT,
        Cell("rp, k = .25", "rp", {"k": "0.25"}),
        SP,
        Cell("sp+cbs, k = .25", "sp+cbs", {"k": "0.25"}),
        Cell("infobatch", "infobatch"),
        DP,
        Cell("sp+dp, k = .75", "sp+dp", {"k": "0.75"}),
    ],
    "ablations": [
        FT,
        DP,
        Cell("query level only", "dp", {"levels": "query"}),
        Cell("document level only", "dp", {"levels": "document"}),
        Cell("hard cutoff", "dp", {"soft": "false"}),
        Cell("fixed strength: α = 4, β = 5, v = .25", "dp", {"alpha_start": "4", "alpha_end": "4", "v_end": "0.25"}),
        Cell("reversed: α 5 → 2", "dp", {"alpha_start": "5", "alpha_end": "2"}),
        Cell("β scheduled: 1 → 5", "dp", {"beta_start": "1"}),
        Cell("query score: similarity", "dp", {"query_score": "similarity"}),
        Cell("query score: loss", "dp", {"query_score": "loss"}),
        Cell("threshold per query", "dp", {"threshold": "per_query"}),
        Cell("I_u = 10", "dp", {"update_interval": "10"}),
        Cell("I_u = 100", "dp", {"update_interval": "100"}),
        Cell("I_u = epoch (the release)", "dp", {"update_interval": "epoch"}),
        Cell("pool weighted by pairs", "dp", {"pool_weighting": "pairs"}),
    ],
    "retention": [
        FT,
        *(Cell(f"sp, k = {k}", "sp", {"k": f"0{k}"}) for k in (".75", ".5")),
        SP,
        *(Cell(f"sp, k = {k}", "sp", {"k": f"0{k}"}) for k in (".1", ".05")),
    ],
    "noise-random": with_settings(NOISE_METHODS, {"noise": "random", "noise_share": "0.3"}),
    "noise-hard": with_settings(NOISE_METHODS, {"noise": "hard", "noise_share": "0.3"}),
    "unmasked": with_settings([FT, SP, Cell("infobatch", "infobatch"), DP], {"mask_known_positives": "false"}),
}


def run_one(arguments: list[str], out: Path) -> None:
    """Run one command line in this process unless its run is finished."""
    if holds_run(out) and Run.open(out).finished:
        return
    from opera.cli import main

    out.parent.mkdir(parents=True, exist_ok=True)
    sys.argv = [*arguments, "--overwrite"]
    try:
        main()
    except SystemExit as end:  # how a command line ends, also when all went well
        if end.code:
            raise RuntimeError(f"{shlex.join(arguments)}: exit status {end.code}") from end


def per_query(runs: list[Run], measure: str) -> np.ndarray:
    """Return each test query's measure after training, averaged over the seeds: ``[queries]``."""
    return np.mean([run.per_query()[f"after {measure}"].to_numpy() for run in runs], axis=0)


def holm(values: list[float]) -> list[float]:
    """Holm's correction."""
    corrected, highest = [0.0] * len(values), 0.0
    for place, at in enumerate(np.argsort(values)):
        highest = max(highest, min(1.0, (len(values) - place) * values[at]))
        corrected[at] = highest
    return corrected


def table(name: str, folder: Path) -> str:
    """Make one table: mean ± standard deviation over the seeds, and paired tests against its first row."""
    done = {
        cell.label: [Run.open(cell.place(folder, seed)) for seed in SEEDS]
        for cell in TABLES[name]
        if all(holds_run(place) and Run.open(place).finished for place in (cell.place(folder, s) for s in SEEDS))
    }
    if TABLES[name][0].label not in done:
        return "Not run yet.\n"
    noisy = name.startswith("noise")
    extra = ["false pairs' share of draws"] if noisy else []
    heads = [*MEASURES, *(f"p ({measure})" for measure in TESTED), *extra, "s a run"]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    baseline, *others = done
    before = done[baseline][0].measures["before"]
    lines.append("| untrained | " + " | ".join(f"{before[m]:.3f}" for m in MEASURES) + " |" * (len(heads) - 4))
    p_values = {
        measure: holm(
            [float(ttest_rel(per_query(done[o], measure), per_query(done[baseline], measure)).pvalue) for o in others]
        )
        for measure in TESTED
    }
    for label, runs in done.items():
        values = np.array([[run.measures["after"][m] for m in MEASURES] for run in runs])
        cells = [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(values.mean(0), values.std(0, ddof=1), strict=True)]
        cells += [f"{p_values[m][others.index(label)]:.2g}" if label in others else "" for m in TESTED]
        if noisy:
            cells.append(f"{np.mean([run.about['noise']['share_of_draws'] for run in runs]):.1%}")
        cells.append(f"{np.median([run.about['seconds']['train'] for run in runs]):.0f}")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fill(page: str, folder: Path) -> str:
    """Put fresh tables between the page's ``<!-- table NAME -->`` and ``<!-- end -->``."""
    for name in TABLES:
        head, start, rest = page.partition(f"<!-- table {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        if not end:
            sys.exit(f"{PAGE.name} has no place for the table {name}: add '<!-- table {name} -->' and '<!-- end -->'")
        page = f"{head}{start}\n{table(name, folder)}\n{end}{tail}"
    return page


def main() -> None:
    """Run what is missing, then fill the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/nfcorpus"))
    parser.add_argument("--tables", action="store_true", help="run nothing; make the tables of what is there")
    arguments = parser.parse_args()
    if not (ROOT / DATA).is_dir():
        sys.exit(f"{DATA} is absent: this study reads it")
    if not arguments.tables:
        jobs = {cell.place(arguments.runs, s): (cell, s) for s in SEEDS for cells in TABLES.values() for cell in cells}
        in_order = sorted(jobs, key=lambda place: next(n for n, c in enumerate(TABLES) if jobs[place][0] in TABLES[c]))
        with ProcessPoolExecutor(2) as pool:
            started = [pool.submit(run_one, jobs[p][0].command(jobs[p][1], str(p)), p) for p in in_order]
            for run in started:
                run.result()
    PAGE.write_text(fill(PAGE.read_text(), arguments.runs))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
