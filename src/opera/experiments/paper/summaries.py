"""The paper's averages and average ranks over data sets, with the grid's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opera.experiments.analysis import mean_ranks
from opera.experiments.paper.rows import ComparedFigure, ComparedRow, paper_figures
from opera.experiments.paper.tables import AVERAGE, RANK_SEEN, RANK_UNSEEN, SEEN, PaperRow


@dataclass(frozen=True)
class Block:
    """A measure's figures on several data sets.

    Attributes:
        data: the data sets that the grid has for all methods.
        paper: the paper's summary, float64 ``[methods]``.
        ours: the grid's, float64 ``[methods]``.
    """

    data: tuple[str, ...]
    paper: NDArray[np.float64]
    ours: NDArray[np.float64]


def summary_rows(
    kind: str, stated: Mapping[str, PaperRow], rows: Sequence[ComparedRow]
) -> list[ComparedRow]:
    """Return the paper's rows of one kind of summary, with the grid's figures where it has all data sets.

    Where it has some of them, rows follow with both sides over those; the paper's side is computed from its figures.

    Args:
        kind: one of :data:`SUMMARIES`.
        stated: the paper's rows of this kind, by method.
        rows: all rows that are no summaries.
    """
    methods = list(dict.fromkeys(row.row.method for row in rows))
    sets = _data_sets(kind, rows)
    figures = {method: paper_figures(stated[method]) for method in methods}
    partial: dict[str, dict[str, dict[str, ComparedFigure]]] = {}
    for measure in next(iter(stated.values())).values:
        block = _summarise(kind, measure, methods, sets, rows)
        if block is None:
            continue
        if block.data == sets:
            for method, ours in zip(methods, block.ours, strict=True):
                figures[method][measure] = replace(figures[method][measure], ours=(float(ours),))
            continue
        by_method = partial.setdefault(
            f"{kind}, over {' and '.join(block.data)}", {method: {} for method in methods}
        )
        for method, paper, ours in zip(methods, block.paper, block.ours, strict=True):
            scale = figures[method][measure].scale
            by_method[method][measure] = ComparedFigure(float(paper), (float(ours),), scale=scale)
    whole = [ComparedRow(stated[method], None, figures[method]) for method in methods]
    return whole + [
        ComparedRow(replace(stated[method], data=title), None, by_method[method])
        for title, by_method in partial.items()
        for method in methods
    ]


def _data_sets(kind: str, rows: Sequence[ComparedRow]) -> tuple[str, ...]:
    """The data sets that a kind of summary covers."""
    sets = dict.fromkeys(row.row.data for row in rows)
    if kind in (RANK_SEEN, RANK_UNSEEN):
        return tuple(data for data in sets if (data in SEEN) == (kind == RANK_SEEN))
    return tuple(sets)


def _summarise(
    kind: str,
    measure: str,
    methods: Sequence[str],
    sets: Sequence[str],
    rows: Sequence[ComparedRow],
) -> Block | None:
    """Summarise a measure over the data sets that the grid has for all methods; ``None`` if there are none."""
    by_key = {(row.row.data, row.row.method): row.figures[measure] for row in rows}
    data = tuple(name for name in sets if all(by_key[name, method].ours for method in methods))
    if not data:
        return None

    def summary(side: Callable[[ComparedFigure], float | None]) -> NDArray[np.float64]:
        values = np.array(
            [[side(by_key[name, method]) for method in methods] for name in data], dtype=np.float64
        )
        return np.asarray(
            values.mean(axis=0) if kind == AVERAGE else mean_ranks(values), dtype=np.float64
        )

    return Block(data, summary(lambda figure: figure.paper), summary(lambda figure: figure.mean))
