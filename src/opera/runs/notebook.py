"""A run as a notebook shows it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from opera.core.intervals import points
from opera.runs.changes import changes_on_test
from opera.runs.verdict import change_sentence, share_sentence, verdict_sentence

if TYPE_CHECKING:
    from opera.runs.folder import Run

SHOWN = ("nDCG@10", "R@20", "RR@10", "Success@10")


def run_html(run: Run) -> str:
    """Return the verdict, the table of measures and the noise line of a finished run as HTML."""
    per_query, measures, guard = run.per_query(), run.measures, run.record.guard
    if guard is None:
        before, after = (measures[when][SHOWN[0]] for when in ("before", "after"))
        lines = [f"{change_sentence(SHOWN[0], before, after, per_query.num_rows)}."]
    else:
        lines = [f"{verdict_sentence(guard)}.", f"{share_sentence(guard)}."]
    if (estimate := run.record.false_pairs) is not None:
        sentence = estimate.sentence
        lines.append(f"{sentence[0].upper()}{sentence[1:]}. opera.review(run) shows them.")
    changes = changes_on_test(per_query, SHOWN)
    rows = [("measure", "before", "after", "points", "95% interval")]
    for name in SHOWN:
        before, after = (measures[when][name] for when in ("before", "after"))
        values = (f"{before:.4f}", f"{after:.4f}", points(after - before))
        rows.append((name, *values, changes[name].interval_in_points()))
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    first, *others = map(escape, lines)
    text = "<br>".join([f"<b>{first}</b>", *others])
    return f"<p>{text}</p><table>{table}</table><p>{escape(str(run.path))}</p>"
