"""The report's charts as files, drawn by matplotlib from the numbers of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from opera.core.figures import new_figure
from opera.experiments.analysis import PRIMARY, Comparison
from opera.experiments.report.table_files import table_name

COLOURS = {
    "ft": "#6b7280",
    "rp": "#a16a3c",
    "sp": "#d1540a",
    "sp+cbs": "#b98500",
    "infobatch": "#0a8f68",
    "dp": "#0b62c4",
    "sp+dp": "#b04a8c",
}
"""Of the page, in its light colours (``assets/core.js``)."""
DASHES = ("-", "--", ":", "-.")
SIZE = (6.4, 4.2)


def chart_files(comparison: Comparison, document: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    """Yield the name of each chart's file, without a suffix, and the chart.

    Args:
        comparison: the results.
        document: what the page draws, from :func:`opera.experiments.report.document.collect_document`.
    """
    for data in document["data"]:
        final = comparison.final(data["source"])

        def chart(kind: str, x: str, y: str) -> tuple[str, Figure, Axes]:
            figure = new_figure(*SIZE)
            axes = figure.add_subplot()
            axes.set_title(_plain(f"{data['name']}: {kind}"), fontsize=10)  # noqa: B023
            axes.set_xlabel(x)
            axes.set_ylabel(_plain(y))
            axes.grid(alpha=0.3)
            return table_name(kind.replace(" ", "-"), comparison, final), figure, axes  # noqa: B023

        curves = data["curves"]
        for kind, key, label in (("quality by steps", "steps", "steps"), ("quality by time", "seconds", "seconds")):
            name, figure, axes = chart(kind, label, PRIMARY)
            for method, points in curves.items():
                x, y = [point[key] for point in points], [point["mean"][PRIMARY] for point in points]
                axes.errorbar(x, y, yerr=[p["std"][PRIMARY] for p in points], marker="o", **_line(method, curves))
            axes.axhline(data["untrained"][PRIMARY], color="0.5", linewidth=1, linestyle=":", label="untrained")
            yield name, _with_legend(figure, axes)
        name, figure, axes = chart("training loss", "step", "loss")
        for method, found in data["losses"].items():
            axes.plot(
                found["steps"], [float("nan") if v is None else v for v in found["loss"]], **_line(method, curves)
            )
        yield name, _with_legend(figure, axes)
        if data["evaluations"]:
            measure = next(iter(data["evaluations"].values()))["measure"]
            name, figure, axes = chart("dev during training", "step", measure)
            for method, found in data["evaluations"].items():
                axes.plot(found["steps"], found["values"], **_line(method, curves))
            yield name, _with_legend(figure, axes)
        guards = {row.method: row.guard for row in final.rows if row.guard is not None}
        if guards:
            name, figure, axes = chart("guard", "share of the fine-tuned weights", next(iter(guards.values())).measure)
            for method, guard in guards.items():
                axes.plot(*zip(*guard.curves[0], strict=True), marker=".", **_line(method, curves))
            yield name, _with_legend(figure, axes)


def _line(method: str, curves: Mapping[str, Any]) -> dict[str, Any]:
    """Colour by the method, dashes by its place among those of its family."""
    family = [label for label in curves if label.partition(":")[0] == method.partition(":")[0]]
    place = family.index(method) if method in family else 0
    colour = COLOURS.get(method.partition(":")[0], "#444444")
    return {"label": _plain(method), "color": colour, "linestyle": DASHES[place % len(DASHES)]}


def _with_legend(figure: Figure, axes: Axes) -> Figure:
    axes.legend(fontsize=8, frameon=False)
    return figure


def _plain(text: str) -> str:
    """Keep matplotlib from reading formulas in names."""
    return text.replace("$", r"\$").removeprefix("_")
