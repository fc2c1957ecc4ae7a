"""The paper's tables side by side with a grid: each kind of figure, averages and average ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from grids import PaperRuns, figure_at
from opera.core.errors import SettingError
from opera.experiments.paper.align import NOT_RUN, ComparedFigure, align_table, as_records, paper_figures
from opera.experiments.paper.tables import AVERAGE, RANK, TABLES, table_rows

METHODS = {"FT": "ft", "InfoBatch": "infobatch", "SP": "sp", "DP": "dp"}


def test_a_row_has_the_mean_over_seeds_and_the_difference_in_points(folder: PaperRuns) -> None:
    folder.add("nfcorpus", {"method": "dp"}, ndcg=[0.40, 0.44], recall=[0.2, 0.3])
    rows = folder.rows("main")
    figure = figure_at(rows, "NFCorpus", "DP", "NDCG@10")
    assert (figure.paper, figure.ours) == (0.480, (0.40, 0.44))
    assert (figure.mean, figure.sd, figure.difference) == pytest.approx((0.42, 0.02828427, -6.0))
    assert figure_at(rows, "NFCorpus", "DP", "Recall@20").mean == pytest.approx(0.25)


def test_what_was_not_run_says_so(folder: PaperRuns) -> None:
    folder.add("nfcorpus", {"method": "sp", "k": 0.4}, ndcg=[0.4], recall=[0.2])
    rows = folder.rows("main")
    for data, method in (("NFCorpus", "SP"), ("NFCorpus", "DP"), ("FiQA", "FT"), (AVERAGE, "SP"), (RANK, "SP")):
        figure = figure_at(rows, data, method, "NDCG@10")
        assert (figure.mean, figure.difference, figure.missing) == (None, None, "not run")


def test_full_tables_match_iterations(folder: PaperRuns) -> None:
    for steps, ndcg in ((500, 0.3), (600, 0.4)):
        folder.add("nfcorpus", {"method": "ft"}, steps=steps, ndcg=[ndcg])
    rows = folder.rows("full")
    assert {row.row.data for row in rows} == {"NFCorpus"}
    found = [figure_at(rows, "NFCorpus", "FT", "NDCG@10", steps=steps) for steps in (500, 1000)]
    assert [figure.ours for figure in found] == [(0.3,), ()]
    assert found[0].paper == 0.45608
    steps = [row.row.steps for row in rows]
    assert steps == sorted(steps, key=lambda step: step or 0)
    assert {row.row.steps for row in folder.rows("full", steps=500)} == {0, 500}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_has_records(table: Any) -> None:
    records = json.loads(json.dumps(as_records(table, align_table(table, None), False)))
    assert len(records) == sum(len(row.values) for row in table_rows(table.name))
    with_grid = as_records(table, align_table(table, []), True)
    assert {record["grid"] for record in with_grid} == {"not run"}
    assert all(record["our_measure"] for record in with_grid if "@" in record["measure"])


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
        ("overhead", "FiQA", "Speed Diff (%)", 1),
    ],
)
def test_only_measures_differ_in_points(table: str, data: str, measure: str, scale: float) -> None:
    row = next(row for row in table_rows(table) if row.data == data and measure in row.values)
    figure = paper_figures(row)[measure]
    assert (figure.paper, figure.ours, figure.scale) == (row.values[measure], (), scale)


def test_the_pretrained_model_comes_from_any_run(folder: PaperRuns) -> None:
    folder.add("nfcorpus", {"method": "sp", "k": 0.4}, ndcg=[0.4, 0.4], recall=[0.2, 0.2])
    assert figure_at(folder.rows("main"), "NFCorpus", "Pretrained", "NDCG@10").ours == (0.1,)


def test_a_measure_that_older_runs_lack(folder: PaperRuns) -> None:
    folder.add("fiqa", {"method": "dp"}, ndcg=[0.4])
    rows = folder.rows("hierarchy")
    assert figure_at(rows, "FiQA", "DP w/ Both", "NDCG@10").mean == 0.4
    assert figure_at(rows, "FiQA", "DP w/ Both", "Recall@10").missing == "not measured"


def test_speeds_are_relative_to_ft(folder: PaperRuns) -> None:
    folder.add("fiqa", {"method": "dp", "update_interval": 10}, seconds=0.5, ndcg=[0.4], recall=[0.2])
    assert figure_at(folder.rows("overhead"), "FiQA", "DP (I_u = 10)", "Speed Diff (%)").missing == "FT not run"
    folder.add("fiqa", {"method": "ft"}, seconds=0.4, ndcg=[0.4], recall=[0.2])
    rows = folder.rows("overhead")
    speed, difference = (figure_at(rows, "FiQA", "DP (I_u = 10)", m) for m in ("Iters/sec", "Speed Diff (%)"))
    assert (speed.mean, speed.difference) == pytest.approx((2.0, -0.37))
    assert (difference.mean, difference.difference) == pytest.approx((-20.0, -17.49))
    for method, seconds in (("ft", 0.4), ("dp", 0.5)):
        folder.add("fever", {"method": method}, seconds=seconds, ndcg=[0.4], recall=[0.2])
    overhead = figure_at(folder.rows("overhead-fever"), "FEVER", "DP (I_u = 1)", "Per-step overhead (%)")
    assert overhead.mean == pytest.approx(25.0)


def test_difficulty_needs_similarities(folder: PaperRuns) -> None:
    folder.add("fiqa", {"method": "ft"}, ndcg=[0.4], recall10=[0.2])
    folder.add("fiqa", {"method": "dp"}, similarity=True, ndcg=[0.4, 0.5], recall10=[0.2, 0.2])
    rows = folder.rows("difficulty")
    assert figure_at(rows, "FiQA", "FT", "NDCG@10", part="hard").missing == "not recorded"
    assert figure_at(rows, "FiQA", "FT", "NDCG@10", part="all").mean == 0.4
    for part, shift in (("hard", -0.025), ("medium", -0.005), ("easy", 0.015)):
        figure = figure_at(rows, "FiQA", "DP", "NDCG@10", part=part)
        assert figure.ours == pytest.approx((0.4 + shift, 0.5 + shift))
        assert figure_at(rows, "FiQA", "DP", "queries", part=part).mean == 2
    assert figure_at(rows, "FiQA", "DP", "queries", part="all").difference == 6 - 648


def test_averages_stand_beside_the_papers_where_the_grid_has_all_data_sets(folder: PaperRuns) -> None:
    sets = ("nfcorpus", "fiqa", "antique", "fever")
    for data in sets:
        for number, method in enumerate(("sp", "sp+cbs")):
            folder.add(data, {"method": method, "k": 0.25}, ndcg=[0.2 + number], recall=[0.5])
        average = figure_at(folder.rows("cbs"), AVERAGE, "SP (CBS)", "NDCG@10").mean
        assert (average is None) == (data != "fever"), "not over some of them"
    figure = figure_at(folder.rows("cbs"), AVERAGE, "SP (CBS)", "NDCG@10")
    assert (figure.paper, figure.mean) == pytest.approx((0.612, 1.2))
    assert not any(row.row.data == AVERAGE for row in folder.rows("cbs", data="fever"))


def test_average_ranks_are_over_seen_or_unseen_data_sets(folder: PaperRuns) -> None:
    for data in ("nfcorpus", "fiqa", "antique", "fever", "hotpotqa", "triviaqa", "tripclick-head",
                 "tripclick-torso"):  # fmt: skip
        for number, method in enumerate(METHODS.values()):
            place = 3 - number if data in ("fever", "hotpotqa") else number
            settings = {"method": method, "k": 0.5} if (data, method) == ("fiqa", "sp") else {"method": method}
            folder.add(data, settings, ndcg=[0.2 + place / 10], recall=[0.5])
    rows = folder.rows("main")
    ranks = {
        kind: [figure_at(rows, kind, method, "NDCG@10").mean for method in ("Pretrained", *METHODS)]
        for kind in dict.fromkeys(row.row.data for row in rows) if "rank" in kind
    }  # fmt: skip
    assert ranks["Average rank (unseen)"] == [5, 4, 3, 2, 1]
    assert ranks["Average rank (seen)"] == [5, 1, 2, 3, 4]


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_a_grid_of_one_preset_fills_the_table(folder: PaperRuns, preset: str) -> None:
    for number, method in enumerate(METHODS.values()):
        folder.add("nfcorpus", {"method": method, "preset": preset}, ndcg=[0.2 + number / 10], recall=[0.1])
    rows = folder.rows("main")
    means = [figure_at(rows, "NFCorpus", name, "NDCG@10").mean for name in ("Pretrained", *METHODS)]
    assert means == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_runs_of_several_presets_are_never_set_beside_one_another(folder: PaperRuns) -> None:
    folder.add("nfcorpus", {"method": "ft", "temperature": 0.5}, ndcg=[0.9], recall=[0.1])
    folder.add("nfcorpus", {"method": "dp", "preset": "paper"}, ndcg=[0.4], recall=[0.1])
    with pytest.raises(SettingError, match=r"holds runs of several presets \(null, paper\); pick one by --set"):
        folder.rows("main")
