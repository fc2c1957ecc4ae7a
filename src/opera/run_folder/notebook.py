"""The display of a run in notebooks."""

from __future__ import annotations

from html import escape

from opera.core.figures import DEFAULT_MEASURES, in_points
from opera.run_folder.summary import RunSummary
from opera.run_folder.verdict import headlines, labels_sentence


def run_html(summary: RunSummary) -> str:
    """Return the verdict, the noise line and the table of measures as HTML."""
    lines = headlines(summary)
    if (estimate := summary.record.noisy_labels) is not None:
        lines.append(f"{labels_sentence(estimate)}. opera.review(run) shows them.")
    base, final = summary.measures["base"], summary.measures["final"]
    rows = [
        ("measure", "base", "final", "points", "95% interval"),
        *(
            (name, in_points(base[name]), in_points(final[name]), *summary.changes[name].cells())
            for name in DEFAULT_MEASURES
        ),
    ]
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    first, *rest = map(escape, lines)
    text = "<br>".join([f"<b>{first}</b>", *rest])
    return f"<p>{text}</p><table>{table}</table><p>{escape(str(summary.folder))}</p>"
