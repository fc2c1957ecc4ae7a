"""``opera compare``, ``opera report`` on what it ran, and what grids print of their cells."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opera.cli.options import (
    ColumnsOption,
    ConfigOption,
    DocumentsOption,
    EncodingOption,
    JsonOption,
    ModelOption,
    OverwriteOption,
    PairsOption,
    QueriesOption,
    SetOption,
    SkipOption,
    TrainerOption,
    collect_values,
    grid_exit_status,
    how_to_continue,
    interruptible,
    listed,
    numbers,
    one_source,
    parser_of,
    path_option,
    setting_option,
    show,
)
from opera.cli.results import print_labels, print_next
from opera.cli.screen import Screen
from opera.core.intervals import few_queries
from opera.core.paths import user_path
from opera.core.terminal import counted, json_text, place, say

if TYPE_CHECKING:
    from opera.experiments.analysis import Comparison
    from opera.experiments.grid.plan import PlannedRun
    from opera.experiments.grid.run import Status
    from opera.experiments.report.tables import ReportTable


BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", help="the method to test against; default ft, else the first"),
]


def compare(
    *,
    data: Annotated[
        list[str] | None, typer.Argument(help="data sets, as for opera train", metavar="DATA...")
    ] = None,
    model: ModelOption,
    out: Annotated[Path, path_option("--out", "folder of the grid")],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="comma-separated, settings after colons: ft,sp:k=0.5,dp; default the recipe's, "
            "else ft,denoise",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="comma-separated; default the recipe's, else 0,1,2"),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            help="numbers of optimizer steps, comma-separated; default the recipe's, else set "
            "from the data",
        ),
    ] = None,
    baseline: BaselineOption = None,
    jobs: Annotated[int, typer.Option("--jobs", help="how many cells to run at once")] = 1,
    epochs: Annotated[str | None, setting_option("epochs")] = None,
    learning_rate: Annotated[str | None, setting_option("learning_rate")] = None,
    matryoshka: Annotated[str | None, setting_option("matryoshka")] = None,
    teacher_scores: Annotated[str | None, setting_option("teacher_scores")] = None,
    decisions: Annotated[list[str] | None, setting_option("decisions")] = None,
    per_device_train_batch_size: Annotated[
        str | None, setting_option("per_device_train_batch_size")
    ] = None,
    adapter: Annotated[str | None, setting_option("adapter")] = None,
    query_vectors: Annotated[str | None, setting_option("query_vectors")] = None,
    document_vectors: Annotated[str | None, setting_option("document_vectors")] = None,
    lora: Annotated[str | None, setting_option("lora")] = None,
    negatives: Annotated[str | None, setting_option("negatives")] = None,
    range: Annotated[str | None, setting_option("range")] = None,
    mix: Annotated[str | None, setting_option("mix")] = None,
    expected_documents: Annotated[str | None, setting_option("expected_documents")] = None,
    set_: SetOption = None,
    trainer: TrainerOption = None,
    config: ConfigOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="print the cells, then exit")] = False,
    pairs: PairsOption = None,
    documents: DocumentsOption = None,
    queries: QueriesOption = None,
    columns: ColumnsOption = None,
    encoding: EncodingOption = None,
    skip_bad_rows: SkipOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train methods x seeds x steps on one or more data sets and compare them.

    Finished cells are not repeated. Takes the settings of opera train, for all cells.
    """
    from opera.experiments.grid.compare import (
        analyse_grid,
        check_baseline,
        grid_record,
        opened_grid,
        prepare_grid,
    )
    from opera.experiments.grid.plan import grid_axes
    from opera.experiments.grid.run import run_grid

    axes, shared = grid_axes(
        collect_values(
            config,
            set_,
            trainer,
            method=methods,
            seed=seeds,
            max_steps=steps,
            epochs=epochs,
            learning_rate=learning_rate,
            matryoshka=matryoshka,
            teacher_scores=teacher_scores,
            decisions=decisions or None,
            per_device_train_batch_size=per_device_train_batch_size,
            adapter=adapter,
            query_vectors=query_vectors,
            document_vectors=document_vectors,
            lora=lora,
            negatives=negatives,
            range=range,
            mix=mix,
            expected_documents=expected_documents,
        ),
        None if methods is None else listed(methods),
        numbers("seeds", seeds),
        numbers("steps", steps, "100,1000"),
    )
    table_options = (pairs, documents, queries, columns, encoding, skip_bad_rows)
    sources = [one_source(name, *table_options) for name in data or (None,)]
    status = prepare_grid(sources, axes, out, model, shared, jobs)
    baseline = check_baseline(baseline, axes)
    if plan:
        show(as_json, status.plan, partial(print_plan, status=status))
        return
    if not status.waiting:
        say(f"all {len(status.runs)} runs are already done", file=sys.stderr)
    stoppable = interruptible(lambda: how_to_continue(status))
    with opened_grid(out, grid_record(out, model, shared, status.runs)), stoppable:
        run_grid(status, model)
    failed = grid_exit_status(status)
    if not status.done:
        raise typer.Exit(failed)
    comparison = analyse_grid(status, out, baseline)
    show(as_json, comparison.as_dict, partial(print_results, comparison=comparison, out=out))
    if failed:
        raise typer.Exit(failed)


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            help="a grid, a run, or any folder of runs",
            metavar="GRID|RUN",
            parser=parser_of(user_path, "GRID|RUN"),
        ),
    ],
    out: Annotated[
        Path | None, path_option("--out", "file to write; default report.html in the folder")
    ] = None,
    overwrite: OverwriteOption = False,
    baseline: BaselineOption = None,
    decisions: Annotated[
        list[Path] | None,
        path_option(
            "--decisions",
            "decisions about test labels, which opera review RUN --split test makes: adds the "
            "figures with the corrected labels; repeatable",
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="print the analysis as JSON, and write no page")
    ] = False,
) -> None:
    """Write one HTML page on a run or a grid: verdict, figures with tests, queries that changed."""
    from opera.experiments.analysis import analyse_runs, find_groups
    from opera.experiments.analysis.corrected import correct_test
    from opera.experiments.report import report as write_report
    from opera.experiments.report.tables import corrected_table

    if json_:
        say(json_text(analyse_runs(folder, baseline, decisions or ()).as_dict()))
        return
    path = write_report(
        folder, out, baseline=baseline, decisions=decisions or (), overwrite=overwrite
    )
    if decisions:
        screen, corrected = Screen(), correct_test(find_groups(folder), decisions)
        screen.heading(f"{corrected.sentence}.")
        _print_table(screen, corrected_table(corrected))
    say(f"{place(path)}: open it in a browser (self-contained)")


