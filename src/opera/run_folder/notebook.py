"""The display of a run in notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from opera.core.intervals import in_points, points
from opera.core.measure_names import DEFAULT_MEASURES
from opera.run_folder.verdict import changes_on_test, headlines

if TYPE_CHECKING:
    from opera.run_folder.folder import Run


def run_html(run: Run) -> str:
    """Return the verdict, the table of measures and the noise line of a finished run as HTML."""
    lines = headlines(run)
    if (estimate := run.record.noisy_labels) is not None:
        sentence = estimate.sentence
        lines.append(f"{sentence[0].upper()}{sentence[1:]}. opera.review(run) shows them.")
    rows = [("measure", "base", "final", "points", "95% interval")]
    for name, change in changes_on_test(run.per_query(), DEFAULT_MEASURES).items():
        base, final = (in_points(run.measures[when][name]) for when in ("base", "final"))
        rows.append((name, base, final, points(change.difference), change.interval_in_points()))
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    first, *rest = map(escape, lines)
    text = "<br>".join([f"<b>{first}</b>", *rest])
    return f"<p>{text}</p><table>{table}</table><p>{escape(str(run.path))}</p>"
