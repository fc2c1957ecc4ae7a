"""``opera.compare``: run a grid, then analyse it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe, parse_value, with_full_names
from opera.config.training import TrainSettings
from opera.core.arguments import several, text, texts, whole_number
from opera.core.errors import RunFolderError, SettingError, TrainingError
from opera.core.files import check_folder, leftovers
from opera.core.locks import LOCK_FILE, sole_use
from opera.core.paths import expand_user, user_path
from opera.data import check_stays_out, load_data
from opera.data.loading import Given, named_source
from opera.experiments.analysis import Comparison, analyse_runs, find_groups, format_settings
from opera.experiments.grid.plan import Cell, GridAxes, canonical_label, grid_axes, plan_grid
from opera.experiments.grid.run import Status, run_grid
from opera.retrieval.locate import locate_model
from opera.retrieval.measures import parse_measures
from opera.retrieval.prompts import ROLES, prompts_in_folder, warn_of_missing_prompts
from opera.runs.folder import RUN_FILE, Run
from opera.runs.record import GRID_FILE, GridRecord, grid_in
from opera.training_set.prepare_data import prepare_data


def grid_record(
    out: Path, model: str, shared: Mapping[str, Any], cells: Sequence[Cell] = ()
) -> GridRecord:
    """What ``grid.json`` says of a call."""
    folders = [str(cell.folder.relative_to(out)) for cell in cells]
    return GridRecord(model=model, settings=_plain(shared), cells=folders)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their full names, sorted, as JSON holds them."""
    full = with_full_names(settings)
    values = {name: parse_value(name, value) for name, value in full.items()}
    plain: dict[str, Any] = json.loads(json.dumps(values, sort_keys=True, default=str))
    return plain


def check_grid_folder(out: Path, requested: GridRecord) -> None:
    """Refuse a folder that holds something else, or a grid of another model or other settings.

    While no cell has run, the grid may still change.
    """
    check_folder(out, "--out")
    ours = {out / LOCK_FILE, *leftovers(out / GRID_FILE)}
    recorded = grid_in(out)
    if recorded is None:
        if out.is_dir() and set(out.iterdir()) - ours:
            rule = "is not empty and holds no grid; give an empty or a new folder"
            raise RunFolderError(f"--out {out}: {rule}")
        return
    if not any(out.rglob(RUN_FILE)):
        return
    other = "; give another folder"
    if recorded.model != requested.model:
        models = f"holds a grid with model {recorded.model!r}, this call has {requested.model!r}"
        raise RunFolderError(f"--out {out}: {models}{other}")
    before, now = map(TrainSettings.with_effect, (recorded.settings, requested.settings))
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if names:
        theirs, ours_now = (_format(names, settings) for settings in (before, now))
        difference = f"holds a grid with settings {theirs}; this call has {ours_now}"
        raise RunFolderError(f"--out {out}: {difference}{other}")