def print_plan(screen: Screen, status: Status) -> None:
    """Print a row per data set, method and number of steps."""
    kinds: dict[tuple[str, str, int | None], list[PlannedRun]] = {}
    for planned in status.runs:
        kinds.setdefault((planned.data, planned.label, planned.steps), []).append(planned)
    rows = []
    for (_, label, steps), runs in kinds.items():
        waiting = sum(planned.folder not in status.done for planned in runs)
        seeds = ", ".join(str(planned.seed) for planned in runs)
        many = "auto" if steps is None else f"{steps:,}"
        rows.append((runs[0].data_name, label, many, seeds, str(waiting)))
    screen.table(("data", "method", "steps", "seeds", "to run"), rows, words=2)
    screen.lines(f"{len(status.done)} of {counted(len(status.runs), 'run')} done")


def print_results(screen: Screen, comparison: Comparison, out: Path) -> None:
    """Print the tables per data set and number of steps, convergence, ranks and the verdict."""
    from opera.experiments.analysis import BASE, PRIMARY, format_settings
    from opera.experiments.analysis.verdict import verdict
    from opera.experiments.report.tables import ranks_table, tables_of

    if comparison.shared:
        screen.lines(f"all runs: {format_settings(comparison.shared)}", style="dim")
    for results in comparison.tables:
        screen.heading(f"\n{results.name}, {results.steps:,} steps, {results.tested}")
        for table in tables_of(comparison, results):
            _print_table(screen, table)
        screen.lines(few_queries(results.queries))
    screen.lines(*_convergence(comparison))
    if (ranks := ranks_table(comparison)) is not None:
        _print_table(screen, ranks)
    for results, conclusion in zip(comparison.final_tables(), verdict(comparison), strict=True):
        screen.heading(f"\n{conclusion.title}\n{conclusion.conclusion}.")
        screen.lines(*(f"- {bullet}" for bullet in conclusion.bullets))
        best = results.best(PRIMARY)
        run = comparison.first_run(results, results.rows[0].method if best == BASE else best)
        screen.lines(f"- Model: {run.model_path}" if best != BASE else None)
        print_labels(screen, run, compared=True)
    if comparison.missing:
        cells = f"{comparison.missing} of the grid's {comparison.planned} cells"
        screen.heading(f"{cells} {'is' if comparison.missing == 1 else 'are'} not finished")
    for reason, runs in comparison.left_out.items():
        screen.lines(*(f"left out, {reason}: {run}" for run in runs))
    print_next(screen, run, out)


def _print_table(screen: Screen, table: ReportTable) -> None:
    """Print a table without the lines that widen it."""
    from rich import box

    screen.lines(table.caption, style="dim")
    screen.table(
        list(table.columns),
        [[table.shown(row, name) for name in table.columns] for row in table.rows],
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _convergence(comparison: Comparison) -> list[str]:
    """Say when each method first matches the baseline's best; the baseline's line comes first."""
    from opera.experiments.analysis import PRIMARY

    lines = []
    for row in comparison.convergence:
        text = (
            "  {0.method}: never"
            if row.steps is None
            else ("  {0.method}: {0.steps:,} steps, {0.seconds_ratio:.2f} × the time")
        )
        if row.method == comparison.baseline:
            best = "{0.target:.3f}, at {0.baseline_steps:,} steps; matched by"
            text = (
                f"\n{comparison.final(row.data).name}: {{0.method}} has its best {PRIMARY}, {best}"
            )
        lines.append(text.format(row))
    return lines
