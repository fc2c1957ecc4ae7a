"""The report's pictures: a forest plot, and lines, each a static SVG that the template draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.intervals import points
from opera.core.terminal import shortened
from opera.experiments.analysis import (
    PRIMARY,
    RECALL,
    UNTRAINED,
    Group,
    PairedTest,
    ResultsTable,
)

COLOURS = {
    "ft": "#7d8590",
    "rp": "#b07a4a",
    "sp": "#e0662a",
    "sp+cbs": "#b98500",
    "infobatch": "#12a07a",
    "dp": "#2f86e0",
    "sp+dp": "#c25c9e",
    "denoise": "#7a5fd0",
}
"""By method; they can be told apart on white and on black."""
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 44
"""Margins of lines."""
ROW, LETTER, LONGEST = 26, 7.5, 32
"""Of a forest plot: the height of a row, the width of a letter, and how many a label has."""
LEGEND = 18
"""The height of two labels of a legend, side by side."""
MAX_TICKS = 6
BANDS = 20
"""Number of bands by similarity, with equally many pairs each."""
MOMENTS = {"at the start": 0.0, "halfway": 0.5, "at the end": 1.0}
WINDOW = 0.2
"""The share of the steps whose draws stand for a moment."""


@dataclass(frozen=True)
class Estimate:
    """A row of a forest plot.

    Attributes:
        method: its label, or ``untrained``.
        value: where its point lies.
        interval: the ends of its line; empty where there is none.
        shown: the value as text.
    """

    method: str
    value: float
    interval: tuple[float, ...]
    shown: str

    @property
    def label(self) -> str:
        """The method as it is shown."""
        return shortened(self.method, LONGEST)


@dataclass(frozen=True)
class Forest:
    """A forest plot: a row per method with its interval.

    Attributes:
        caption: what it shows.
        x_label: what x is.
        rows: from the top.
        reference: the value that intervals are compared with, a line down.
    """

    caption: str
    x_label: str
    rows: Sequence[Estimate]
    reference: float

    width, top, right = WIDTH, 8, WIDTH - 52

    @property
    def left(self) -> int:
        """Where the axis begins, right of the labels."""
        return round(24 + LETTER * max(len(row.label) for row in self.rows))

    @property
    def bottom(self) -> int:
        """Where the rows end."""
        return self.top + ROW * len(self.rows)

    @property
    def height(self) -> int:
        """The rows', the ticks' and the label's."""
        return self.bottom + BOTTOM

    @cached_property
    def x_ticks(self) -> list[float]:
        """Round numbers around all values and intervals."""
        ends = [end for row in self.rows for end in (row.value, *row.interval)]
        return nice_ticks([self.reference, *ends])

    def x_of(self, value: float) -> float:
        """The place of a value."""
        return _place(value, self.x_ticks, self.left, self.right)


@dataclass(frozen=True)
class Line:
    """A method's line.

    Attributes:
        method: its label.
        x: ascending.
        y: a value for each x.
        spread: ± at each point, or empty.
    """

    method: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()