def _format(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The named settings as ``NAME=VALUE``; one that was not given has its default."""
    formatted = {
        name: format_settings({name: settings[name]}) for name in names if name in settings
    }
    return ", ".join(formatted.get(name, f"the default {name}") for name in names)


def write_grid_file(out: Path, record: GridRecord) -> None:
    """Write ``grid.json``, with the cells of earlier calls kept."""
    out.mkdir(parents=True, exist_ok=True)
    if (earlier := grid_in(out)) is not None:
        cells = list(dict.fromkeys([*earlier.cells, *record.cells]))
        record = record.model_copy(update={"cells": cells})
    record.write(out)


@contextmanager
def opened_grid(out: Path, record: GridRecord) -> Iterator[None]:
    """Hold a grid's folder for this process, with ``grid.json`` written.

    RunFolderError is raised if another process runs the grid, or has started another grid here in
    the meantime.
    """
    out.mkdir(parents=True, exist_ok=True)  # where the lock lies
    with sole_use(out, "runs this grid"):
        check_grid_folder(out, record)
        write_grid_file(out, record)
        yield


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
    columns: Given | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    **settings: Any,
) -> Comparison:
    """Train methods x seeds x steps on some data sets, and compare them.

    Every cell is an ordinary run folder. Finished cells are not repeated, so the same call
    continues a grid that was stopped.

    Args:
        data: one or more data sets, by path or name as :func:`opera.adapt` takes them.
        model: the model that all cells start from.
        out: the grid's folder.
        methods: methods, as a list or separated by commas, with settings of their own after colons:
            ``"sp:k=0.5"``. Default: ``method`` if that is among the settings, else ``ft`` and
            ``denoise``.
        seeds: seeds. Default: ``seed`` if that is among the settings, else 0, 1 and 2.
        steps: numbers of optimizer steps. Default: ``max_steps`` if that is among the settings,
            else as many as ``epochs`` or the data say.
        baseline: the method that the others are tested against; ``None`` takes ``ft`` if there is
            one, else the first.
        jobs: number of cells to run at once; they share the CPU's cores.
        columns: of tables, as for :func:`opera.load_data`; for each data set.
        encoding: likewise.
        skip_bad_rows: likewise.
        settings: settings of all cells, by name, as :func:`opera.adapt` takes them.

    Returns:
        The comparison of all finished runs in ``out``: ``tables`` with each method's measures and
        tests, and ``ranks``. ``as_dict()`` gives all of it for JSON.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if a cell failed. The others are finished, and the same call tries the
            failed ones again.
        KeyboardInterrupt: after Ctrl-C or SIGTERM. The running cells have saved a checkpoint.
    """
    sets = data if isinstance(data, list | tuple) else [data]
    how = {"columns": columns, "encoding": encoding, "skip_bad_rows": skip_bad_rows}
    if any(not isinstance(source, str | os.PathLike) for source in sets):
        raise SettingError(
            "data: the cells of a grid are processes, which read their data from disk; write a "
            "table, such as frame.to_parquet('pairs.parquet'), and pass its path"
        )
    sources = [str(named_source(source, **how)) for source in sets]
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
    with opened_grid(folder, grid_record(folder, str(model), shared, status.cells)):
        run_grid(status, str(model))
    lines = [(path, line) for path, why in status.failed.items() for line in why.split("\n")]
    if lines:
        raise TrainingError(*(f"{path}: {line}" for path, line in lines))
    return analyse_grid(status, folder, baseline)


def prepare_grid(
    data: Sequence[str], axes: GridAxes, out: Path, model: str, shared: dict[str, Any], jobs: int
) -> Status:
    """Plan a grid and check all that can be checked without torch. Writes nothing."""
    jobs = whole_number(jobs, "--jobs", 1, MOST_JOBS)
    if "metric_for_best_model" in shared:
        parse_measures([str(shared["metric_for_best_model"])])
    cells = plan_grid(data, axes, out, shared)
    if shared.get("query_vectors") is None:  # else --model only names the vectors
        place = locate_model(model)
        if isinstance(place, Path):  # the cells warn too, but in files of their own
            decided = (shared.get(f"{role}_prompt") for role in ROLES)
            warn_of_missing_prompts(prompts_in_folder(place), model, *decided)
    check_grid_folder(out, grid_record(out, model, shared))
    for source in data:
        check_stays_out(out, "--out", source)
    return prepare_cells(cells, jobs)


def prepare_cells(cells: Sequence[Cell], jobs: int = 1) -> Status:
    """Check that each cell's data and settings fit, and find the finished ones. Writes nothing."""
    fingerprints: dict[str, str] = {}
    for source in dict.fromkeys(cell.data for cell in cells):
        loaded = load_data(source)
        fingerprints[source] = loaded.fingerprint
        by_method = {cell.label: cell for cell in reversed(cells) if cell.data == source}
        for cell in by_method.values():
            prepare_data(loaded, make_recipe(cell.values))
    status = Status.scan(cells, jobs)
    for cell in cells:
        if cell.folder not in status.done:
            continue
        if Run.open(cell.folder).record.data.fingerprint != fingerprints[cell.data]:
            rule = f"is a run on other data than {cell.data} is now; give another --out"
            raise RunFolderError(f"{cell.folder}: {rule}")
    return status


def check_baseline(baseline: str | None, axes: GridAxes) -> str | None:
    """Return the baseline's label as the grid has it; SettingError if it is none of the methods."""
    if baseline is None:
        return None
    label = canonical_label(text(baseline, "baseline"))
    if label not in axes.methods:
        known = ", ".join(axes.methods)
        raise SettingError(f"--baseline {baseline}: must be one of the methods: {known}")
    return label


def analyse_grid(status: Status, out: Path, baseline: str | None) -> Comparison:
    """Analyse the runs in a grid's folder, those of earlier calls included.

    The analysis may label the baseline otherwise than this call, and does without it where its
    cells failed.
    """
    cells = [cell for cell in status.cells if cell.label == baseline]
    folders = {cell.folder for cell in cells if cell.folder in status.done}
    groups = find_groups(out) if folders else []
    labels = [group.method for group in groups if folders & {run.path for run in group.runs}]
    return analyse_runs(out, labels[0] if labels else None)
