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
from opera.diagnostics.simulation import Point

FORMATS = (".svg", ".png", ".pdf")
COLOURS = {"sp": "#d55e00", "dp": "#0072b2"}


def write_theory_chart(
    path: Path, sweeps: Mapping[str, tuple[str, Sequence[Point]]], title: str
) -> None:
    """Draw the gain of pruning over fine-tuning, one panel per varied quantity.

    Lines are the closed form of Theorem 1. Dots with bars are the simulation with its standard
    error.

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
    worlds = [point.world for point in points]
    x = [1 - world.true_share if name == "noise" else getattr(world, name) for world in worlds]
    axes.axhline(0, color="0.6", linewidth=1)
    for method, color in COLOURS.items():
        closed, simulated = (
            [way[method].similarity - way["ft"].similarity for way in ways]
            for ways in zip(*((p.closed_form, p.simulated) for p in points), strict=True)
        )
        errors, title = [p.simulated[method].error for p in points], method.upper()
        axes.plot(x, closed, color=color, label=f"{title}, theorem")
        dots: dict[str, Any] = {"fmt": "o", "markersize": 4, "label": f"{title}, simulated"}
        axes.errorbar(x, simulated, yerr=errors, color=color, **dots)
    axes.set(xlabel=label, ylabel="gain in E over FT")
    axes.grid(alpha=0.3)
