"""The verdict of a report: what was found, in a sentence, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

from opera.experiments.analysis import PRIMARY, Comparison, Group, PairedTest, Table, paired_test, shown_settings
from opera.experiments.analysis.significance import differences_from_before

LEVEL = 0.05
MOST_LISTED = 4
"""More methods than these are counted, not named."""


def verdict(comparison: Comparison) -> str:
    """One sentence over all data sets, each with its largest number of steps."""
    sentences = []
    for data in dict.fromkeys(table.data for table in comparison.tables):
        table = comparison.final(data)
        if comparison.baseline is None:
            sentences.append(_gain(table, _group(comparison.groups, table)))
        else:
            sentences.append(_against(table, comparison.baseline))
    noise = {name: value for name, value in comparison.shared.items() if name.startswith("noise")}
    text = f"{f'with false pairs put in ({shown_settings(noise)}), ' if noise else ''}{'; '.join(sentences)}"
    return f"{text[0].upper()}{text[1:]}."


def _against(table: Table, baseline: str) -> str:
    """Which methods are told from the baseline on one data set."""
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    where = f"on {table.name} after {table.steps:,} steps ({_seeds(table)})"
    if not tests:
        return f"{where} nothing can be compared with {baseline}: {_why_not(table, baseline)}"
    better = [label for label, test in tests.items() if test.difference > 0 and test.t_test_holm < LEVEL]
    worse = [label for label, test in tests.items() if test.difference < 0 and test.t_test_holm < LEVEL]
    best = max(tests, key=lambda label: tests[label].difference)
    lost = f"; {_listed(worse, len(tests))} {'are' if len(worse) > 1 else 'is'} worse" if worse else ""
    if better:
        others = [label for label in better if label != best]
        also = f", as {_listed(others, len(tests))} {'do' if len(others) > 1 else 'does'}" if others else ""
        return f"{where} {best} beats {baseline} by {told(tests[best], among=len(tests))}{also}{lost}{_over(table)}"
    name = f"{best}, the best of the {len(tests)} others," if len(tests) > 1 else best
    tied = f"{name} is at {told(tests[best], among=len(tests))}"
    return f"{where} no method is shown to beat {baseline}: {tied}{lost}{_over(table)}"


def _over(table: Table) -> str:
    """What the best method is worth beside the untrained model."""
    rows = [row for row in table.rows if row.gain is not None]
    if not rows:
        return ""
    best = max(rows, key=lambda row: row.measures[PRIMARY].mean)
    assert best.gain is not None
    if best.gain.difference > 0 and best.gain.t_test_holm < LEVEL:
        return f"; the untrained model is {points(best.gain.difference).lstrip('+')} points below {best.method}"
    return f"; no method is shown to beat the untrained model: {best.method} is at {told(best.gain, among=len(rows))}"


def _why_not(table: Table, baseline: str) -> str:
    """Why no method of a table is tested against the baseline."""
    labels = [row.method for row in table.rows]
    if baseline not in labels:
        return "it is not finished there"
    if len(labels) == 1:
        return "no other method is finished there"
    return "the others share fewer than two test queries and seeds with it"


def _gain(table: Table, group: Group) -> str:
    """What one method made of the pretrained model on one data set."""
    test = paired_test(differences_from_before(group, PRIMARY))
    moved = "raises" if test.difference >= 0 else "lowers"
    where = f"on {table.name} {table.steps:,} steps of {group.method} ({_seeds(table)})"
    value = table.rows[0].measures[PRIMARY].mean
    sure = "" if test.t_test < LEVEL else ", which these queries cannot tell from no change"
    return f"{where} {moved} {PRIMARY} from {table.untrained[PRIMARY]:.3f} to {value:.3f}: {told(test, '')}{sure}"


def told(test: PairedTest, of: str = f" of {PRIMARY}", among: int = 1) -> str:
    """A difference with its uncertainty: ``+1.4 points of nDCG@10 (95% interval +0.2 to +2.6, p = 0.03)``.

    Args:
        test: of the difference.
        of: what the points are of.
        among: how many methods were tested; more than one says that p, and not the interval, is corrected for that.
    """
    p = "p < 0.0001" if test.t_test_holm < 1e-4 else f"p = {test.t_test_holm:.2g}"
    interval = f"95% interval {points(test.low)} to {points(test.high)}"
    if among > 1:
        return f"{points(test.difference)} points{of} ({interval} by itself, {p} corrected for {among} methods)"
    return f"{points(test.difference)} points{of} ({interval}, {p})"


def points(value: float) -> str:
    """A difference in points, with its sign; none where it rounds to zero."""
    text = f"{100 * value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def _group(groups: Sequence[Group], table: Table) -> Group:
    return next(group for group in groups if (group.data, group.steps) == (table.data, table.steps))


def _seeds(table: Table) -> str:
    """How many seeds the methods had: ``3 seeds``, ``1 to 3 seeds``."""
    counts = sorted({len(row.seeds) for row in table.rows})
    spread = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{spread} seed{'' if counts[-1] == 1 else 's'}"


def _listed(names: Sequence[str], among: int) -> str:
    if len(names) > MOST_LISTED:
        return f"{len(names)} of the {among} others"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
