"""All methods on NFCorpus and SciFact with three seeds, four numbers of steps and a small static model.

    .venv/bin/python studies/grid.py            # runs missing cells (40 minutes on 2 cores), then fills in the tables
    .venv/bin/python studies/grid.py --tables

Fills in the grid's tables of docs/results.md. Reads ``../shared``, and stops with a message if it is absent.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from opera.experiments.analysis import BUCKETS, PRIMARY, RECALL, Comparison, MethodResult, ResultsTable, analyse_runs
from page import RESULTS, fill, need, table_lines

DATA = ("../shared/data/nfcorpus", "../shared/data/scifact")
MODEL = "../shared/models/potion-base-4m"
GRID = Path("runs/grid")
COMMAND = (
    f"opera compare {' '.join(DATA)} --model {MODEL} --methods ft,rp,sp,sp+cbs,infobatch,dp,sp+dp:k=0.75 "
    f"--seeds 0,1,2 --steps 50,100,200,400 --batch-size 64 --set guard=false --set temperature=0.05 "
    f"--set learning_rate=0.01 --jobs 2 --out {GRID}"
)


def methods_table(table: ResultsTable) -> str:
    """Quality, tests and cost on one data set, with its largest number of steps."""
    heads = ["", PRIMARY, "retrieved-ideal", RECALL, f"points of {PRIMARY}", "p (t)", "won : lost", "ms per step"]
    before = table.untrained
    values = [f"{before[m]:.3f}" for m in (PRIMARY, f"retrieved_ideal_{PRIMARY}", RECALL)]
    return table_lines(heads, [["untrained", *values, *[""] * (len(heads) - 4)], *map(method_cells, table.rows)])


def method_cells(row: MethodResult) -> list[str]:
    """One method's cells."""
    values = [row.measures[m] for m in (PRIMARY, f"retrieved_ideal_{PRIMARY}", RECALL)]
    cells = [row.method, *(f"{value.mean:.3f} ± {value.std:.3f}" for value in values)]
    test = row.tests.get(PRIMARY)
    if test is None:
        cells += [""] * 3
    else:
        interval = f"({100 * test.low:+.1f} to {100 * test.high:+.1f})"
        cells += [f"{100 * test.difference:+.1f} {interval}", f"{test.t_test_holm:.2g}"]
        cells += [f"{test.won} : {test.lost}"]
    return [*cells, f"{1000 * row.seconds_per_step:.0f}"]


def convergence_table(comparison: Comparison, data: str) -> str:
    """nDCG@10 by number of steps, and when each method matches the baseline's best."""
    tables = sorted((table for table in comparison.tables if table.data == data), key=lambda table: table.steps)
    by_method = {row.method: row for row in comparison.convergence if row.data == data}
    rows = []
    for row in tables[-1].rows:
        values = [next(r for r in table.rows if r.method == row.method).measures[PRIMARY].mean for table in tables]
        convergence = by_method[row.method]
        first = ["never", ""]
        if convergence.steps is not None:
            first = [f"{convergence.steps}", f"{convergence.seconds_ratio:.2f}"]
        rows.append([row.method, *(f"{value:.3f}" for value in values), *first])
    return table_lines(["", *(f"{t.steps} steps" for t in tables), "matches ft's best", "× its time"], rows)


def difficulty_table(table: ResultsTable) -> str:
    """nDCG@10 and R@20 in each third of the test queries."""
    heads = ["", *(f"{measure} {bucket}" for measure in (PRIMARY, RECALL) for bucket in BUCKETS)]
    rows = [
        [row.method, *(f"{row.difficulty[m][bucket]:.3f}" for m in (PRIMARY, RECALL) for bucket in BUCKETS)]
        for row in table.rows
    ]
    return table_lines(heads, rows)


def main() -> None:
    """Run missing cells, then fill in the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="run nothing; make the tables of the existing runs")
    if not parser.parse_args().tables:
        need(MODEL, *DATA)
        subprocess.run([sys.executable, "-m", *shlex.split(COMMAND)], check=True)
    comparison = analyse_runs(GRID)
    tables = {}
    for data in dict.fromkeys(table.data for table in comparison.tables):
        final = comparison.final(data)
        tables[f"grid-{final.name}"] = methods_table(final)
        tables[f"grid-{final.name}-steps"] = convergence_table(comparison, data)
        tables[f"grid-{final.name}-difficulty"] = difficulty_table(final)
    heads = ["", *comparison.ranks]
    ranks = [[m, *(f"{of[m]:.1f}" for of in comparison.ranks.values())] for m in comparison.ranks[PRIMARY]]
    tables["grid-ranks"] = table_lines(heads, ranks)
    fill(RESULTS, tables)


if __name__ == "__main__":
    main()
