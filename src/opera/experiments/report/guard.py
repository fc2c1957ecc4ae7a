"""The report's chart of the guard: the measure on dev by λ, as points of a static SVG and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from opera.experiments.analysis import GuardResult, ResultsTable

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 116, 14, 44
"""Margins; the right one holds the names of the lines."""
LABEL_HEIGHT = 15
MAX_NAMED = 12
"""Above this number of lines they are not named: the table beside the chart has them all."""
MAX_CHARACTERS = 16


@dataclass(frozen=True)
class Curve:
    """The dev curve of a method's first seed, in the chart's coordinates.

    Attributes:
        method: its label.
        name: the label, cut to the margin.
        points: x and y of each share tried.
        chosen: x and y of the λ chosen.
        name_y: where the name goes.
        share: the λ chosen.
        means: mean of the measure on dev by share.
    """

    method: str
    name: str
    points: tuple[tuple[float, float], ...]
    chosen: tuple[float, float]
    name_y: float
    share: float
    means: dict[float, float]


@dataclass(frozen=True)
class GuardChart:
    """What the template draws.

    Attributes:
        measure: the measure on dev.
        shares: every share tried, ascending.
        curves: a line per method.
        x_ticks: x and label.
        y_ticks: y and label.
    """

    measure: str
    shares: tuple[float, ...]
    curves: tuple[Curve, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]

    width, height, left, right, bottom = WIDTH, HEIGHT, LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM

    @property
    def named(self) -> bool:
        """Whether the lines have room for their names."""
        return len(self.curves) <= MAX_NAMED


def guard_chart(table: ResultsTable) -> GuardChart | None:
    """Lay out the dev curves of the methods' first seeds; ``None`` without a guard.

    Methods that chose by another measure than the first are left out.
    """
    guards = {row.method: row.guard for row in table.rows if row.guard is not None}
    if not guards:
        return None
    measure = next(iter(guards.values())).measure
    curves = {label: dict(guard.curves[0]) for label, guard in guards.items() if guard.measure == measure}
    ticks = nice_ticks([mean for curve in curves.values() for mean in curve.values()])
    low, high = ticks[0], ticks[-1]
    places = {
        label: {share: (_x(share), _y(mean, low, high)) for share, mean in curve.items()}
        for label, curve in curves.items()
    }
    heights = spread([points[max(points)][1] for points in places.values()])
    return GuardChart(
        measure=measure,
        shares=tuple(sorted({share for curve in curves.values() for share in curve})),
        curves=tuple(
            _curve(label, guards[label], points, height)
            for (label, points), height in zip(places.items(), heights, strict=True)
        ),
        x_ticks=tuple((_x(share), f"{share:g}") for share in (0, 0.25, 0.5, 0.75, 1)),
        y_ticks=tuple((_y(tick, low, high), _tick_label(tick, ticks)) for tick in ticks),
    )


def nice_ticks(values: Sequence[float], intervals: int = 4) -> list[float]:
    """Round numbers at equal distances that enclose the values: steps of 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    rough = max(high - low, 0.004) / intervals
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = int(np.floor(low / step + 1e-9)), int(np.ceil(high / step - 1e-9))
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def spread(heights: Sequence[float], distance: float = LABEL_HEIGHT) -> list[float]:
    """Move heights down, and then up from the bottom edge, until neighbours are ``distance`` apart."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    moved = list(heights)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + distance)
    lowest = float(HEIGHT - BOTTOM)
    for index in reversed(order):
        moved[index] = min(moved[index], lowest)
        lowest = moved[index] - distance
    return [round(height, 1) for height in moved]


def _curve(label: str, guard: GuardResult, points: dict[float, tuple[float, float]], name_y: float) -> Curve:
    share = guard.shares[0]
    return Curve(
        method=label,
        name=label if len(label) <= MAX_CHARACTERS else f"{label[: MAX_CHARACTERS - 1]}…",
        points=tuple(points.values()),
        chosen=points[share],
        name_y=name_y,
        share=share,
        means=dict(guard.curves[0]),
    )


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(mean: float, low: float, high: float) -> float:
    return round(TOP + (high - mean) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)


def _tick_label(tick: float, ticks: Sequence[float]) -> str:
    return f"{tick:.3f}" if ticks[1] - ticks[0] < 0.01 else f"{tick:.2f}"