@dataclass(frozen=True)
class Chart:
    """A chart, with the places of its values in the SVG.

    Attributes:
        caption: what it shows.
        x_label: what x is.
        y_label: what y is.
        lines: one per method.
        untrained: the untrained model's y, a line across.
    """

    caption: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    untrained: float | None = None

    width, left, right, bottom = WIDTH, LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM

    @property
    def height(self) -> int:
        """The lines' and the legend's."""
        return HEIGHT + LEGEND * ((len(self.lines) + 1) // 2)

    @cached_property
    def legend(self) -> list[tuple[Line, str, int, int]]:
        """Each line with its label and the place of that, two side by side."""
        return [
            (
                line,
                shortened(line.method, LONGEST),
                LEFT + (WIDTH - LEFT) // 2 * (number % 2),
                HEIGHT + LEGEND * (number // 2) + LEGEND // 2,
            )
            for number, line in enumerate(self.lines)
        ]

    @cached_property
    def x_ticks(self) -> list[float]:
        """The values of x if they are few, else round numbers around them."""
        values = sorted({value for line in self.lines for value in line.x})
        return values if len(values) <= MAX_TICKS else nice_ticks(values)

    @cached_property
    def y_ticks(self) -> list[float]:
        """Round numbers around the values of y and their spreads."""
        values = [] if self.untrained is None else [self.untrained]
        for line in self.lines:
            y, spread = np.array(line.y), np.array(line.spread or 0.0)
            values += [*(y - spread).tolist(), *(y + spread).tolist()]
        return nice_ticks(values)

    def x_of(self, value: float) -> float:
        """The place of a value of x; its ticks are equally far from each other."""
        return _place(value, self.x_ticks, LEFT, WIDTH - RIGHT)

    def y_of(self, value: float) -> float:
        """The place of a value of y."""
        return _place(value, self.y_ticks, HEIGHT - BOTTOM, TOP)

    def dash(self, line: Line) -> str:
        """The dashes of a line, by its place among those of its colour."""
        own = colour(line.method)
        alike = [other.method for other in self.lines if colour(other.method) == own]
        return DASHES[alike.index(line.method) % len(DASHES)]


def _place(value: float, ticks: Sequence[float], first: int, last: int) -> float:
    return round(float(np.interp(value, ticks, np.linspace(first, last, len(ticks)))), 1)


def colour(method: str) -> str:
    """Return the colour of a label, its method's."""
    return COLOURS.get(method.partition(":")[0], "#888888")


def nice_ticks(values: Sequence[float], intervals: int = 4) -> list[float]:
    """Round numbers at equal distances that enclose the values: 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    rough = max(high - low, 0.004) / intervals
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = int(np.floor(low / step + 1e-9)), int(np.ceil(high / step - 1e-9))
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def forest_plots(table: ResultsTable, baseline: str | None) -> list[Forest]:
    """Draw each method's quality beside the untrained model's, and its difference from the
    baseline."""
    untrained = table.untrained[PRIMARY]
    rows = [Estimate(UNTRAINED, untrained, (), f"{untrained:.3f}")]
    for row in table.rows:
        mean = row.measures[PRIMARY].mean
        rows.append(Estimate(row.method, mean, _ends(row.gain, mean, 1), f"{mean:.3f}"))
    of_all = " (corrected by Holm)" if len(table.rows) > 1 else ""
    after = f"after {table.steps:,} steps"
    caption = f"{PRIMARY} {after}, with the 95% interval{of_all} of its change by training"
    plots = [Forest(caption, PRIMARY, rows, untrained)]
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    if baseline is not None and tests:
        rows = [Estimate(baseline, 0, (), "0")]
        for method, test in tests.items():
            value = 100 * test.difference
            ends = _ends(test, value, 100)
            rows.append(Estimate(method, value, ends, points(test.difference)))
        caption = f"difference from {baseline} {after}, with its 95% interval, corrected by Holm"
        plots.append(Forest(caption, f"points of {PRIMARY}", rows, 0))
    return plots


def _ends(test: PairedTest | None, value: float, scale: int) -> tuple[float, ...]:
    """The ends of a difference's interval, moved to where its point lies."""
    if test is None:
        return ()
    return tuple(value + scale * (end - test.difference) for end in (test.low, test.high))


def steps_charts(groups: Sequence[Group], untrained: dict[str, float]) -> list[Chart]:
    """Draw quality by number of steps; nothing where all runs of a data set have the same."""
    if len({group.steps for group in groups}) < 2:
        return []
    by_method: dict[str, list[Group]] = {}
    for group in groups:
        by_method.setdefault(group.method, []).append(group)
    charts = []
    for measure in (PRIMARY, RECALL):
        lines = []
        for label, own in by_method.items():  # in ascending order of their steps
            values = [group.mean_std(measure) for group in own]
            means, spread = [v.mean for v in values], [v.std or 0.0 for v in values]
            lines.append(Line(label, [group.steps for group in own], means, spread))
        caption = (
            f"{measure} by number of steps, each point from its own runs; ± one standard deviation "
            "over the seeds"
        )
        charts.append(Chart(caption, "steps", measure, lines, untrained[measure]))
    return charts


def labels_chart(groups: Sequence[Group]) -> list[Chart]:
    """Draw the ranks at first visit of the first run, and the part of them that false pairs make
    up: a straight line, since theirs are uniform (Schweder and Spjøtvoll 1982).
    """
    found = groups[0].runs[0].record.false_pairs
    if found is None:
        return []
    ranks = groups[0].pair_tables[0]["first_rank"].drop_null().to_numpy()
    x = np.linspace(0, 1, 41)
    below = (np.searchsorted(np.sort(ranks), x, side="right") / len(ranks)).tolist()
    lines = [
        Line(groups[0].method, x.tolist(), below),
        Line("false pairs, above the true ones", (0, 1), (1 - found.share, 1)),
    ]
    share = "share of a batch's documents above the pair's, at first visit"
    return [Chart(found.sentence, share, "share of the pairs", lines)]


def drawn_by_similarity(groups: Sequence[Group]) -> dict[str, NDArray[np.float64]]:
    """How often the first seed of each group drew its pairs, by similarity (Figure 1).

    A run without similarities takes those of another run with the same pairs; where none has them,
    it is left out. By label, float64 ``[moments, bands]``: times as often as plain fine-tuning
    would (Equation 1), from the least similar pairs, in the fifth of the steps around each moment.
    """
    tables = [group.pair_tables[0] for group in groups]
    scored = [table for table in tables if "similarity" in table.column_names]
    ratios = {}
    for group, table in zip(groups, tables, strict=True):
        own = [table] if "similarity" in table.column_names else scored
        source = next((other for other in own if _same_pairs(other, table)), None)
        if source is None:
            continue
        ids = table["query_id"].to_numpy(zero_copy_only=False)
        query = np.cumsum(np.concatenate([[False], ids[1:] != ids[:-1]]))  # pairs are sorted by it
        counts = np.bincount(query)
        fair = 1 / (len(counts) * counts[query])
        order = np.argsort(source["similarity"].to_numpy(), kind="stable")
        bands = np.array_split(order, min(BANDS, len(order)))
        draws = group.runs[0].draws()
        step, pair = draws["step"].to_numpy(), draws["pair"].to_numpy()
        rows = []
        for moment in MOMENTS.values():
            start = moment * (1 - WINDOW) * step.max()
            window = pair[(step > start) & (step <= start + max(1, WINDOW * step.max()))]
            drawn = np.bincount(window, minlength=len(fair)) / len(window)
            rows.append([drawn[band].sum() / fair[band].sum() for band in bands])
        ratios[group.method] = np.array(rows)
    return ratios


def _same_pairs(other: pa.Table, table: pa.Table) -> bool:
    names = ["query_id", "doc_id"]
    return "doc_id" in table.column_names and other.select(names).equals(table.select(names))


def sampling_charts(groups: Sequence[Group]) -> list[Chart]:
    """Draw Figure 1 of the paper at the start, in the middle and at the end of training."""
    ratios = drawn_by_similarity(groups)
    charts = []
    for number, moment in enumerate(MOMENTS) if ratios else ():
        lines = []
        for label, by_moment in ratios.items():
            ratio = by_moment[number].tolist()
            percentiles = [100 * (band + 0.5) / len(ratio) for band in range(len(ratio))]
            lines.append(Line(label, percentiles, ratio))
        caption = f"how often pairs are drawn {moment}, relative to plain fine-tuning"
        charts.append(Chart(caption, "pairs by similarity, percentile", "× as often as ft", lines))
    return charts
