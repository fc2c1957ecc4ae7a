"""Every method and ablation on NFCorpus, and denoising on EntailmentBank, with a small static model.

    OMP_NUM_THREADS=1 .venv/bin/python studies/methods.py

Fills in the tables of docs/results.md. Reads ``../shared``, and stops with a message if it is absent. Finished runs are
not repeated, so it can be stopped at any time; ``--tables`` makes the tables of the existing runs.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import opera
from opera.experiments.analysis import Group, paired_tests
from opera.runs.folder import Run, holds_run
from opera_paper.noise import NEEDS, WRONG_PAIRS, add_wrong_pairs, write_noisy
from page import RESULTS, fill, need, table_lines

MODEL = "../shared/models/potion-base-4m"
MEASURES = ("nDCG@10", "R@20")


@dataclass(frozen=True)
class Cell:
    """One row of a table: a method and its settings, run with every seed."""

    label: str
    method: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """One table: each row is compared with the first, on the same data."""

    cells: tuple[Cell, ...]
    data: str = "nfcorpus"
    steps: int = 600
    seeds: tuple[int, ...] = (0, 1, 2)
    noise: tuple[str, float] | None = None

    def source(self, runs: Path, seed: int) -> Path:
        """Return the data of a seed's runs: the data set, or a folder below ``runs`` with wrong pairs added to it."""
        if self.noise is None:
            return Path("../shared/data", self.data)
        kind, share = self.noise
        return runs / f"{self.data}-{kind}-{share:g}" / f"data{seed}"

    def add_noise(self, runs: Path) -> None:
        """Write the folders with wrong pairs that are missing."""
        if self.noise is None:
            return
        (kind, share), clean = self.noise, opera.load_data(Path("../shared/data", self.data))
        for seed in self.seeds:
            folder, model = self.source(runs, seed), MODEL if "model" in NEEDS[kind] else None
            if not (folder / WRONG_PAIRS).is_file():
                write_noisy(*add_wrong_pairs(clean, kind, share, seed, model=model), folder)

    def command(self, cell: Cell, seed: int, runs: Path) -> list[str]:
        """Return the command line of one run."""
        fixed = f"--steps {self.steps} --batch-size 64 --lr 1e-2 --set temperature=0.05 --set guard=false"
        own = "".join(f" --set {name}={value}" for name, value in cell.settings.items())
        data, out = self.source(runs, seed), self.place(runs, cell, seed)
        job = f"opera train {data} --model {MODEL} --method {cell.method} --out {out}"
        return f"{job} {fixed}{own} --seed {seed}".split()

    def place(self, runs: Path, cell: Cell, seed: int) -> Path:
        """Return the folder of one run."""
        parts = [cell.method, *(f"{name}={value}" for name, value in sorted(cell.settings.items()))]
        home = runs / self.data if self.noise is None else self.source(runs, seed).parent
        return home / ",".join(parts) / f"seed{seed}"

    def wrong_draws(self, runs: Path, seed: int, run: Run) -> float:
        """Return the share of a run's draws that fell on wrong pairs."""
        lines = (self.source(runs, seed) / WRONG_PAIRS).read_text(encoding="utf-8").splitlines()
        wrong, pairs = {tuple(line.split("\t")[1:]) for line in lines}, run.pairs().to_pandas()
        false = [pair in wrong for pair in zip(pairs.query_id, pairs.doc_id, strict=True)]
        return float(pairs.times_drawn[false].sum() / pairs.times_drawn.sum())


FT, INFOBATCH, DP = Cell("ft", "ft"), Cell("infobatch", "infobatch"), Cell("dp", "dp")


def sp(k: str, method: str = "sp") -> Cell:
    """Return the row of a method with a retention rate."""
    return Cell(f"{method}, k = {k}", method, {"k": f"0{k}"})


def denoising(kind: str, share: float) -> Study:
    """Return the denoising table on EntailmentBank for one kind and share of false positives."""
    k = f"{1 - share:g}".removeprefix("0")
    cells = (FT, INFOBATCH, sp(k), DP, sp(k, "sp+dp"), Cell(f"sp+cbs, k = {k}", "sp+cbs", {"k": f"0{k}"}))
    return Study(cells, "entailmentbank", 150, (0, 1, 2, 3, 4), (kind, share))


