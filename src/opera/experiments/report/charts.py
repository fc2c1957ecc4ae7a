"""The charts of the report, as SVG by matplotlib; the same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from opera.core.intervals import EQUAL, points
from opera.core.measure_names import PRIMARY, RECALL, column
from opera.core.terminal import shortened
from opera.experiments.analysis import (
    BASE,
    Group,
    PairedTest,
    ResultsTable,
)
from opera.run_folder.folder import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
"""Colours by method, distinct on white and on black."""
GAINED, LOST = "#12a07a", "#e0662a"
DASHES = ("-", "--", ":", "-.")
INK, LINES = "#7b838e", "#8a919b55"
"""Colours of text and grid lines, for white and black backgrounds."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # keeps text as text
    "svg.hashsalt": "opera",
    "text.parse_math": False,  # labels from runs may hold $
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": LINES,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINES,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
}
WIDTH, HEIGHT, ROW, LONGEST = 5.0, 3.0, 0.34, 32
"""Width and height of a picture and height of a row, in inches; maximum characters of a label."""
MAX_TICKS, MAX_POINTS = 6, 20
"""With more values of x, ticks are round numbers, and points have no markers."""
BANDS = 20
"""Number of bands of pairs by similarity, and of bars of the histogram of ranks."""
PARTS = 40
"""Maximum number of points of a learning curve."""
MOMENTS = {"at the start": 0.0, "halfway": 0.5, "at the end": 1.0}
WINDOW = 0.2
"""The fraction of the steps that the figures of a moment cover."""


@dataclass(frozen=True)
class Picture:
    """An SVG with its caption."""

    caption: str
    svg: Markup


@dataclass(frozen=True)
class Line:
    """A method's line: its label, the points, and ± for each point or empty."""

    method: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()


@dataclass(frozen=True)
class Estimate:
    """A row of a forest plot: a value, the test whose interval it shows, and its text."""

    method: str
    value: float
    test: PairedTest | None
    shown: str


def _picture(caption: str, height: float, draw: Callable[[Axes], None]) -> Picture:
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", STYLE]):  # ignores the user's matplotlibrc
        figure, text = Figure((WIDTH, height), layout="constrained"), StringIO()
        draw(axes := figure.add_subplot())
        for artist in axes.findobj():
            artist.set_clip_on(False)  # clip paths would need url() references
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return Picture(caption, Markup(svg[svg.index("<svg") :]))


def forest(caption: str, label: str, rows: Sequence[Estimate], reference: float) -> Picture:
    """Draw a row per method with its interval, and a vertical line at the reference."""

    def draw(axes: Axes) -> None:
        axes.axvline(reference, color=INK, linestyle=":")
        for number, row in enumerate(rows):
            ends, shade = _ends(row), colour(row.method)
            axes.plot(ends, [number] * len(ends), color=shade, linewidth=2)
            axes.plot(row.value, number, "o", color=shade)
        names = [f"{shortened(row.method, LONGEST)}   {row.shown}" for row in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)

    return _picture(caption, 0.7 + ROW * len(rows), draw)


