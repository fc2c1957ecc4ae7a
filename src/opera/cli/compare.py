"""``opera compare``, ``opera report`` and ``opera review``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opera.cli.options import (
    MODELS,
    AlsoOption,
    Bm25Option,
    ConfigOption,
    EncodingOption,
    JsonOption,
    OverwriteOption,
    Screen,
    SetOption,
    SkipOption,
    TableOptions,
    TrainerOption,
    collect_values,
    interruptible,
    numbers,
    parser_of,
    path_option,
    show,
    source_option,
    with_options,
)
from opera.cli.train import NO_GAIN, print_labels, print_next
from opera.config.training import FLAGS
from opera.core.arguments import user_path
from opera.core.figures import few_queries
from opera.core.progress import duration
from opera.core.terminal import counted, json_text, say, shown_path

if TYPE_CHECKING:
    from opera.experiments.grid import Grid
    from opera.experiments.results import Comparison

BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", help="method to compare with; default: ft, or the first method"),
]


@with_options(*(name for name in FLAGS if name not in ("max_steps", "seed")))
def compare(
    *,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="data sets, one after the other, as for opera train", metavar="DATA..."
        ),
    ] = None,
    also: AlsoOption = None,
    model: Annotated[
        list[str], source_option("--model", f"{MODELS}; repeatable, to compare base models")
    ],
    out: Annotated[Path, path_option("--out", "grid folder to write")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="methods, separated by commas, with settings after colons: ft,sp:k=0.5,dp; "
            "default: the recipe's, or ft,denoise",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="seeds, separated by commas; default: the recipe's, or 0,1,2"),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            help="numbers of optimizer steps, separated by commas; default: the recipe's, or "
            "chosen from the data",
        ),
    ] = None,
    baseline: BaselineOption = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many runs to train at once")] = 1,
    bm25: Bm25Option = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="exit with status 3 if a method is measurably worse than its base model on test",
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the runs and estimate their time, then exit")
    ] = False,
    tables: TableOptions,
    as_json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train every combination of base model, method, seed and number of steps on one or more data
    sets, and compare the models and methods.

    Finished runs are not repeated. The settings of opera train apply to all runs.
    """
    from opera.config.training import reads_lists
    from opera.data.loading import additional_sources
    from opera.experiments.compare import analyse_grid, prepare_grid

    fixed = {"method": methods, "seed": seeds, "max_steps": steps, "bm25": bm25, **settings}
    values = collect_values(config, set_, trainer, **fixed)
    strict = not reads_lists(values)
    grid = prepare_grid(
        [tables.source(name, strict=strict) for name in data or (None,)],
        out,
        model,
        values,
        methods,
        numbers("seeds", seeds),
        numbers("steps", steps, "100,1000"),
        baseline,
        jobs,
        additional_sources(also or (), **tables.reading),
        **tables.reading,
    )
    if plan:
        _show_plan(grid, as_json)
        return
    _train(grid)
    if grid.done:
        comparison = analyse_grid(grid)
        show(as_json, comparison.as_dict, partial(print_results, comparison=comparison, out=out))
    if grid.failed:
        raise typer.Exit(1)
    if fail_if_worse and comparison.worse:
        raise typer.Exit(NO_GAIN)


def _show_plan(grid: Grid, as_json: bool) -> None:
    """Print the runs of a grid, and estimate their time."""
    from opera.experiments.compare import estimate_seconds

    with interruptible(lambda: "nothing was written"):
        seconds = estimate_seconds(grid)
    show(as_json, partial(grid.plan, seconds), partial(print_plan, grid=grid, seconds=seconds))


def _train(grid: Grid) -> None:
    """Train the runs of a grid that are not finished, and say which runs are done."""
    from opera.experiments.encoding_time import measure_models
    from opera.experiments.grid import train_grid

    runs = counted(len(grid.runs), "run")
    if not grid.waiting:
        say(f"all {runs} are already done", file=sys.stderr)
    advice = "the same command continues where it stopped"
    with interruptible(lambda: f"{len(grid.done)} of {runs} done; {advice}"):
        train_grid(grid)
        measure_models(grid)
    if grid.failed:
        say(
            f"{counted(len(grid.failed), 'run')} failed, see above; the same command tries again",
            file=sys.stderr,
        )


def report(
    folder: Annotated[
        list[Path],
        typer.Argument(
            help="a grid, a run, or any folder of runs; or several runs, to compare each with the "
            "first",
            metavar="GRID|RUN...",
            parser=parser_of(user_path, "GRID|RUN"),
        ),
    ],
    out: Annotated[
        Path | None,
        path_option("--out", "file to write; default: report.html in the folder, or the last run"),
    ] = None,
    overwrite: OverwriteOption = False,
    baseline: BaselineOption = None,
    decisions: Annotated[
        list[Path] | None,
        path_option(
            "--decisions",
            "decisions about test labels, from opera review RUN --split test: the report adds "
            "the measures with corrected labels; repeatable",
        ),
    ] = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="exit with status 3 if the last run is measurably worse than the first; in one "
            "folder, if a method is worse than its base model",
        ),
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="print the analysis as JSON instead of writing a page")
    ] = False,
) -> None:
    """Write an HTML page about a run or a grid: verdict, measures with significance tests, queries
    that changed. Or say which of several runs is better on the same test queries.
    """
    from opera.data.mixture import ListOptions
    from opera.experiments.report import analyse, write_report

    options, files = ListOptions.checked(encoding, skip_bad_rows), decisions or []
    if json_:
        analysis = analyse(folder, baseline, files, options)
        say(json_text(analysis.as_dict()))
    else:
        path, analysis = write_report(folder, out, baseline, files, options, overwrite)
        for sentence in analysis.sentences:
            say(f"{sentence}.")
        say(f"{shown_path(path)}: open it in a browser (self-contained)")
    if fail_if_worse and analysis.worse:
        raise typer.Exit(NO_GAIN)


