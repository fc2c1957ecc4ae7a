"""Which model to use on a data set, and the sentence that says so, with its interval."""

from __future__ import annotations

from opera.core.intervals import in_points, points
from opera.core.measure_names import PRIMARY
from opera.core.terminal import counted
from opera.experiments.analysis.results import BASE, ResultsTable
from opera.experiments.analysis.significance import PairedTest


def title(table: ResultsTable) -> str:
    """Data set, steps and seeds of a table."""
    counts = sorted(len(row.seeds) for row in table.rows)
    fewest = "" if counts[0] == counts[-1] else f"{counts[0]} to "
    return f"{table.name}: {table.trained}, {fewest}{counted(counts[-1], 'seed')}"


def recommended(table: ResultsTable, baseline: str | None) -> str:
    """Return the method to use, or ``base``.

    The first choice is a method that is significantly better than the base model and the baseline.
    The second is the baseline, if it is better than the base model. The third is any method that is
    better than the base model. Otherwise, or if the table lacks the baseline, keep the base model.
    """
    better = _better_than_base(table)
    if baseline is not None and baseline not in table.methods:
        return BASE
    winners = _better_than_baseline(table) or ({} if baseline in better else better)
    if winners:
        return max(winners, key=lambda method: winners[method].difference)
    return str(baseline) if baseline in better else BASE


def conclusion(table: ResultsTable, baseline: str | None) -> str:
    """Say which model to use, without the full stop; first of all whether BM25 beats every model.

    See :func:`recommended`.
    """
    best = max(table.base[PRIMARY], *(row.measures[PRIMARY].mean for row in table.rows))
    sentence = _model_to_use(table, baseline)
    if table.bm25 is None or table.bm25[PRIMARY] <= best:
        return sentence
    return (
        f"Keyword search (BM25) ranks better than every model: {PRIMARY} "
        f"{in_points(table.bm25[PRIMARY])} against {in_points(best)}. {sentence}"
    )


def _model_to_use(table: ResultsTable, baseline: str | None) -> str:
    gains = {row.method: row.gain for row in table.rows if row.gain is not None}
    if not gains:
        return "No conclusion: there are too few test queries"
    if baseline is None:
        (gain,) = gains.values()
        outcome = "Better" if gain.difference > 0 else "Worse"
        if not gain.significant:
            outcome = "No measurable difference"
        base, final = table.base[PRIMARY], table.rows[0].measures[PRIMARY].mean
        return (
            f"{outcome}: {PRIMARY} {in_points(base)} -> {in_points(final)} "
            f"({points(gain.difference)}, {_interval(gain)}) on "
            f"{counted(table.queries, 'test query')}"
        )
    if baseline not in table.methods:
        return f"No conclusion: {baseline} has no run with {table.trained}"
    method = recommended(table, baseline)
    if method == BASE:
        return "Keep the base model: no method is measurably better"
    if method == baseline:
        tests = (row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests)
        differ = any(test.significant for test in tests)
        why = "no other method is measurably better" if differ else "no measurable difference"
        return f"Keep {baseline}: {why}"
    winners, against = _better_than_baseline(table), baseline
    if method not in winners:
        winners, against = _better_than_base(table), "the base model"
    difference = f"{points(winners[method].difference)} points of {PRIMARY} over {against}"
    return f"Use {method}: {difference} ({_interval(winners[method])})"


def _better_than_base(table: ResultsTable) -> dict[str, PairedTest]:
    """The methods that are significantly better than the base model."""
    return {row.method: row.gain for row in table.rows if row.gain is not None and row.gain.better}


def _better_than_baseline(table: ResultsTable) -> dict[str, PairedTest]:
    """The methods that are significantly better than the base model and the baseline."""
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    better = _better_than_base(table)
    return {method: test for method, test in tests.items() if method in better and test.better}


def _interval(test: PairedTest) -> str:
    return f"95% interval {points(test.low)} to {points(test.high)}"
