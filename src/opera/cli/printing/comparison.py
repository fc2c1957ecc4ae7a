"""The tables of ``opera compare``."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opera.experiments.analysis import (
    PAPERS,
    PRIMARY,
    RECALL,
    UNTRAINED,
    Comparison,
    PairedTest,
    Spread,
    shown_settings,
)
from opera.experiments.analysis import Table as ComparisonTable


def print_comparison(screen: Console, comparison: Comparison) -> None:
    """Print a table for each data set and number of steps, then what the methods' convergence and ranks are."""
    if comparison.shared:
        screen.print(Text(f"all runs: {shown_settings(comparison.shared)}", style="dim"))
    for part in comparison.tables:
        title = f"\n{part.name}, {part.steps:,} steps, {part.queries:,} test queries"
        screen.print(Text(title, style="bold"))
        screen.print(_quality_table(part, comparison.baseline))
        if part is comparison.final(part.data):
            screen.print(_cost_table(part))
        if part.disagree:
            told = "; by ".join(f"{measure}: {label}" for measure, label in part.winners.items())
            screen.print(Text(f"the two nDCGs name different winners: by {told}"))
    if comparison.baseline is not None:
        screen.print(
            Text(
                f"p: {PRIMARY} against {comparison.baseline}, paired over the queries, Holm-corrected over the "
                "methods; ?: not told from the untrained model",
                style="dim",
            )
        )
    for race in comparison.races:
        if race.method == comparison.baseline:
            reached = f"{race.target:.3f}, at {race.baseline_steps:,} steps"
            best = f"{comparison.final(race.data).name}: {race.method}'s best {PRIMARY}, {reached}"
            screen.print(Text(f"\n{best}; first as good:"))
        elif race.steps is None:
            screen.print(Text(f"  {race.method}: never"))
        else:
            screen.print(Text(f"  {race.method}: {race.steps:,} steps, {race.seconds_ratio:.2f} of the time"))
    for measure, ranks in comparison.ranks.items():
        listed = ", ".join(f"{label} {rank:.2f}" for label, rank in sorted(ranks.items(), key=lambda item: item[1]))
        screen.print(Text(f"average rank by {measure}: {listed}"))
    for data in dict.fromkeys(part.data for part in comparison.tables):
        part = comparison.final(data)
        best = part.best(PRIMARY)
        if best == UNTRAINED:
            screen.print(Text(f"{part.name}: no method is above the untrained model in {PRIMARY}: keep it"))
            continue
        run = next(g for g in comparison.groups if (g.data, g.method, g.steps) == (data, best, part.steps)).runs[0]
        screen.print(Text(f"{part.name}: {best} has the highest {PRIMARY}; a model of it: {run.model_path}"))
    if comparison.missing:
        screen.print(
            Text(f"{comparison.missing} of the grid's {comparison.planned} cells are not finished", style="bold")
        )
    if comparison.unfinished:
        screen.print(Text(f"left out, unfinished: {', '.join(map(str, comparison.unfinished))}"))


def _quality_table(part: ComparisonTable, baseline: str | None) -> Table:
    measures = (PRIMARY, PAPERS, RECALL)
    shown = [measure.replace("retrieved_ideal_", "retrieved-\nideal ") for measure in measures]
    tests = (f"points of\n{PRIMARY}", "95% interval", "p\nt-test", "p\nrandom.")
    table = _plain_table("seeds", *shown, "over un-\ntrained", *(tests if baseline else ()))
    table.add_row("untrained", "", *(f"{part.untrained[m]:.3f}" for m in measures))
    for row in part.rows:
        table.add_row(
            Text(row.method),
            str(len(row.seeds)),
            *(_mean_and_spread(row.measures[m]) for m in measures),
            "" if row.gain is None else f"{100 * row.gain.difference:+.1f}{'' if row.gain.t_test_holm < 0.05 else '?'}",
            *(("baseline",) if row.method == baseline else _tested(row.tests.get(PRIMARY))),
        )
    return table


def _cost_table(part: ComparisonTable) -> Table:
    noisy = any(row.coverage.noise_draws is not None for row in part.rows)
    shares = ("queries\ndrawn", "effective\nqueries", "pairs\ndrawn", "effective\npairs")
    table = _plain_table(*shares, *(["false\ndraws"] if noisy else []), "ms a\nstep", "against\nbaseline", "training")
    for row in part.rows:
        drawn = row.coverage
        parts = (drawn.queries, drawn.effective_queries, drawn.pairs, drawn.effective_pairs)
        false = "" if drawn.noise_draws is None else f"{drawn.noise_draws:.1%}"
        table.add_row(
            Text(row.method),
            *(f"{share:.0%}" for share in parts),
            *([false] if noisy else []),
            f"{1000 * row.seconds_a_step:.0f}",
            "" if row.step_ratio is None else f"× {row.step_ratio:.2f}",
            f"{row.training_seconds:.0f} s",
        )
    return table


def _plain_table(*columns: str) -> Table:
    """A table of methods, without the lines that make one wide."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _tested(test: PairedTest | None) -> tuple[str, ...]:
    if test is None:
        return ()
    interval = f"{100 * test.low:+.1f} to {100 * test.high:+.1f}"
    return f"{100 * test.difference:+.1f}", interval, *map(_p_value, (test.t_test_holm, test.randomisation_holm))


def _p_value(value: float) -> str:
    return "<.0001" if value < 1e-4 else f"{value:.2g}"


def _mean_and_spread(spread: Spread) -> str:
    return f"{spread.mean:.3f}" + ("" if spread.deviation is None else f" ±{spread.deviation:.3f}".replace("±0.", "±."))
