"""Rows of the paper's tables with the figures of a grid beside the paper's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opera.experiments.paper import ComparedFigure, table_rows
from opera.experiments.paper.rows import NOT_RUN, paper_figures
from opera.experiments.paper.tables import AVERAGE, RANK


def test_a_figure_needs_seeds_for_a_mean_and_two_for_a_deviation() -> None:
    nothing = ComparedFigure(0.5)
    assert (nothing.mean, nothing.sd, nothing.difference, nothing.missing) == (None, None, None, NOT_RUN)
    one = replace(nothing, ours=(0.4,))
    assert (one.mean, one.sd) == (0.4, None)
    assert one.difference == pytest.approx(-10)
    two = ComparedFigure(0.5, (0.4, 0.8), scale=1)
    assert (two.mean, two.sd, two.difference) == pytest.approx((0.6, 0.4 / 2**0.5, 0.1))
    assert ComparedFigure(None, (0.4,)).difference is None


@pytest.mark.parametrize(
    ("table", "data", "measure", "scale"),
    [
        ("main", "NFCorpus", "NDCG@10", 100),
        ("main", AVERAGE, "NDCG@10", 100),
        ("main", RANK, "NDCG@10", 1),
        ("main", f"{RANK}, over NFCorpus and FEVER", "NDCG@10", 1),
        ("overhead", "FiQA", "Speed Diff (%)", 1),
    ],
)
def test_only_measures_differ_in_points(table: str, data: str, measure: str, scale: float) -> None:
    row = next(row for row in table_rows(table) if row.data == data.partition(",")[0] and measure in row.values)
    figure = paper_figures(replace(row, data=data))[measure]
    assert (figure.paper, figure.ours, figure.scale) == (row.values[measure], (), scale)