def print_plan(screen: Screen, grid: Grid, seconds: float) -> None:
    """Print a row per run, and how long the runs take that are not finished."""
    rows = []
    for run in grid.runs:
        steps = "auto" if run.steps is None else f"{run.steps:,}"
        state = "done" if run.folder in grid.done else "to train"
        rows.append((*run.names, run.label, steps, str(run.seed), state))
    names = ("data", "model")[: len(grid.runs[0].names)]
    screen.table((*names, "method", "steps", "seed", "state"), rows, words=len(names) + 1)
    time_left = f"; the rest takes about {duration(seconds)}" if grid.waiting else ""
    screen.lines(f"{len(grid.done)} of {counted(len(grid.runs), 'run')} done{time_left}")


def print_results(screen: Screen, comparison: Comparison, out: Path) -> None:
    """Print tables by data set, base model and number of steps, convergence, ranks, and the
    verdict on base models and methods.
    """
    from opera.experiments.groups import format_settings
    from opera.experiments.results import BASE
    from opera.experiments.tables import base_models_table, ranks_table, tables_of
    from opera.experiments.verdict import conclusion, convergence_lines, title

    if comparison.shared:
        screen.lines(f"all runs: {format_settings(comparison.shared)}", style="dim")
    for results in comparison.tables:
        screen.heading(f"\n{results.name}, {results.trained}, {results.tested}")
        for table in tables_of(comparison, results):
            screen.report_table(table)
        screen.lines(few_queries(results.queries))
    screen.lines(*convergence_lines(comparison))
    if (ranks := ranks_table(comparison)) is not None:
        screen.report_table(ranks)
    for models in comparison.base_models:
        screen.report_table(base_models_table(models))
        screen.heading(f"\n{models.name}: {models.conclusion}.")
    model_to_use = {models.data: models.recommended.model for models in comparison.base_models}
    for results in comparison.final_tables():
        screen.heading(f"\n{title(results)}\n{conclusion(results, comparison.baseline)}.")
        screen.lines(*results.warnings)
        method = results.recommended(comparison.baseline)
        run = comparison.group(results, method).runs[0]
        screen.lines(f"Model: {run.model_path}" if method != BASE else None)
        print_labels(screen, run)
        if model_to_use.get(results.data, results.model) == results.model:
            run_to_use = run
    screen.lines(*(f"left out: {run}" for run in comparison.left_out))
    print_next(screen, run_to_use, out)


def review(
    run: Annotated[
        Path,
        typer.Argument(help="a finished run", metavar="RUN", parser=parser_of(user_path, "RUN")),
    ],
    out: Annotated[
        Path | None,
        path_option(
            "--out",
            "file to write: .html, or .csv for a table with an empty column decision; default: "
            "review.html in the run",
        ),
    ] = None,
    items: Annotated[int, typer.Option("--items", help="maximum number of items")] = 200,
    split: Annotated[
        str,
        typer.Option(
            "--split", help="train; or test, to correct the labels that the run was measured with"
        ),
    ] = "train",
    clean: Annotated[
        Path | None,
        path_option(
            "--clean",
            "write the data of the run without the pairs that --decisions calls wrong, instead of "
            "a page: a file, or a folder for several files",
        ),
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        path_option(
            "--decisions",
            "decisions for --clean; default: those that the run trained with; repeatable",
        ),
    ] = None,
    with_missing: Annotated[
        bool, typer.Option("--with-missing", help="--clean adds a row for each missing pair")
    ] = False,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            help="a model that suggests decisions: a cross-encoder's folder or hub id, or "
            "openai:MODEL at OPENAI_BASE_URL, which gets the texts",
        ),
    ] = None,
    judge_pairs: Annotated[
        int, typer.Option("--judge-pairs", help="maximum number of pairs to judge")
    ] = 500,
    judge_thresholds: Annotated[
        str | None,
        typer.Option(
            "--judge-thresholds",
            help="scores up to LOW mean wrong, from HIGH correct; auto: from the pairs that "
            "training trusts most and least",
            metavar="LOW:HIGH",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="send texts to openai:MODEL without a question")
    ] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page to review labels that look wrong, missing labels, and test queries that changed.
    The page opens from disk and saves your decisions. Or write the data without wrong pairs.
    """
    from opera.diagnostics.review import next_step
    from opera.diagnostics.review import review as write_review
    from opera.run_folder.folder import Run

    file = write_review(
        run,
        out,
        items=items,
        split=split,
        clean=clean,
        decisions=decisions or (),
        with_missing=with_missing,
        judge=judge,
        judge_pairs=judge_pairs,
        judge_thresholds=judge_thresholds,
        yes=yes,
        overwrite=overwrite,
    )
    if clean is not None:
        show(as_json, lambda: {"file": str(file)}, lambda screen: screen.lines(str(file)))
        return
    is_table = file.suffix == ".csv"
    step = next_step(Run.open(run), split, str(file) if is_table else None)
    advice = (
        "fill the column decision with wrong or correct"
        if is_table
        else f"open it in a browser, decide, and save the decisions as {step.file}"
    )

    def print_next_step(screen: Screen) -> None:
        screen.lines(f"{shown_path(file)}: {advice}; then")
        screen.commands(step.command)

    values: dict[str, Any] = {"file": str(file), "next": advice, "command": step.command}
    if (record := Run.open(run).judge(split)) is not None:
        values["judge"] = {"name": record.judge, **record.counts()}
    show(as_json, lambda: values, print_next_step)
