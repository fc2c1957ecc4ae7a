"""What a reader of a table must know of the runs beside the paper's figures: their scale, preset, seeds and data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from opera.data.catalogue import PAPER_SETS, PaperSet
from opera.experiments.analysis import Group
from opera.experiments.paper import data_key
from opera.experiments.reproduce.sets import count_notes
from opera.runs.folder import Run
from opera.runs.grid_record import GRID_FILE, GridRecord

SMALL = (
    "Made with --scale small, to try the way from data to table: too few steps and too small a model to be compared "
    "with the paper's figures."
)


def grid_notes(folder: Path, groups: Sequence[Group], data: Collection[str]) -> list[str]:
    """Notes on a grid's runs.

    Args:
        folder: the grid's folder.
        groups: its groups, with the data sets' names.
        data: only these data sets.

    Raises:
        RunFolderError: if ``grid.json`` is not as OPERA wrote it.
    """
    keys = {data_key(name) for name in data}
    shown = [group for group in groups if data_key(group.data) in keys]
    runs = [run for group in shown for run in group.runs]
    if not runs:
        return []
    presets = sorted({str(run.settings["preset"]) for run in runs if run.settings.get("preset")})
    seeds = len({run.settings["seed"] for run in runs})
    preset = f"preset {' and '.join(presets)}, " if presets else ""
    notes = [f"The grid's runs: {preset}{seeds} seed{'s' * (seeds > 1)}."]
    if (folder / GRID_FILE).is_file() and GridRecord.read(folder).scale is not None:
        notes.append(SMALL)
    first = {data_key(group.data): group.runs[0] for group in reversed(shown)}
    for entry in PAPER_SETS.values():
        if run := first.get(data_key(entry.title)):
            notes += run_count_notes(entry, run)
    return notes


def run_count_notes(entry: PaperSet, run: Run) -> list[str]:
    """Where the counts that a run recorded differ from Table 8, with what was noted of its data then."""
    data = run.record.data
    found = count_notes(entry, entry.differing_counts(data.counts, {})) if data.counts else []
    return found and [*found, *(f"{entry.name}: {note}" for note in data.notes)]
