"""The tables of ``opera compare``."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.cli.printing.results import interval_in_points, warn_of_few
from opera.core.intervals import points
from opera.experiments.analysis import (
    PAPERS,
    PRIMARY,
    RECALL,
    UNTRAINED,
    Comparison,
    MeanStd,
    PairedTest,
    ResultsTable,
    format_settings,
)
from opera.experiments.analysis.guard import format_verdicts
from opera.experiments.analysis.verdict import verdict
from opera.runs.guard_words import dev_sentence


def print_grid_results(screen: Console, comparison: Comparison) -> None:
    """Print a table per data set and number of steps, then convergence, ranks and the verdict."""
    if comparison.shared:
        screen.print(Text(f"all runs: {format_settings(comparison.shared)}", style="dim"))
    for table in comparison.tables:
        _print_table(screen, comparison, table)
    if comparison.baseline is not None:
        tests = f"p: {PRIMARY} against {comparison.baseline}, paired over the queries, Holm-corrected over the methods"
        screen.print(
            Text(f"{tests}; ?: not significantly different from the untrained model", style="dim")
        )
    _print_convergence(screen, comparison)
    for measure, ranks in comparison.ranks.items():
        listed = ", ".join(
            f"{label} {rank:.2f}" for label, rank in sorted(ranks.items(), key=lambda item: item[1])
        )
        screen.print(Text(f"average rank by {measure}: {listed}"))
    _print_verdict(screen, comparison)
    if comparison.missing:
        verb = "is" if comparison.missing == 1 else "are"
        message = (
            f"{comparison.missing} of the grid's {comparison.planned} cells {verb} not finished"
        )
        screen.print(Text(message, style="bold"))
    for reason, found in comparison.left_out.items():
        for run in found:
            screen.print(Text(f"left out, {reason}: {run}"))


def _print_table(screen: Console, comparison: Comparison, table: ResultsTable) -> None:
    title = f"\n{table.name}, {table.steps:,} steps, {table.queries:,} test queries"
    screen.print(Text(title, style="bold"))
    screen.print(_quality_table(table, comparison.baseline))
    warn_of_few(screen, table.queries)
    _print_guard(screen, table)
    if table is comparison.final(table.data):
        screen.print(_cost_table(table))


def _print_guard(screen: Console, results: ResultsTable) -> None:
    """Print what the guard chose for each method, and the fine-tuned models beside those handed over."""
    guarded = [(row, row.guard) for row in results.rows if row.guard is not None]
    if not guarded:
        return
    models = [
        f"{model}\n{measure}"
        for measure in (PRIMARY, RECALL)
        for model in ("fine-tuned", "handed over")
    ]
    table = _method_table(
        "λ by seed", "verdict on dev", *models, "points by\nthe guard", "p\nt-test"
    )
    for row, guard in guarded:
        test = guard.against_fine_tuned
        table.add_row(
            Text(row.method),
            " ".join(f"{share:g}" for share in guard.shares),
            format_verdicts(guard.verdicts),
            *(
                _format_mean_std(values[measure])
                for measure in (PRIMARY, RECALL)
                for values in (guard.fine_tuned, row.measures)
            ),
            *(("", "") if test is None else (points(test.difference), _format_p(test.t_test_holm))),
        )
    screen.print(table)
    for sentence in dict.fromkeys(dev_sentence(guard.typical) for _, guard in guarded):
        screen.print(Text(sentence, style="dim"))


def _print_convergence(screen: Console, comparison: Comparison) -> None:
    for convergence in comparison.convergence:
        if convergence.method == comparison.baseline:
            name = comparison.final(convergence.data).name
            best = f"{convergence.target:.3f}, at {convergence.baseline_steps:,} steps"
            screen.print(
                Text(f"\n{name}: {convergence.method} has its best {PRIMARY}, {best}; matched by")
            )
        elif convergence.steps is None:
            screen.print(Text(f"  {convergence.method}: never"))
        else:
            cost = f"{convergence.steps:,} steps, {convergence.seconds_ratio:.2f} × the time"
            screen.print(Text(f"  {convergence.method}: {cost}"))


def _print_verdict(screen: Console, comparison: Comparison) -> None:
    for table, conclusion in zip(comparison.final_tables(), verdict(comparison), strict=True):
        screen.print(Text(f"\n{conclusion.title}", style="bold"))
        for bullet in conclusion.bullets:
            screen.print(Text(f"- {bullet}"))
        best = table.best(PRIMARY)
        if best != UNTRAINED:
            screen.print(Text(f"- Model: {comparison.first_run(table, best).model_path}"))


def _quality_table(results: ResultsTable, baseline: str | None) -> Table:
    measures = (PRIMARY, PAPERS, RECALL)
    heads = [measure.replace("retrieved_ideal_", "retrieved-\nideal ") for measure in measures]
    tests = (f"points of\n{PRIMARY}", "95% interval", "p")
    table = _method_table("seeds", *heads, "vs un-\ntrained", *(tests if baseline else ()))
    table.add_row("untrained", "", *(f"{results.untrained[m]:.3f}" for m in measures))
    for row in results.rows:
        table.add_row(
            Text(row.method),
            str(len(row.seeds)),
            *(_format_mean_std(row.measures[m]) for m in measures),
            ""
            if row.gain is None
            else f"{points(row.gain.difference)}{'' if row.gain.significant else '?'}",
            *(("baseline",) if row.method == baseline else _format_test(row.tests.get(PRIMARY))),
        )
    return table


def _cost_table(results: ResultsTable) -> Table:
    noisy = any(row.noise for row in results.rows)
    table = _method_table(
        *(["false\ndraws"] if noisy else []), "ms per\nstep", "against\nbaseline", "training"
    )
    for row in results.rows:
        false = f"{row.noise['draws']:.1%}" if row.noise else ""
        table.add_row(
            Text(row.method),
            *([false] if noisy else []),
            f"{1000 * row.seconds_per_step:.0f}",
            "" if row.step_ratio is None else f"× {row.step_ratio:.2f}",
            f"{row.training_seconds:.0f} s",
        )
    return table


def _method_table(*columns: str) -> Table:
    """A table with a row per method, without the lines that widen one."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _format_test(test: PairedTest | None) -> tuple[str, ...]:
    if test is None:
        return ()
    return (
        points(test.difference),
        interval_in_points(test.low, test.high),
        _format_p(test.t_test_holm),
    )


def _format_p(value: float) -> str:
    return "<.0001" if value < 1e-4 else f"{value:.2g}"


def _format_mean_std(value: MeanStd) -> str:
    return f"{value.mean:.3f}" + (
        "" if value.std is None else f" ±{value.std:.3f}".replace("±0.", "±.")
    )
