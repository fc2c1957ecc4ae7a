"""Which model to use on a data set, in one sentence with its interval."""

from __future__ import annotations

from opera.core.intervals import in_points, points
from opera.core.measure_names import PRIMARY
from opera.core.terminal import counted
from opera.experiments.analysis.results import ResultsTable
from opera.experiments.analysis.significance import PairedTest


def title(table: ResultsTable) -> str:
    """Data set, steps and seeds of a table."""
    counts = sorted(len(row.seeds) for row in table.rows)
    fewest = "" if counts[0] == counts[-1] else f"{counts[0]} to "
    return f"{table.name}: {counted(table.steps, 'step')}, {fewest}{counted(counts[-1], 'seed')}"


def conclusion(table: ResultsTable, baseline: str | None) -> str:
    """The sentence that says which model to use, without the full stop.

    It recommends a method that is significantly better than the base model and the baseline. If
    there is none, it recommends the baseline, provided that it is better than the base model.
    """
    gains = {row.method: row.gain for row in table.rows if row.gain is not None}
    if not gains:
        return "No conclusion: there are too few test queries"
    better = [method for method, test in gains.items() if _is_better(test)]
    if baseline is None:
        (method,) = gains
        outcome = "Better" if better else "Worse"
        if not gains[method].significant:
            outcome = "No measurable difference"
        base, final = table.base[PRIMARY], table.rows[0].measures[PRIMARY].mean
        return (
            f"{outcome}: {PRIMARY} {in_points(base)} -> {in_points(final)} "
            f"({points(gains[method].difference)}, {_interval(gains[method])}) on "
            f"{counted(table.queries, 'test query')}"
        )
    if not better:
        return "Keep the base model: no method is measurably better"
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    winners = {method: tests[method] for method in better if _is_better(tests.get(method))}
    against = baseline
    if not winners and baseline in better:
        if any(test.significant for test in tests.values()):
            return f"Keep {baseline}: no other method is measurably better"
        return f"Keep {baseline}: no measurable difference"
    if not winners:
        winners, against = {method: gains[method] for method in better}, "the base model"
    best = max(winners, key=lambda method: winners[method].difference)
    difference = f"{points(winners[best].difference)} points of {PRIMARY} over {against}"
    return f"Use {best}: {difference} ({_interval(winners[best])})"


def _is_better(test: PairedTest | None) -> bool:
    return test is not None and test.significant and test.difference > 0


def _interval(test: PairedTest) -> str:
    return f"95% interval {points(test.low)} to {points(test.high)}"
