"""``opera.compare``: run a grid, then analyse it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from opera.config.recipe import make_recipe, with_full_names
from opera.config.training import EncodingSettings, reads_lists
from opera.core.arguments import RUN_FILE, expand_user, text, user_path, whole_number
from opera.core.cache import LOCK_FILE
from opera.core.errors import RunFolderError, SettingError, TrainingError
from opera.core.files import check_folder
from opera.data import Mixture, check_stays_out, load_all
from opera.data.copies import log_copies
from opera.data.loading import (
    ColumnNames,
    additional_sources,
    named_source,
)
from opera.data.names import DataName, TableSource
from opera.experiments.encoding_time import measure_models
from opera.experiments.grid import Grid, train_grid
from opera.experiments.groups import find_runs, group_runs
from opera.experiments.plan import PlannedRun, canonical_label, plan_grid
from opera.experiments.results import Comparison, analyse_runs
from opera.identity import refuse_other_run, run_identity
from opera.retrieval.locate import is_loaded, locate_model
from opera.retrieval.measures import parse_measures
from opera.retrieval.prompts import ROLES, json_values, warn_of_missing_prompts
from opera.run.adapt import foresee
from opera.run_folder.folder import run_in
from opera.training.prepare_data import prepare_data


def compare(
    data: str | Path | Sequence[str | Path],
    *,
    also: Sequence[str | Path] = (),
    model: str | Path | Sequence[str | Path],
    out: str | Path,
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    baseline: str | None = None,
    jobs: int = 1,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    **settings: Any,
) -> Comparison:
    """Train base models x methods x seeds x steps on one or more data sets, and compare them.

    Every run has an ordinary run folder. Finished runs are not repeated, so the same call
    continues an interrupted grid.

    Args:
        data: one or more data sets, by path or name as :func:`opera.adapt` takes them. The methods
            are compared on one after the other.
        also: further data sets, which every run trains on together with its data set.
        model: the base model, or several. ``base_models`` of the result then says which one to use.
        out: the grid's folder.
        methods: methods, as a list or separated by commas, with their settings after colons:
            ``"sp:k=0.5"``. Default: the setting ``method``, else ``ft`` and ``denoise``.
        seeds: seeds. Default: the setting ``seed``, else 0, 1 and 2.
        steps: numbers of optimizer steps. Default: the setting ``max_steps``, else an automatic
            number from ``epochs`` or the data.
        baseline: the method that all other methods are tested against; by default ``ft`` if it is
            among the methods, else the first method.
        jobs: number of runs at once; they share the CPU's cores.
        columns: columns of tables, as for :func:`opera.load_data`, for all data sets.
        encoding: encoding of files, as for :func:`opera.load_data`, for all data sets.
        skip_bad_rows: as for :func:`opera.load_data`, for all data sets.
        settings: settings of all runs, by name, as :func:`opera.adapt` takes them.

    Returns:
        The comparison of all finished runs in ``out``: ``tables`` with the measures and tests of
        each method, ``base_models``, ``ranks``, and ``worse``, whether training made a model
        worse. ``as_dict()`` converts it for JSON.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if a run failed. The other runs are finished, and the same call tries the
            failed runs again.
        KeyboardInterrupt: after Ctrl-C or SIGTERM. The interrupted runs have saved a checkpoint.

    Examples:
        >>> model = "sentence-transformers/all-MiniLM-L6-v2"
        >>> methods = ["ft", "denoise"]
        >>> comparison = opera.compare(
        ...     "example:faq", model=model, out="grid", methods=methods, seeds=[0], steps=[5]
        ... )
        >>> len(comparison.tables)
        1
    """
    sets = data if isinstance(data, list | tuple) else [data]
    more = additional_sources(also, encoding, skip_bad_rows)
    models: Sequence[Any] = model if isinstance(model, list | tuple) else [model]
    on_disk = all(isinstance(source, str | os.PathLike | TableSource) for source in (*sets, *more))
    if any(map(is_loaded, models)) or not on_disk:
        raise SettingError(
            "the runs of a grid are processes that read data and model from disk; write a table, "
            "such as frame.to_parquet('pairs.parquet'), or save the model with save_pretrained, "
            "and pass its path"
        )
    reading: dict[str, Any] = {"encoding": encoding, "skip_bad_rows": skip_bad_rows}
    strict = not reads_lists(settings)
    sources = [
        cast("DataName", named_source(source, columns=columns, **reading, strict=strict))
        for source in sets
    ]
    folder, paths = user_path(out, "--out"), [expand_user(path, "--model") for path in models]
    grid = prepare_grid(
        sources, folder, paths, settings, methods, seeds, steps, baseline, jobs, more, **reading
    )
    train_grid(grid)
    if grid.failed:
        raise TrainingError(*(f"{run}: {reason}" for run, reason in grid.failed.items()))
    measure_models(grid)
    return analyse_grid(grid)


def prepare_grid(
    data: Sequence[DataName],
    out: Path,
    models: Sequence[str],
    values: Mapping[str, Any],
    methods: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    baseline: str | None = None,
    jobs: int = 1,
    also: Sequence[DataName] = (),
    encoding: str | None = None,
    skip_bad_rows: bool = False,
) -> Grid:
    """Plan a grid, check it, and find the finished runs. Writes nothing.

    Every run trains on a data set of ``data`` together with those of ``also``. ``encoding`` and
    ``skip_bad_rows`` are those of lists of pairs. Only runs of an earlier call need torch.
    """
    jobs, values = whole_number(jobs, "--jobs", 1), with_full_names(values)
    if "metric_for_best_model" in values:
        parse_measures([str(values["metric_for_best_model"])])
    reading = {"encoding": encoding, "skip_bad_rows": skip_bad_rows} if reads_lists(values) else {}
    runs = plan_grid(data, models, out, values, methods, seeds, steps, reading, also)
    if baseline is not None:
        baseline = _checked_baseline(text(baseline, "baseline"), runs)
    _check_models(models, values)
    _check_out(out, runs)
    grid = Grid(out, runs, jobs, baseline)
    fingerprints: dict[str, str] = {}
    for source in data:
        loaded = load_all([source, *also], encoding, skip_bad_rows)
        check_stays_out(out, "--out", loaded)
        for data_set in loaded.data_sets:
            log_copies(data_set)
        for planned in (planned for planned in runs if planned.data == source):
            if _axes_of(planned) == _axes_of(runs[0]):
                prepare_data(loaded, make_recipe(planned.values))
            if (run := run_in(planned.folder)) is not None:
                _check_same(planned, run.record.identity, loaded, fingerprints)
    return grid


def _axes_of(planned: PlannedRun) -> tuple[Any, ...]:
    """The axes of a run that do not decide whether its data fit its method."""
    return planned.model, planned.seed, planned.steps


def _check_models(models: Sequence[str], values: Mapping[str, Any]) -> None:
    """Refuse models that do not exist, and warn of missing prompts: the runs warn in their logs."""
    if values.get("query_vectors") is not None:  # then --model is only a name for the vectors
        if len(models) > 1:
            raise SettingError("--model: names the vectors of --query-vectors; pass it once")
        return
    for model in models:
        folder = locate_model(model)
        if isinstance(folder, Path):
            prompts = (values.get(f"{role}_prompt") for role in ROLES)
            saved = json_values(folder / "config_sentence_transformers.json").get("prompts")
            warn_of_missing_prompts(saved or {}, model, *prompts)


def _checked_baseline(baseline: str, runs: Sequence[PlannedRun]) -> str:
    """Return the baseline's label; SettingError if it is not one of the methods."""
    label, labels = canonical_label(baseline), dict.fromkeys(run.label for run in runs)
    if label not in labels:
        known = ", ".join(labels)
        raise SettingError(f"--baseline {baseline}: must be one of the methods: {known}")
    return label


