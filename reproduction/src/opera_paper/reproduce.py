"""Run a reproduction, and compare its results with the paper's figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opera
from opera_paper.align import ComparedRow, Runs, align_rows, as_records, rows_of
from opera_paper.catalogue import PAPER_SETS
from opera_paper.noise import WRONG_PAIRS, add_wrong_pairs, write_noisy
from opera_paper.plan import Call, Reproduction, set_of_row, trained_rows
from opera_paper.tables import AVERAGE, PRETRAINED, PaperRow


def check_data(plan: Reproduction) -> list[str]:
    """Load or download every data set; return notes on counts that differ from Table 8.

    Raises:
        opera.DataError: with all data sets that cannot be loaded, and advice.
    """
    notes, errors = [], []
    for name, source in plan.sources.items():
        try:
            notes.append(PAPER_SETS[name].count_note(opera.load_data(source)))
        except opera.InputError as error:
            errors.append(f"{name}: {' '.join(error.lines)}")
    if errors:
        advice = "--data NAME=FOLDER reads your copy of a data set; --data NAME selects a data set"
        raise opera.DataError(*errors, advice)
    return [note for note in notes if note]


def run_reproduction(plan: Reproduction, jobs: int = 1) -> list[str]:
    """Train the runs that are not finished; return the errors of failed runs."""
    failed: list[str] = []
    for call in plan.calls:
        if plan.table.noisy:
            write_noisy_data(call, plan.sources[call.name])
        try:
            opera.compare(
                call.source, model=plan.model, out=plan.out / call.name, methods=call.methods,
                seeds=plan.seeds, steps=[call.steps], jobs=jobs, **call.settings,
            )  # fmt: skip
        except opera.TrainingError as error:
            failed += error.lines
    return failed


def write_noisy_data(call: Call, source: str) -> None:
    """Write the folder with wrong pairs for the runs of a call, unless it exists."""
    if not Path(call.source, WRONG_PAIRS).is_file():
        grade = PAPER_SETS[call.name].relevant_grade - 1
        noisy, wrong = add_wrong_pairs(opera.load_data(source), "grade", None, 0, grade=grade)
        write_noisy(noisy, wrong, Path(call.source))


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper compared with the finished runs of its reproduction.

    Attributes:
        plan: the plan of the reproduction.
        rows: the rows of the selected data sets, and the averages over them.
        finished: number of finished runs.
        planned: number of planned runs.
        notes: notes for a reader of the table.
    """

    plan: Reproduction
    rows: Sequence[ComparedRow]
    finished: int
    planned: int
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The results, for JSON."""
        plan = self.plan
        return {
            "table": plan.table.name,
            "number": plan.table.number,
            "model": plan.model,
            "preset": plan.preset,
            "scale": plan.scale,
            "seeds": list(plan.seeds),
            "data": dict(plan.sources),
            "runs": self.planned,
            "finished": self.finished,
            "rows": as_records(plan.table, self.rows, with_grid=True),
        }


def collect_results(plan: Reproduction) -> Reproduced:
    """Read the finished runs and compare them with the paper's figures.

    Raises:
        opera.RunFolderError: if no run is finished.
    """
    groups: dict[tuple[str, str, int | None], Runs] = {}
    finished: set[Path] = set()
    planned: set[tuple[str, str, int]] = set()
    for row, name, label, steps in plan.rows:
        planned.add((name, label, steps))
        pattern = f"*/{label.replace(':', ',')}/steps{steps}/seed*/run.json"
        paths = sorted(path.parent for path in (plan.out / name).glob(pattern))
        runs = [run for run in map(opera.Run.open, paths) if run.finished]
        runs = [run for run in runs if run.record.seed in plan.seeds]
        if runs:
            groups[row.data, row.method, row.steps] = Runs(tuple(runs), steps)
            finished.update(run.path for run in runs)
    if not groups:
        raise opera.RunFolderError(
            f"--out {plan.out}: no run of table {plan.table.name} is finished; the same command "
            "without --table-only trains them"
        )

    def runs_of(row: PaperRow) -> Runs | None:
        if row.method != PRETRAINED:
            return groups.get((row.data, row.method, row.steps))
        on_data = [group for (data, *_), group in groups.items() if data == row.data]
        return max(on_data, key=lambda group: len(group.runs), default=None)

    selected = {row.data for row in trained_rows(plan.table) if set_of_row(row).name in plan.sources}
    rows = [
        compared
        for compared in align_rows(rows_of(plan.table), runs_of)
        if compared.row.data in selected
        or (len(selected) > 1 and any(figure.ours for figure in compared.figures.values()))
    ]
    n_planned = len(planned) * len(plan.seeds)
    notes = [f"Our runs: preset {plan.preset}, seeds {', '.join(map(str, plan.seeds))}."]
    if len(finished) < n_planned:
        notes.append(f"Finished runs: {len(finished)} of {n_planned}.")
    if plan.small:
        notes += small_notes(plan, rows)
    return Reproduced(plan, rows, len(finished), n_planned, notes)


def small_notes(plan: Reproduction, rows: Sequence[ComparedRow]) -> list[str]:
    """Compare the gain of dp over ft in a small reproduction with the gain in the paper."""
    notes = ["A small model and few steps: compare differences between methods, not levels."]
    figures = {(row.row.data, row.row.method): row.figures.get("NDCG@10") for row in rows if row.row.data != AVERAGE}
    for (data, method), dp in figures.items():
        ft = figures.get((data, "FT"))
        if method != "DP" or dp is None or ft is None or dp.mean is None or ft.mean is None:
            continue
        ours, papers = 100 * (dp.mean - ft.mean), 100 * ((dp.paper or 0) - (ft.paper or 0))
        notes.append(f"{data}: DP − FT is {ours:+.1f} NDCG@10 here, {papers:+.1f} in the paper.")
    return notes + [f"Left out: {name} is large; --data {name} includes it." for name in plan.too_large]


def write_results(reproduced: Reproduced, text: str) -> list[Path]:
    """Write ``TABLE.txt``, ``TABLE.json`` and ``report.html`` into the folder."""
    out, name = reproduced.plan.out, reproduced.plan.table.name
    contents = {
        out / f"{name}.txt": text,
        out / f"{name}.json": json.dumps(reproduced.as_dict(), indent=2, ensure_ascii=False) + "\n",
    }
    for path, content in contents.items():
        path.write_text(content, encoding="utf-8")
    return [*contents, opera.report(out, overwrite=True)]
