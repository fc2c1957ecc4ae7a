"""The report's section on the guard: its chart and its tables."""

from __future__ import annotations

import html
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import opera
from grids import RunsFolder, around, guard_record
from opera.experiments.analysis import analyse_runs
from opera.experiments.report.guard import (
    BOTTOM,
    HEIGHT,
    LABEL_HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    guard_chart,
    nice_ticks,
    spread,
)
from opera.runs.guard_words import verdict_sentence
from opera.runs.record import ShareMean


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def test_curves_of_the_first_seed_with_the_share_handed_over(folder: RunsFolder) -> None:
    for method, share in (("ft", 0.5), ("dp", 1)):
        folder.add(method=method, fine_tuned=around(0.4), chosen=guard_record(share=share))
    later = guard_record(curve=[ShareMean(share=share, mean=0.9) for share in (0, 0.5, 1)])
    folder.add(method="dp", seed=1, fine_tuned=around(0.4), chosen=later)
    folder.add(method="sp", guard=False)
    chart = guard_chart(analyse_runs(folder.home).tables[0])
    assert chart is not None
    assert [(curve.method, curve.share) for curve in chart.curves] == [("ft", 0.5), ("dp", 1)]
    assert chart.shares == (0, 0.5, 1)
    ft, dp = chart.curves
    assert ft.means == dp.means == {0: 0.3, 0.5: 0.34, 1: 0.33}
    assert [x for x, _ in ft.points] == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    assert (ft.chosen, dp.chosen) == (ft.points[1], dp.points[2])
    untrained, half, tuned = (y for _, y in ft.points)
    assert TOP <= half < tuned < untrained <= HEIGHT - BOTTOM
    assert abs(ft.name_y - dp.name_y) == LABEL_HEIGHT


def test_there_is_no_chart_without_a_guard(folder: RunsFolder) -> None:
    folder.add()
    assert guard_chart(analyse_runs(folder.home).tables[0]) is None


@pytest.mark.parametrize("values", [(0.3, 0.34), (0.5, 0.5), (0, 1), (0.0421, 0.0433, 0.0502)])
def test_ticks_are_round_and_enclose_the_values(values: tuple[float, ...]) -> None:
    ticks = nice_ticks(values)
    assert ticks[0] <= min(values) <= max(values) <= ticks[-1]
    assert 2 <= len(ticks) <= 7
    assert {round(high - low, 9) for low, high in pairwise(ticks)} <= {0.001, 0.005, 0.01, 0.5, 0.002}


def test_names_keep_their_distance_and_their_order() -> None:
    heights = [HEIGHT - BOTTOM, 20.0, 21.0, HEIGHT - BOTTOM - 1]
    moved = spread(heights)
    assert sorted(range(4), key=moved.__getitem__) == sorted(range(4), key=heights.__getitem__)
    assert min(high - low for low, high in pairwise(sorted(moved))) >= LABEL_HEIGHT
    assert max(moved) <= HEIGHT - BOTTOM


def test_the_page_has_the_chart_its_table_and_both_models(grid: Path, page_file: Path) -> None:
    text = page_file.read_text()
    drawn = re.search(r'<svg class="guard-chart".*?</svg>', text, re.S)
    assert drawn is not None
    svg = ElementTree.fromstring(drawn[0])
    named = {part.get("id") for part in svg if part.tag in ("title", "desc")}
    assert set((svg.get("aria-labelledby") or "").split()) == named
    assert [curve.get("data-method") for curve in svg.iter("g")] == ["ft", "sp", "dp"]
    final = analyse_runs(grid).final_tables()[0]
    for row in final.rows:
        assert row.guard is not None
        values = (final.untrained["R@20"], row.guard.fine_tuned["R@20"].mean, row.measures["R@20"].mean)
        assert " → ".join(f"{value:.3f}" for value in values) in text
        for share, mean in row.guard.curves[0]:
            assert re.search(rf'<th scope="row">{share:g}</th>.*>{mean:.4f}</td>', text)


def test_the_page_of_one_run_says_it_in_words(grid: Path, tmp_path: Path) -> None:
    run = opera.Run.open(grid / "dp" / "steps16" / "seed0")
    assert run.record.guard is not None
    main = html.unescape(opera.report(run.path, tmp_path / "one.html").read_text().split("<main>")[1])
    assert f"<p>{verdict_sentence(run.record.guard)}.</p>" in main
    assert f"Chosen on {run.record.guard.dev_queries} dev queries" in main
