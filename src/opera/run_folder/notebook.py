"""The display of a run in notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from opera.core.intervals import in_points, points
from opera.run_folder.record import RunRecord
from opera.run_folder.verdict import Change


def run_html(
    path: Path,
    record: RunRecord,
    headlines: Sequence[str],
    measures: Mapping[str, Mapping[str, float]],
    changes: Mapping[str, Change],
) -> str:
    """Return the verdict, the table of measures and the noise line of a finished run as HTML."""
    lines = list(headlines)
    if (estimate := record.noisy_labels) is not None:
        sentence = estimate.sentence
        lines.append(f"{sentence[0].upper()}{sentence[1:]}. opera.review(run) shows them.")
    rows = [("measure", "base", "final", "points", "95% interval")]
    for name, change in changes.items():
        base, final = (in_points(measures[model][name]) for model in ("base", "final"))
        rows.append((name, base, final, points(change.difference), change.interval_in_points()))
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    first, *rest = map(escape, lines)
    text = "<br>".join([f"<b>{first}</b>", *rest])
    return f"<p>{text}</p><table>{table}</table><p>{escape(str(path))}</p>"
