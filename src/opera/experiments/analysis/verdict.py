"""The verdict on each data set: a few bullets with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opera.config.trainer import PRIMARY
from opera.core.intervals import points
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.analysis.labels import format_settings
from opera.experiments.analysis.results import UNTRAINED, Comparison, ResultsTable
from opera.experiments.analysis.significance import PairedTest

MAX_LISTED = 4
"""Above this number methods are counted, not named."""
VERDICTS = {"better": "better", "same": "not distinguishable", "kept": "untrained model kept"}
"""The guard's verdicts, as a count of runs reads."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one data set.

    Attributes:
        title: data set, steps and seeds, and the noise injected into the training pairs.
        bullets: the best method, the methods against the baseline, and against the untrained model;
            what the guard chose, for runs with one.
    """

    title: str
    bullets: tuple[str, ...]


def verdict(comparison: Comparison) -> list[Verdict]:
    """Return a verdict for each data set, on its largest number of steps."""
    noise = {name: value for name, value in comparison.shared.items() if name.startswith("noise")}
    return [
        Verdict(_title(table, noise), _bullets(table, comparison.baseline))
        for table in comparison.final_tables()
    ]


def format_difference(test: PairedTest, methods: int = 1) -> str:
    """Format a difference: ``+1.4 points of nDCG@10 (95% interval +0.2 to +2.6; p = 0.03)``.

    With more than one method tested, it says that p and interval are corrected.
    """
    p = "p < 0.0001" if test.t_test_holm < 1e-4 else f"p = {test.t_test_holm:.2g}"
    interval = f"95% interval {points(test.low)} to {points(test.high)}"
    if methods > 1:
        p = f"{p}, both corrected for {methods} methods"
    return f"{points(test.difference)} points of {PRIMARY} ({interval}; {p})"


def _title(table: ResultsTable, noise: Mapping[str, object]) -> str:
    fewest, most = (pick(len(row.seeds) for row in table.rows) for pick in (min, max))
    seeds = f"{most if fewest == most else f'{fewest} to {most}'} seed{'' if most == 1 else 's'}"
    injected = f", with injected false pairs ({format_settings(noise)})" if noise else ""
    return f"{table.name}: {table.steps:,} steps, {seeds}{injected}"


def _bullets(table: ResultsTable, baseline: str | None) -> tuple[str, ...]:
    gains = {row.method: row.gain for row in table.rows if row.gain is not None}
    not_tested = "not tested, which needs two test queries measured before training"
    against_untrained = f"Against the untrained model: {_summary(gains) if gains else not_tested}"
    guard = _guard(table)
    if baseline is None:
        return _change(table), against_untrained, *guard
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    nothing = (
        "no comparison is possible: no other method has two test queries and a seed in common with "
        f"{baseline}"
    )
    against_baseline = _summary(tests) if tests else nothing
    return _best(table), f"Against {baseline}: {against_baseline}", against_untrained, *guard


def _best(table: ResultsTable) -> str:
    """The method with the highest mean, or the untrained model."""
    row = table.best_row(PRIMARY)
    value = _mean_std(row.measures[PRIMARY])
    if table.best(PRIMARY) == UNTRAINED:
        untrained = f"{PRIMARY} {table.untrained[PRIMARY]:.3f}"
        return f"Best method: none, keep the untrained model ({untrained}; {row.method}: {value})"
    return f"Best method by mean {PRIMARY}: {row.method}, {value}"


def _change(table: ResultsTable) -> str:
    """What a single method made of the untrained model."""
    (row,) = table.rows
    before, after = table.untrained[PRIMARY], row.measures[PRIMARY]
    verb = "raises" if after.mean >= before else "lowers"
    return f"{row.method} {verb} {PRIMARY} from {before:.3f} to {_mean_std(after)}"


def _guard(table: ResultsTable) -> tuple[str, ...]:
    """What the guard handed over, what that changed, and reasons for doubt; none without it."""
    guards = {row.method: row.guard for row in table.rows if row.guard is not None}
    if not guards:
        return ()
    shares = [share for guard in guards.values() for share in guard.shares]
    verdicts = [verdict for guard in guards.values() for verdict in guard.verdicts]
    low, high = min(shares), max(shares)
    share = f"= {low:g}" if low == high else f"from {low:g} to {high:g}"
    if len(shares) == 1:
        (only,) = guards.values()
        sentences = [f"Guard: {only.sentences[0]}; λ {share}"]
    else:
        counts = {words: verdicts.count(name) for name, words in VERDICTS.items()}
        found = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        sentences = [f"Guard: verdicts of {len(shares)} runs on dev: {found}; λ {share}"]
    against = {label: guard.against_fine_tuned for label, guard in guards.items()}
    tests = {label: test for label, test in against.items() if test is not None}
    if tests and low < 1:
        sentences.append(f"handed over against fine-tuned (λ = 1): {_summary(tests)}")
    warnings = dict.fromkeys(warning for guard in guards.values() for warning in guard.warnings)
    return "; ".join(sentences), *(warning[0].upper() + warning[1:] for warning in warnings)


def _summary(tests: Mapping[str, PairedTest]) -> str:
    """Which methods are significantly better or worse, with the largest difference."""
    label = max(tests, key=lambda label: tests[label].difference)
    if len(tests) == 1:
        sign = "better" if tests[label].difference > 0 else "worse"
        outcome = f"significantly {sign}"
        if not tests[label].significant:
            outcome = "not significantly different"
        return f"{label} is {outcome}: {format_difference(tests[label])}"
    different = [name for name, test in tests.items() if test.significant]
    better = [name for name in different if tests[name].difference > 0]
    worse = [name for name in different if tests[name].difference < 0]
    if better:
        label = max(better, key=lambda name: tests[name].difference)
        better.remove(label)
        text = f"{label} is significantly better: "
    else:
        text = f"no method is significantly better; the best of {len(tests)}, {label}, has "
    text += format_difference(tests[label], len(tests))
    text += f"; also significantly better: {_listed(better, len(tests))}" if better else ""
    return text + (f"; significantly worse: {_listed(worse, len(tests))}" if worse else "")


def _listed(labels: Sequence[str], methods: int) -> str:
    if len(labels) > MAX_LISTED:
        return f"{len(labels)} of {methods} methods"
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _mean_std(value: MeanStd) -> str:
    return f"{value.mean:.3f}" + ("" if value.std is None else f" ± {value.std:.3f}")
