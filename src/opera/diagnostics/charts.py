"""Draw charts with matplotlib and write them to files; the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from opera.core.files import replace_file
from opera.diagnostics.theory import Point

FORMATS = (".svg", ".png", ".pdf")
COLOURS = {"sp": "#d55e00", "dp": "#0072b2"}
NAMES = {"sp": "SP", "dp": "DP"}


def write_theory_chart(
    path: Path, sweeps: Mapping[str, tuple[str, Sequence[Point]]], title: str
) -> None:
    """Draw the gain of pruning over fine-tuning, one panel per varied quantity.

    Lines are the closed form of Theorem 1. Dots with bars are the simulation with its standard error. Crosses are the
    mean over single queries, with variance.

    Args:
        path: file to write; the suffix (``.svg``, ``.png``, ``.pdf``) decides the format.
        sweeps: by field of ``World``: a label, and the points in order.
        title: title above the panels.
    """
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)  # no window shows it
    for axes, (name, (label, points)) in zip(
        figure.subplots(2, 2).flat, sweeps.items(), strict=True
    ):
        _draw_sweep(axes, name, label, points)
    figure.axes[0].legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    reproducible: dict[Any, Any] = {"svg.hashsalt": "opera", "savefig.dpi": 150}
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with matplotlib.rc_context(reproducible):
        replace_file(
            path, lambda part: figure.savefig(part, format=path.suffix[1:], metadata=metadata)
        )


def _draw_sweep(axes: Axes, name: str, label: str, points: Sequence[Point]) -> None:
    x = [
        1 - point.world.true_share if name == "noise" else getattr(point.world, name)
        for point in points
    ]
    axes.axhline(0, color="0.6", linewidth=1)
    for method, colour in COLOURS.items():
        closed = [p.closed_form[method].similarity - p.closed_form["ft"].similarity for p in points]
        simulated = [p.simulated[method].similarity - p.simulated["ft"].similarity for p in points]
        errors = [p.simulated[method].error for p in points]
        one_query = [p.simulated[method].one_query - p.simulated["ft"].one_query for p in points]
        title = NAMES[method]
        axes.plot(x, closed, color=colour, label=f"{title}, theorem")
        axes.errorbar(
            x,
            simulated,
            yerr=errors,
            fmt="o",
            markersize=4,
            color=colour,
            label=f"{title}, simulated",
        )
        axes.plot(x, one_query, "x", color=colour, label=f"{title}, one query at a time")
    axes.set_xlabel(label)
    axes.set_ylabel("gain in E over FT")
    axes.grid(alpha=0.3)
