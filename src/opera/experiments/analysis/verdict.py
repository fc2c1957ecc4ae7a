"""The verdict on a data set: a conclusion and a few bullets, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opera.config.trainer import PRIMARY
from opera.core.intervals import points
from opera.core.terminal import counted
from opera.experiments.analysis.results import BASE, Comparison, ResultsTable
from opera.experiments.analysis.significance import PairedTest
from opera.runs.verdict import mixture

MAX_LISTED = 4
"""A longer list of methods is replaced by their number."""
VERDICTS = {"better": "better", "same": "gain not significant", "kept": "base model kept"}
"""The guard's verdicts in words."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one data set.

    Attributes:
        title: data set, steps and seeds.
        conclusion: which model to use, in one sentence without the full stop.
        bullets: the best method, the tests against the baseline and the base model, and the
            guard's choices.
    """

    title: str
    conclusion: str
    bullets: list[str]


def verdict(comparison: Comparison) -> list[Verdict]:
    """Return a verdict for each data set, for its largest number of steps."""
    return [
        Verdict(
            _title(table),
            _conclusion(table, comparison.baseline),
            _bullets(table, comparison.baseline),
        )
        for table in comparison.final_tables()
    ]


def format_difference(test: PairedTest, methods: int = 1) -> str:
    """Format a difference: ``+1.4 points of nDCG@10 (95% interval +0.2 to +2.6; p = 0.03)``.

    For several methods, it states that p and interval are corrected.
    """
    p = "p < 0.0001" if test.t_test_holm < 1e-4 else f"p = {test.t_test_holm:.2g}"
    if methods > 1:
        p = f"{p}, both corrected for {methods} methods"
    return f"{points(test.difference)} points of {PRIMARY} ({_interval(test)}; {p})"


def _title(table: ResultsTable) -> str:
    counts = sorted(len(row.seeds) for row in table.rows)
    fewest = "" if counts[0] == counts[-1] else f"{counts[0]} to "
    return f"{table.name}: {counted(table.steps, 'step')}, {fewest}{counted(counts[-1], 'seed')}"


def _conclusion(table: ResultsTable, baseline: str | None) -> str:
    """The sentence that says which model to use.

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
            f"{outcome}: {PRIMARY} {100 * base:.1f} -> {100 * final:.1f} "
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


def _bullets(table: ResultsTable, baseline: str | None) -> list[str]:
    gains = {row.method: row.gain for row in table.rows if row.gain is not None}
    not_tested = "not tested, as a test needs two test queries with scores of the base model"
    bullets = [_change(table) if baseline is None else _best(table)]
    if baseline is not None:
        tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
        impossible = (
            "no comparison is possible, as no other method shares a seed and two test queries "
            f"with {baseline}"
        )
        bullets.append(f"Against {baseline}: {_summary(tests) if tests else impossible}")
    bullets.append(f"Against the base model: {_summary(gains) if gains else not_tested}")
    return bullets + _guard(table)


def _best(table: ResultsTable) -> str:
    """The method with the highest mean, or the base model."""
    row = table.best_row(PRIMARY)
    value = f"{row.measures[PRIMARY]:.3f}"
    if table.best(PRIMARY) == BASE:
        base = f"{PRIMARY} {table.base[PRIMARY]:.3f}"
        return f"Best method: none, keep the base model ({base}; {row.method}: {value})"
    return f"Best method by mean {PRIMARY}: {row.method}, {value}"


def _change(table: ResultsTable) -> str:
    """The change by a single method."""
    (row,) = table.rows
    base, final = table.base[PRIMARY], row.measures[PRIMARY]
    if f"{final.mean:.3f}" == f"{base:.3f}":
        return f"{row.method} leaves {PRIMARY} at {final:.3f}"
    verb = "raises" if final.mean > base else "lowers"
    return f"{row.method} {verb} {PRIMARY} from {base:.3f} to {final:.3f}"


def _guard(table: ResultsTable) -> list[str]:
    """The guard's choices, their effect, and warnings; empty without a guard."""
    guards = {row.method: row.guard for row in table.rows if row.guard is not None}
    if not guards:
        return []
    weights = [weight for guard in guards.values() for weight in guard.mixing_weights]
    low, high = min(weights), max(weights)
    outcome = "; ".join(sentence for guard in guards.values() for sentence in guard.sentences)
    if len(weights) > 1:
        verdicts = [verdict for guard in guards.values() for verdict in guard.verdicts]
        counts = {words: verdicts.count(name) for name, words in VERDICTS.items()}
        summary = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        outcome = f"verdicts of {len(weights)} runs on dev: {summary}"
    final = mixture(low)
    if low < high:
        final = f"from {100 * low:g}% to {100 * high:g}% fine-tuned weights"
    bullet = f"Guard: {outcome[0].lower()}{outcome[1:]}; final model: {final}"
    tests = {m: guard.against_fine_tuned for m, guard in guards.items() if guard.against_fine_tuned}
    if tests and low < 1:
        bullet += f"; against the fine-tuned model: {_summary(tests)}"
    warnings = dict.fromkeys(warning for guard in guards.values() for warning in guard.warnings)
    return [bullet, *(warning[0].upper() + warning[1:] for warning in warnings)]


def _summary(tests: Mapping[str, PairedTest]) -> str:
    """The methods that are significantly better or worse, with the largest difference."""
    ordered = sorted(tests, key=lambda label: -tests[label].difference)
    different = [label for label in ordered if tests[label].significant]
    better = [label for label in different if tests[label].difference > 0]
    worse = [label for label in different if tests[label].difference < 0]
    first, *more = better or ordered
    difference = format_difference(tests[first], len(tests))
    if len(tests) == 1:
        outcome = "not significantly different"
        if different:
            outcome = f"significantly {'better' if better else 'worse'}"
        return f"{first} is {outcome}: {difference}"
    text = f"no method is significantly better; the best of {len(tests)}, {first}, has "
    if better:
        text = f"{first} is significantly better: "
    lists = {"also significantly better": more if better else [], "significantly worse": worse}
    suffixes = (
        f"; {words}: {_listed(labels, len(tests))}" for words, labels in lists.items() if labels
    )
    return text + difference + "".join(suffixes)


def _listed(labels: Sequence[str], methods: int) -> str:
    if len(labels) > MAX_LISTED:
        return f"{len(labels)} of {methods} methods"
    return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))