def chart(
    caption: str,
    x_label: str,
    y_label: str,
    lines: Sequence[Line],
    base: float | None = None,
) -> Picture:
    """Draw a line per method, a horizontal line for the base model, and a legend."""

    def draw(axes: Axes) -> None:
        if base is not None:
            axes.axhline(base, color=INK, linestyle=":", label=BASE)
        for line in lines:
            shade = colour(line.method)
            same_colour = [line.method for line in lines if colour(line.method) == shade]
            axes.errorbar(
                line.x,
                line.y,
                yerr=line.spread or None,
                color=shade,
                linestyle=DASHES[same_colour.index(line.method) % len(DASHES)],
                marker="o" if len(line.x) <= MAX_POINTS else None,
                markersize=3,
                label=shortened(line.method, LONGEST),
            )
        values = sorted({value for line in lines for value in line.x})
        if len(values) <= MAX_TICKS:
            axes.set_xticks(values, [f"{value:,g}" for value in values])
        axes.set(xlabel=x_label, ylabel=y_label)
        axes.figure.legend(loc="outside lower center", ncols=2)

    return _picture(caption, HEIGHT + ROW * ((len(lines) + 1) // 2), draw)


def colour(method: str) -> str:
    """Return the colour of the method in a label."""
    return COLOURS.get(method.partition(":")[0], "#888888")


def forest_plots(table: ResultsTable, baseline: str | None) -> Iterator[Picture]:
    """Draw the methods' quality with the base model's, and the differences from the baseline."""
    base = 100 * table.base[PRIMARY]
    rows = [Estimate(BASE, base, None, f"{base:.1f}")]
    for row in table.rows:
        mean = 100 * row.measures[PRIMARY].mean
        rows.append(Estimate(row.method, mean, row.gain, f"{mean:.1f}"))
    corrected = " (Holm-corrected)" if len(table.rows) > 1 else ""
    steps = f"after {table.trained}"
    caption = f"{PRIMARY} {steps}, with the 95% interval{corrected} of its change by training"
    yield forest(caption, PRIMARY, rows, base)
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    if baseline is not None and tests:
        rows = [Estimate(baseline, 0, None, "0")]
        for method, test in tests.items():
            rows.append(Estimate(method, 100 * test.difference, test, points(test.difference)))
        caption = f"difference from {baseline} {steps}, with its Holm-corrected 95% interval"
        yield forest(caption, f"points of {PRIMARY}", rows, 0)


def _ends(row: Estimate) -> tuple[float, ...]:
    """The ends of the test's interval in points, shifted to the value; empty without a test."""
    if row.test is None:
        return ()
    return tuple(
        row.value + 100 * (end - row.test.difference) for end in (row.test.low, row.test.high)
    )


def steps_charts(groups: Sequence[Group], base: dict[str, float]) -> Iterator[Picture]:
    """Draw quality by number of steps. The runs have more than one."""
    methods = dict.fromkeys(group.method for group in groups)
    for measure in (PRIMARY, RECALL):
        lines = []
        for method in methods:
            members = [group for group in groups if group.method == method]  # by ascending steps
            values = [group.mean_std(measure) for group in members]
            means, spread = [100 * v.mean for v in values], [100 * (v.std or 0.0) for v in values]
            lines.append(Line(method, [group.steps for group in members], means, spread))
        caption = (
            f"{measure} by number of steps, with separate runs for each point; ± one standard "
            "deviation over the seeds"
        )
        yield chart(caption, "steps", measure, lines, 100 * base[measure])


def labels_chart(groups: Sequence[Group]) -> list[Picture]:
    """Draw a histogram of the first ranks in the first run, with the height of the wrong pairs.

    The ranks of wrong pairs are uniform (Schweder and Spjøtvoll 1982).
    """
    estimate = groups[0].runs[0].record.noisy_labels
    if estimate is None:
        return []
    ranks = groups[0].runs[0].pairs()["first_rank"].drop_null().to_numpy()

    def draw(axes: Axes) -> None:
        weights, method = np.full(len(ranks), 100 / len(ranks)), groups[0].method
        axes.hist(ranks, BANDS, range=(0, 1), weights=weights, color=colour(method), rwidth=0.9)
        height = 100 * estimate.noise_rate / BANDS
        axes.axhline(height, color=LOST, label="wrong pairs: every rank is equally likely")
        axes.set_xlabel("relative rank of a pair's document when first sampled (0 = best)")
        axes.set_ylabel("% of the pairs")
        axes.grid(axis="x", visible=False)
        axes.figure.legend(loc="outside lower center")

    return [_picture(estimate.sentence, HEIGHT + ROW, draw)]


def queries_chart(run: Run) -> Picture:
    """Draw the main measure of the final model against the base model for the test queries.

    Queries with equal values share a larger point.
    """
    table, names = run.per_query(), [column(model, PRIMARY) for model in ("base", "final")]
    base, final = (table[name].to_numpy() for name in names)
    kinds = {
        "gained": (GAINED, final - base > EQUAL),
        "lost": (LOST, base - final > EQUAL),
        "unchanged": (INK, abs(final - base) <= EQUAL),
    }
    counts = ", ".join(f"{mask.sum():,} {kind}" for kind, (_, mask) in kinds.items())

    def draw(axes: Axes) -> None:
        axes.plot((0, 100), (0, 100), color=INK, linestyle=":")
        for kind, (shade, mask) in kinds.items():
            values = (100 * np.column_stack([base[mask], final[mask]])).round()
            (x, y), count = (part.T for part in np.unique(values, axis=0, return_counts=True))
            style: dict[str, Any] = {"color": shade, "alpha": 0.6, "linewidths": 0, "label": kind}
            axes.scatter(x, y, 20 * np.sqrt(count), **style).set_in_layout(False)
        axes.set(xlabel=f"{PRIMARY} of the base model", ylabel=f"{PRIMARY} of the final model")
        axes.figure.legend(loc="outside lower center", ncols=3)

    return _picture(f"{PRIMARY} of each test query: {counts}", HEIGHT + ROW, draw)


def learning_charts(run: Run) -> Iterator[Picture]:
    """Draw a run's mean loss over parts of its steps, and two or more evaluations on dev."""
    trace, method = run.trace(), run.settings["method"]
    parts = [
        np.array_split(trace[name].to_numpy(), min(PARTS, trace.num_rows))
        for name in ("step", "loss")
    ]
    steps, losses = ([float(part.mean()) for part in column_parts] for column_parts in parts)
    yield chart("learning curve: training loss", "step", "loss", [Line(method, steps, losses)])
    if len(evaluations := run.training.evaluations) > 1:
        name = run.training.measure or PRIMARY
        evaluated, values = zip(*evaluations, strict=True)
        on_dev = Line(method, evaluated, [100 * value for value in values])
        yield chart(f"learning curve: {name} on dev", "step", name, [on_dev])


def sampled_by_similarity(groups: Sequence[Group]) -> dict[str, NDArray[np.float64]]:
    """How often a group's first seed sampled its pairs, by similarity (Figure 1).

    By label, float64 ``[moments, bands]``: the frequency relative to plain fine-tuning (Equation
    1), from the least similar pairs, over :data:`WINDOW` of the steps. Runs without similarities
    are left out.
    """
    ratios = {}
    for group in groups:
        table = group.runs[0].pairs()
        if "similarity" not in table.column_names:
            continue
        ids = table["query_id"].to_numpy(zero_copy_only=False)
        _, query, counts = np.unique(ids, return_inverse=True, return_counts=True)
        expected = 1 / (len(counts) * counts[query])
        order = np.argsort(table["similarity"].to_numpy(), kind="stable")
        bands = np.array_split(order, min(BANDS, len(order)))
        draws = group.runs[0].draws()
        step, pair = draws["step"].to_numpy(), draws["pair"].to_numpy()
        rows = []
        for moment in MOMENTS.values():
            start = moment * (1 - WINDOW) * step.max()
            window = pair[(step > start) & (step <= start + max(1, WINDOW * step.max()))]
            sampled = np.bincount(window, minlength=len(expected)) / len(window)
            rows.append([sampled[band].sum() / expected[band].sum() for band in bands])
        ratios[group.method] = np.array(rows)
    return ratios


def sampling_charts(groups: Sequence[Group]) -> Iterator[Picture]:
    """Draw Figure 1 of the paper at the start, in the middle and at the end of training."""
    ratios = sampled_by_similarity(groups)
    for number, moment in enumerate(MOMENTS) if ratios else ():
        lines = []
        for label, by_moment in ratios.items():
            ratio = by_moment[number].tolist()
            percentiles = [100 * (band + 0.5) / len(ratio) for band in range(len(ratio))]
            lines.append(Line(label, percentiles, ratio))
        caption = f"how often pairs are sampled {moment}, relative to plain fine-tuning"
        yield chart(caption, "pairs by similarity, percentile", "× as often as ft", lines)
