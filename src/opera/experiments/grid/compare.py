"""``opera.compare``: run a grid, then analyse it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe
from opera.core.arguments import several, text, texts, whole_number
from opera.core.errors import RunFolderError, SettingError, TrainingError
from opera.core.paths import expand_user, user_path
from opera.data import check_stays_out, load_data
from opera.experiments.analysis import Comparison, analyse_runs, find_groups
from opera.experiments.grid.axes import GridAxes, canonical_label, grid_axes
from opera.experiments.grid.folder import check_grid_folder, opened_grid
from opera.experiments.grid.plan import Cell, plan_grid
from opera.experiments.grid.progress import Progress
from opera.experiments.grid.run import run_grid
from opera.experiments.grid.status import Status
from opera.retrieval.locate import locate_model
from opera.retrieval.measures import parse_measures
from opera.retrieval.prompts import ROLES, as_setting, prompts_in_folder, warn_of_missing_prompts
from opera.runs.folder import Run, holds_run
from opera.training_set.prepare_data import prepare_data

MOST_JOBS = 1000


def compare(
    data: str | Path | Sequence[str | Path],
    *,
    model: str | Path,
    out: str | Path,
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    baseline: str | None = None,
    jobs: int = 1,
    **settings: Any,
) -> Comparison:
    """Train methods x seeds x steps on some data sets, and compare them.

    Every cell is an ordinary run folder. Finished cells are not repeated, so the same call continues a grid that was
    stopped.

    Args:
        data: one or more data sets, by path or name as :func:`opera.adapt` takes them.
        model: the model that all cells start from.
        out: the grid's folder.
        methods: methods, as a list or separated by commas, with settings of their own after colons: ``"sp:k=0.5"``.
            Default: ``method`` if that is among the settings, else ``ft`` and ``dp``.
        seeds: seeds. Default: ``seed`` if that is among the settings, else 0, 1 and 2.
        steps: numbers of optimizer steps. Default: ``max_steps`` if that is among the settings, else as many as
            ``epochs``, ``preset`` or the data say.
        baseline: the method that the others are tested against; ``None`` takes ``ft`` if there is one, else the first.
        jobs: number of cells to run at once; they share the CPU's cores.
        settings: settings of all cells, by name, as :func:`opera.adapt` takes them.

    Returns:
        The comparison of all finished runs in ``out``: ``tables`` with each method's measures and tests,
        ``convergence`` and ``ranks``. ``as_dict()`` gives all of it for JSON.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if a cell failed. The others are finished, and the same call tries the failed ones again.
        KeyboardInterrupt: after Ctrl-C or SIGTERM. The running cells have saved a checkpoint.
    """
    given = [data] if isinstance(data, str | os.PathLike) else several(data, "data", "data sets")
    sources = [expand_user(source, "data") for source in given]
    folder, model = user_path(out, "--out"), expand_user(model, "--model")
    if isinstance(methods, str):
        methods = [label for label in methods.split(",") if label.strip()]
    axes, shared = grid_axes(
        settings,
        None if methods is None else texts(methods, "methods"),
        None if seeds is None else several(seeds, "seeds", "whole numbers"),
        None if steps is None else several(steps, "steps", "whole numbers"),
    )
    status = prepare_grid(sources, axes, folder, str(model), shared, jobs)
    baseline = check_baseline(baseline, axes)
    with opened_grid(folder, str(model), shared, status.cells):
        run_grid(status, str(model), Progress(status))
    if status.failed:
        raise TrainingError(
            *(
                f"{path}: {line}"
                for path, reason in status.failed.items()
                for line in reason.split("\n")
            )
        )
    return analyse_grid(status, folder, baseline)


def prepare_grid(
    data: Sequence[str], axes: GridAxes, out: Path, model: str, shared: dict[str, Any], jobs: int
) -> Status:
    """Plan a grid and check everything that can be checked without torch. Writes nothing.

    Args:
        data: data sets.
        axes: methods, seeds and steps.
        out: the grid's folder.
        model: the model that all cells start from.
        shared: settings of all cells.
        jobs: number of cells to run at once.

    Raises:
        InputError: for invalid input.
    """
    jobs = whole_number(jobs, "--jobs", 1, MOST_JOBS)
    if "metric_for_best_model" in shared:
        parse_measures([str(shared["metric_for_best_model"])])
    cells = plan_grid(data, axes, out, shared)
    if shared.get("query_vectors") is None:  # else --model only names the vectors
        _warn_of_prompts(model, shared)
    check_grid_folder(out, model, shared)
    for source in data:
        check_stays_out(out, "--out", source, folder=True)
    return prepare_cells(cells, jobs)


def _warn_of_prompts(model: str, shared: Mapping[str, Any]) -> None:
    """Warn of what a well-known model lacks; the cells warn too, but in files of their own."""
    place = locate_model(model)
    if isinstance(place, Path) and not holds_run(Path(model)):
        decided = [role for role in ROLES if shared.get(f"{role}_prompt") is not None]
        warn_of_missing_prompts(prompts_in_folder(place), model, decided, as_setting)


def prepare_cells(cells: Sequence[Cell], jobs: int = 1) -> Status:
    """Check that each cell's data and settings fit, and find the finished cells. Needs no torch, writes nothing.

    Raises:
        InputError: for invalid input.
    """
    fingerprints: dict[str, str] = {}
    for source in dict.fromkeys(cell.data for cell in cells):
        loaded = load_data(source)
        fingerprints[source] = loaded.fingerprint
        by_method = {
            cell.label: cell for cell in reversed(cells) if cell.data == source
        }  # once per method
        for cell in by_method.values():
            prepare_data(loaded, make_recipe(cell.values))
    status = Status.scan(cells, jobs)
    for cell in cells:
        if cell.folder in status.done:
            _check_fingerprint(cell, fingerprints[cell.data])
    return status


def check_baseline(baseline: str | None, axes: GridAxes) -> str | None:
    """Return the baseline's label as the grid has it.

    Raises:
        SettingError: if it is none of the methods.
    """
    if baseline is None:
        return None
    label = canonical_label(text(baseline, "baseline"))
    if label not in axes.methods:
        raise SettingError(
            f"--baseline {baseline}: must be one of the methods: {', '.join(axes.methods)}"
        )
    return label


def analyse_grid(status: Status, out: Path, baseline: str | None) -> Comparison:
    """Analyse the runs in a grid's folder, those of earlier calls included.

    Args:
        status: which cells are done.
        out: the grid's folder.
        baseline: the baseline's label in this call. The analysis may label it differently, and does without it where
            its cells failed.
    """
    folders = {
        cell.folder
        for cell in status.cells
        if cell.label == baseline and cell.folder in status.done
    }
    labels = [
        group.method for group in find_groups(out) if folders & {run.path for run in group.runs}
    ]
    return analyse_runs(out, labels[0] if labels else None)


def _check_fingerprint(cell: Cell, fingerprint: str) -> None:
    if Run.open(cell.folder).record.data.fingerprint != fingerprint:
        raise RunFolderError(
            f"{cell.folder}: is a run on other data than {cell.data} is now; give another --out"
        )