STUDIES: dict[str, Study] = {
    "methods": Study(
        (FT, sp(".25", "rp"), sp(".25"), sp(".25", "sp+cbs"), INFOBATCH, DP, sp(".75", "sp+dp")),
    ),
    "ablations": Study(
        (
            FT,
            DP,
            Cell("query level only", "dp", {"levels": "query"}),
            Cell("document level only", "dp", {"levels": "document"}),
            Cell("hard cutoff", "dp", {"soft": "false"}),
            Cell("fixed: α = 4, β = 5, v = .25", "dp", {"alpha_start": "4", "alpha_end": "4", "v_end": "0.25"}),
            Cell("reversed: α 5 → 2", "dp", {"alpha_start": "5", "alpha_end": "2"}),
            Cell("β scheduled: 1 → 5", "dp", {"beta_start": "1"}),
            Cell("query score: similarity", "dp", {"query_score": "similarity"}),
            Cell("query score: loss", "dp", {"query_score": "loss"}),
            Cell("threshold per query", "dp", {"threshold": "per_query"}),
            Cell("I_u = 10", "dp", {"update_interval": "10"}),
            Cell("I_u = 100", "dp", {"update_interval": "100"}),
            Cell("I_u = epoch (the release)", "dp", {"update_interval": "epoch"}),
        )
    ),
    "retention": Study((FT, *(sp(k) for k in (".75", ".5", ".25", ".1", ".05")))),
    "random-50": denoising("random", 0.5),
    "hard-30": denoising("hard", 0.3),
}


def run_one(arguments: list[str], out: Path) -> None:
    """Run one command line in this process, unless its run is finished."""
    if holds_run(out) and Run.open(out).finished:
        return
    from opera.cli import main

    out.parent.mkdir(parents=True, exist_ok=True)
    sys.argv = [*arguments, "--overwrite"]
    try:
        main()
    except SystemExit as end:  # every command ends so, after success too
        if end.code:
            raise RuntimeError(f"{shlex.join(arguments)}: exit status {end.code}") from end


def finished_runs(study: Study, folder: Path) -> dict[str, list[Run]]:
    """Return the runs of each row whose seeds are all finished."""
    places = {cell.label: [study.place(folder, cell, seed) for seed in study.seeds] for cell in study.cells}
    return {
        label: [Run.open(place) for place in of_row]
        for label, of_row in places.items()
        if all(holds_run(place) and Run.open(place).finished for place in of_row)
    }


def table(study: Study, folder: Path) -> str:
    """Make one table: mean ± standard deviation over the seeds, and paired tests against its first row."""
    done = finished_runs(study, folder)
    baseline = study.cells[0].label
    if baseline not in done:
        return "Not run yet.\n"
    others = [label for label in done if label != baseline]
    noisy = study.noise is not None
    heads = ["", *MEASURES, *(f"p ({measure})" for measure in MEASURES), *(["false draws"] if noisy else [])]
    before = done[baseline][0].measures["before"]
    rows = [["untrained", *(f"{before[m]:.3f}" for m in MEASURES), *[""] * (len(heads) - 1 - len(MEASURES))]]
    groups = {label: Group(study.data, label, study.steps, tuple(runs)) for label, runs in done.items()}
    tests = {m: paired_tests([groups[label] for label in others], groups[baseline], m) for m in MEASURES}
    for label, runs in done.items():
        values = np.array([[run.measures["after"][m] for m in MEASURES] for run in runs])
        cells = [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(values.mean(0), values.std(0, ddof=1), strict=True)]
        cells += [f"{tests[m][label].t_test_holm:.2g}" if label in tests[m] else "" for m in MEASURES]
        if noisy:
            draws = [study.wrong_draws(folder, seed, run) for seed, run in zip(study.seeds, runs, strict=True)]
            cells.append(f"{np.mean(draws):.1%}")
        rows.append([label, *cells])
    return table_lines(heads, rows)


def main() -> None:
    """Run what is missing, then fill in the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--tables", action="store_true", help="run nothing; make the tables of the existing runs")
    arguments = parser.parse_args()
    need(MODEL, *(f"../shared/data/{study.data}" for study in STUDIES.values()))
    if not arguments.tables:
        jobs: dict[Path, list[str]] = {}
        for study in STUDIES.values():
            study.add_noise(arguments.runs)
            for seed in study.seeds:
                for cell in study.cells:
                    place = study.place(arguments.runs, cell, seed)
                    jobs.setdefault(place, study.command(cell, seed, arguments.runs))
        with ProcessPoolExecutor(2) as pool:
            for run in [pool.submit(run_one, command, place) for place, command in jobs.items()]:
                run.result()
    fill(RESULTS, {name: table(study, arguments.runs) for name, study in STUDIES.items()})
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
