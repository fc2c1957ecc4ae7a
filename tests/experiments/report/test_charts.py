"""The report's charts, from runs whose values are known."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import opera
from grids import RunsFolder
from opera.experiments.analysis import analyse_runs
from opera.experiments.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Line,
    drawn_by_similarity,
    nice_ticks,
    sampling_charts,
    steps_charts,
)
from opera.runs.folder import RunWriter
from opera.runs.sampling import SamplingRecord, quantised

SIMILARITY = [0.1, 0.9, 0.5, 0.3]


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")


def add_run(folder: RunsFolder, method: str, documents: str = "wxyz", **columns: Any) -> None:
    """Add a run with three queries, a, b and c, of which a has two documents. At step 2 a is not drawn, b twice as
    often as by fine-tuning."""
    writer = RunWriter(folder.add(method=method))
    table = {"query_id": list("aabc"), "doc_id": list(documents), "times_drawn": [2, 0, 1, 1], "injected": [False] * 4}
    writer.write_pairs({**table, "kept": [True] * 4, **columns})
    record = SamplingRecord(
        steps=np.array([0, 2], dtype=np.int32),
        query_ids=np.arange(3, dtype=np.int32),
        pair_ids=np.arange(4, dtype=np.int32),
        query_codes=quantised(np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])),
        document_codes=quantised(np.ones((2, 4))),
    )
    writer.write_sampling(record)


def test_a_run_without_similarities_takes_those_of_the_same_pairs(folder: RunsFolder) -> None:
    add_run(folder, "ft")
    add_run(folder, "sp", similarity=np.array(SIMILARITY, dtype=np.float32))
    add_run(folder, "rp", documents="wxyv")  # other pairs
    folder.add(method="infobatch")  # it has no record
    assert list(drawn_by_similarity(folder.groups())) == ["ft", "sp"]


def test_figure_1_has_the_ratio_to_fine_tuning_by_similarity(folder: RunsFolder) -> None:
    add_run(folder, "sp", similarity=np.array(SIMILARITY, dtype=np.float32))
    (ratio,) = drawn_by_similarity(folder.groups()).values()
    assert ratio[0].tolist() == [1, 1, 1, 1]
    assert ratio[1] == pytest.approx([0, 1, 2, 0], rel=0.034)  # a code's precision
    start, halfway, end = sampling_charts(folder.groups())
    assert start.lines[0].y == halfway.lines[0].y == [1, 1, 1, 1]
    assert end.lines[0].y == ratio[1].tolist()
    assert end.lines[0].x == [12.5, 37.5, 62.5, 87.5]


def test_no_record_no_picture(folder: RunsFolder) -> None:
    folder.add()
    assert sampling_charts(folder.groups()) == []


def test_quality_has_a_point_per_number_of_steps(grid: Path) -> None:
    comparison = analyse_runs(grid)
    final = comparison.final_tables()[0]
    ndcg, recall = steps_charts(comparison.groups, final.untrained)
    assert (ndcg.y_label, recall.y_label) == ("nDCG@10", "R@20")
    assert [line.method for line in ndcg.lines] == ["ft", "sp", "dp"]
    assert (ndcg.lines[2].x, ndcg.untrained) == ([4, 16], final.untrained["nDCG@10"])
    after = [opera.Run.open(grid / "dp" / "steps16" / f"seed{seed}").measures["after"]["nDCG@10"] for seed in (0, 1)]
    assert ndcg.lines[2].y[1] == pytest.approx(np.mean(after))
    assert ndcg.lines[2].spread[1] == pytest.approx(np.std(after, ddof=1))
    assert steps_charts([group for group in comparison.groups if group.steps == 4], final.untrained) == []


def test_places_lie_within_the_margins_and_factors_are_equally_far() -> None:
    chart = Chart("", "steps", "nDCG@10", [Line("dp", [100, 200, 800], [0.3, 0.34, 0.33], [0.01, 0, 0])], untrained=0.2)
    assert [chart.x_of(x) for x in (100, 800)] == [LEFT, WIDTH - RIGHT]
    assert chart.x_of(200) - LEFT == pytest.approx((WIDTH - RIGHT - LEFT) / 3, abs=0.1)
    assert TOP <= chart.y_of(0.34) < chart.y_of(0.33) < chart.y_of(0.29) < chart.y_of(0.2) <= HEIGHT - BOTTOM


def test_lines_of_a_colour_differ_in_their_dashes() -> None:
    lines = [Line(label, [0], [1]) for label in ("sp:k=0.5", "dp", "sp:k=0.25")]
    assert len({Chart("", "", "", lines).dash(line) for line in lines[::2]}) == 2


@pytest.mark.parametrize("values", [(0.3, 0.34), (0.5, 0.5), (0, 1), (0.0421, 0.0433, 0.0502)])
def test_ticks_are_round_and_enclose_the_values(values: tuple[float, ...]) -> None:
    ticks = nice_ticks(values)
    assert ticks[0] <= min(values) <= max(values) <= ticks[-1]
    assert 2 <= len(ticks) <= 7
    assert {round(high - low, 9) for low, high in pairwise(ticks)} <= {0.001, 0.005, 0.01, 0.5, 0.002}


def test_every_chart_of_the_page_is_a_whole_svg(page_file: Path) -> None:
    drawn = re.findall(r"<svg.*?</svg>", page_file.read_text(), re.S)
    charts = [svg for svg in map(ElementTree.fromstring, drawn) if svg.get("role") == "img"]
    assert len(charts) == 5
    for svg in charts:
        assert len(list(svg.iter("g"))) == 3
        points = " ".join(line.get("points", "").strip() for line in svg.iter("polyline"))
        places = [float(value) for value in re.split("[ ,]+", points)]
        assert min(places) >= 0
        assert max(places) <= WIDTH
