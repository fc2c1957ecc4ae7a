"""Which model to use on a data set, the sentence that says so, and when a method matches the
baseline.
"""

from __future__ import annotations

from collections.abc import Iterator

from opera.core.figures import PRIMARY, in_points, points
from opera.core.terminal import counted
from opera.experiments.results import Comparison, ResultsTable
from opera.experiments.significance import PairedTest


def title(table: ResultsTable) -> str:
    """Data set, steps and seeds of a table."""
    counts = sorted(len(row.seeds) for row in table.rows)
    fewest = "" if counts[0] == counts[-1] else f"{counts[0]} to "
    return f"{table.name}: {table.trained}, {fewest}{counted(counts[-1], 'seed')}"


def conclusion(table: ResultsTable, baseline: str | None) -> str:
    """Say whether a model is better than the base model, which one to use, and whether the method
    matters, without the last full stop. If BM25 beats every model, that comes first.

    See :meth:`ResultsTable.recommended`.
    """
    best = max(table.base[PRIMARY], *(row.measures[PRIMARY].mean for row in table.rows))
    sentences = [_gains(table), _model_to_use(table, baseline)]
    if table.bm25 is not None and table.bm25[PRIMARY] > best:
        sentences.insert(
            0,
            f"Keyword search (BM25) ranks better than every model: {PRIMARY} "
            f"{in_points(table.bm25[PRIMARY])} against {in_points(best)}",
        )
    return ". ".join(filter(None, sentences))


def _gains(table: ResultsTable) -> str | None:
    """Say which methods are better than the base model; ``None`` for a single method."""
    tested = {row.method: row.gain for row in table.rows if row.gain is not None}
    better = {method: gain for method, gain in tested.items() if gain.better}
    if len(table.rows) < 2 or not tested:
        return None
    if not better:
        return "No model is measurably better than the base model"
    gains = [
        f"{method} by {points(gain.difference).removeprefix('+')}"
        for method, gain in better.items()
    ]
    models = "Every model is" if len(better) == len(table.rows) else "Some models are"
    return f"{models} better than the base model: {', '.join(gains)} points of {PRIMARY}"


def _model_to_use(table: ResultsTable, baseline: str | None) -> str:
    if all(row.gain is None for row in table.rows):
        return "No conclusion: there are too few test queries"
    if baseline is None:
        return _change_of_single_method(table)
    if baseline not in table.methods:
        return f"No conclusion: {baseline} has no run with {table.trained}"
    method, test, against = table.winner(baseline)
    if test is None:
        return "Keep the base model"
    if method == baseline:
        tests = (row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests)
        differ = any(test.significant for test in tests)
        why = "no other is measurably better" if differ else "the method makes no difference here"
        return f"Use {method}: {why}"
    difference = f"{points(test.difference)} points of {PRIMARY} over {against}"
    return f"Use {method}: {difference} ({_interval(test)})"


def _change_of_single_method(table: ResultsTable) -> str:
    (row,), base = table.rows, table.base[PRIMARY]
    assert row.gain is not None
    outcome = "Better" if row.gain.difference > 0 else "Worse"
    if not row.gain.significant:
        outcome = "No measurable difference"
    return (
        f"{outcome}: {PRIMARY} {in_points(base)} -> {in_points(row.measures[PRIMARY].mean)} "
        f"({points(row.gain.difference)}, {_interval(row.gain)}) on "
        f"{counted(table.queries, 'test query')}"
    )


def _interval(test: PairedTest) -> str:
    return f"95% interval {test.interval_in_points}"


def convergence_lines(comparison: Comparison) -> Iterator[str]:
    """Say at how many steps each method first matches the baseline's best mean over the seeds.

    Each data set and base model has a line about the baseline, then a line per method. Training
    times are medians over the seeds. Tables with a single number of steps, or without the baseline,
    are omitted.
    """
    for final in comparison.final_tables():
        groups = [group for group in comparison.groups if group.block == final.block]
        by_steps = sorted(groups, key=lambda group: group.steps)
        reference = [group for group in by_steps if group.method == comparison.baseline]
        if not reference or len({group.steps for group in by_steps}) < 2:
            continue
        best = max(reference, key=lambda group: group.mean_std(PRIMARY).mean)
        target = best.mean_std(PRIMARY).mean
        yield (
            f"\n{final.name}: {best.method} has its best {PRIMARY}, {in_points(target)}, at "
            f"{best.steps:,} steps; matched by"
        )
        reached = [group for group in by_steps if group.mean_std(PRIMARY).mean >= target]
        for method in dict.fromkeys(group.method for group in by_steps):
            group = next((group for group in reached if group.method == method), None)
            if group is None:
                yield f"  {method}: never"
            elif method != best.method:
                ratio = group.training_seconds / best.training_seconds
                yield f"  {method}: {group.steps:,} steps, {ratio:.2f} × the time"
