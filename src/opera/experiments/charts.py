"""The charts of the report, as SVG by matplotlib; the same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from opera.core.figures import EQUAL, PRIMARY, RECALL, column, points
from opera.core.terminal import shortened
from opera.experiments.groups import Group
from opera.experiments.results import BASE, ResultsTable
from opera.experiments.significance import PairedTest
from opera.run_folder.folder import Run
from opera.run_folder.summary import labels_sentence

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
Lines = Mapping[str, Sequence[Sequence[float]]]
"""By method: x, y, and maybe ± for each point."""
Estimate = tuple[str, float, PairedTest | None, str]
"""A row of a forest plot: method, value, the test whose interval it shows, and text."""


@dataclass(frozen=True)
class Picture:
    """An SVG with its caption."""

    caption: str
    svg: Markup


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
        for number, (method, value, test, _) in enumerate(rows):
            if test is not None:  # its interval, shifted to the value
                ends = [value + 100 * (end - test.difference) for end in (test.low, test.high)]
                axes.plot(ends, [number, number], color=colour(method), linewidth=2)
            axes.plot(value, number, "o", color=colour(method))
        names = [f"{shortened(method, LONGEST)}   {text}" for method, _, _, text in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)

    return _picture(caption, 0.7 + ROW * len(rows), draw)


def chart(
    caption: str,
    x_label: str,
    y_label: str,
    lines: Lines,
    base: float | None = None,
) -> Picture:
    """Draw a line per method, a horizontal line for the base model, and a legend."""

    def draw(axes: Axes) -> None:
        if base is not None:
            axes.axhline(base, color=INK, linestyle=":", label=BASE)
        for method, (x, y, *spread) in lines.items():
            same_colour = [other for other in lines if colour(other) == colour(method)]
            axes.errorbar(
                x,
                y,
                yerr=spread[0] if spread else None,
                color=colour(method),
                linestyle=DASHES[same_colour.index(method) % len(DASHES)],
                marker="o" if len(x) <= MAX_POINTS else None,
                markersize=3,
                label=shortened(method, LONGEST),
            )
        values = sorted({value for x, *_ in lines.values() for value in x})
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
    means = [100 * row.measures[PRIMARY].mean for row in table.rows]
    corrected = " (Holm-corrected)" if len(table.rows) > 1 else ""
    steps = f"after {table.trained}"
    yield forest(
        f"{PRIMARY} {steps}, with the 95% interval{corrected} of its change by training",
        PRIMARY,
        [
            (BASE, base, None, f"{base:.1f}"),
            *(
                (row.method, mean, row.gain, f"{mean:.1f}")
                for row, mean in zip(table.rows, means, strict=True)
            ),
        ],
        base,
    )
    tests = {row.method: row.tests[PRIMARY] for row in table.rows if PRIMARY in row.tests}
    if baseline is not None and tests:
        yield forest(
            f"difference from {baseline} {steps}, with its Holm-corrected 95% interval",
            f"points of {PRIMARY}",
            [
                (baseline, 0, None, "0"),
                *(
                    (method, 100 * test.difference, test, points(test.difference))
                    for method, test in tests.items()
                ),
            ],
            0,
        )


def steps_charts(groups: Sequence[Group], base: dict[str, float]) -> Iterator[Picture]:
    """Draw quality by number of steps. The runs have more than one."""
    methods = dict.fromkeys(group.method for group in groups)
    for measure in (PRIMARY, RECALL):
        lines = {}
        for method in methods:
            members = [group for group in groups if group.method == method]  # by ascending steps
            values = [group.mean_std(measure) for group in members]
            means, spread = [100 * v.mean for v in values], [100 * (v.std or 0.0) for v in values]
            lines[method] = [group.steps for group in members], means, spread
        caption = (
            f"{measure} by number of steps, with separate runs for each point; ± one standard "
            "deviation over the seeds"
        )
        yield chart(caption, "steps", measure, lines, 100 * base[measure])


def labels_chart(run: Run) -> list[Picture]:
    """Draw a histogram of the first ranks in a run, with the height of the wrong pairs.

    The ranks of wrong pairs are uniform (Schweder and Spjøtvoll 1982).
    """
    estimate = run.record.noisy_labels
    if estimate is None:
        return []
    ranks = run.pairs()["first_rank"].drop_null().to_numpy()

    def draw(axes: Axes) -> None:
        weights, shade = np.full(len(ranks), 100 / len(ranks)), colour(run.settings["method"])
        axes.hist(ranks, BANDS, range=(0, 1), weights=weights, color=shade, rwidth=0.9)
        height = 100 * estimate.noise_rate / BANDS
        axes.axhline(height, color=LOST, label="wrong pairs: every rank is equally likely")
        axes.set_xlabel("relative rank of a pair's document when first sampled (0 = best)")
        axes.set_ylabel("% of the pairs")
        axes.grid(axis="x", visible=False)
        axes.figure.legend(loc="outside lower center")

    return [_picture(labels_sentence(estimate), HEIGHT + ROW, draw)]


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
            (x, y), count = (columns.T for columns in np.unique(values, axis=0, return_counts=True))
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
    steps, losses = ([float(values.mean()) for values in column_parts] for column_parts in parts)
    yield chart("learning curve: training loss", "step", "loss", {method: (steps, losses)})
    if len(evaluations := run.training.evaluations) > 1:
        name = run.training.measure or PRIMARY
        evaluated, values = zip(*evaluations, strict=True)
        on_dev = {method: (evaluated, [100 * value for value in values])}
        yield chart(f"learning curve: {name} on dev", "step", name, on_dev)


def sampled_by_similarity(group: Group) -> NDArray[np.float64] | None:
    """How often a group's first seed sampled its pairs, by similarity (Figure 1).

    The frequency relative to plain fine-tuning (Equation 1), over :data:`WINDOW` of the steps:
    float64 ``[moments, bands]``, from the least similar pairs. ``None`` without similarities.
    """
    table, draws = group.runs[0].pairs(), group.runs[0].draws()
    if "similarity" not in table.column_names:
        return None
    queries = table["query_id"].to_pandas()
    pairs_of_query = queries.map(queries.value_counts()).to_numpy()
    expected = 1 / (queries.nunique() * pairs_of_query)
    order = np.argsort(table["similarity"].to_numpy(), kind="stable")
    bands = np.array_split(order, min(BANDS, len(order)))
    step, pair = draws["step"].to_numpy(), draws["pair"].to_numpy()
    ratios = []
    for moment in MOMENTS.values():
        start = moment * (1 - WINDOW) * step.max()
        window = pair[(step > start) & (step <= start + max(1, WINDOW * step.max()))]
        sampled = np.bincount(window, minlength=len(expected)) / len(window)
        ratios.append([sampled[band].sum() / expected[band].sum() for band in bands])
    return np.array(ratios)


def sampling_charts(groups: Sequence[Group]) -> Iterator[Picture]:
    """Draw Figure 1 of the paper at the start, in the middle and at the end of training."""
    by_method = {group.method: sampled_by_similarity(group) for group in groups}
    ratios = {method: values for method, values in by_method.items() if values is not None}
    for number, moment in enumerate(MOMENTS) if ratios else ():
        lines = {}
        for method, by_moment in ratios.items():
            ratio = by_moment[number].tolist()
            percentiles = [100 * (band + 0.5) / len(ratio) for band in range(len(ratio))]
            lines[method] = percentiles, ratio
        caption = f"how often pairs are sampled {moment}, relative to plain fine-tuning"
        yield chart(caption, "pairs by similarity, percentile", "× as often as ft", lines)