def _check_out(out: Path, runs: Sequence[PlannedRun]) -> None:
    """Refuse a folder that holds a run, or files that are not those of a grid."""
    check_folder(out, "--out")
    ours = {LOCK_FILE, *(planned.folder.relative_to(out).parts[0] for planned in runs)}
    others = {path.name for path in out.iterdir()} - ours if out.is_dir() else set()
    problem = "is a run" if run_in(out) is not None else None
    if others and not any(out.rglob(RUN_FILE)):
        problem = "is not empty and was not written by opera compare"
    if problem is not None:
        raise RunFolderError(f"--out {out}: {problem}; pass an empty or new folder")


def _check_same(
    planned: PlannedRun,
    recorded: Mapping[str, Any],
    data: Mixture,
    fingerprints: dict[str, str],
) -> None:
    """Refuse a run of an earlier call with another model, other settings, data or decisions.

    ``fingerprints`` has those of the models by their settings, so that OPERA loads a model once.
    """
    model = planned.model
    recipe = make_recipe(planned.values)
    settings, with_splits = recipe.train, prepare_data(data, recipe).with_splits
    names = (*EncodingSettings.model_fields, "query_vectors", "document_vectors")
    key = repr([model, data.joined.fingerprint, *(getattr(settings, name) for name in names)])
    if key not in fingerprints:
        from opera.training.prepare import load_and_check  # imports torch

        fingerprints[key] = load_and_check(data, model, recipe).model.encoder.fingerprint
    identity = run_identity(recipe, with_splits, fingerprints[key])
    refuse_other_run(str(planned.folder), recorded, identity, "pass another --out")


def estimate_seconds(grid: Grid) -> float:
    """Estimate the seconds of the runs that are not finished.

    One run of each data set, base model and number of steps is timed as by
    :func:`opera.run.adapt.foresee`.
    Runs at once count one after the other, because they share the cores.

    Raises:
        InputError: as :func:`opera.adapt`.
        TrainingError: if the timed steps fail.
    """
    alike: dict[tuple[DataName, str, int | None], list[PlannedRun]] = {}
    for run in grid.waiting:
        alike.setdefault((run.data, run.model, run.steps), []).append(run)
    return sum(
        len(runs) * foresee(**runs[0].call(), overwrite=True).seconds for runs in alike.values()
    )


def analyse_grid(grid: Grid) -> Comparison:
    """Analyse the runs in a grid's folder, including those of earlier calls.

    The analysis may label the baseline differently from this call. It has no baseline if all runs
    of the baseline failed.
    """
    folders = {run.folder for run in grid.runs if run.label == grid.baseline} & grid.done
    groups = group_runs(find_runs(grid.out)[0]) if folders else []
    labels = [group.method for group in groups if folders & {run.path for run in group.runs}]
    return analyse_runs(grid.out, labels[0] if labels else None)
