"""The paper's tables side by side with runs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from grids import N_QUERIES, RunsFolder, finish_planned
from opera.experiments.plan import plan_grid
from opera_paper.align import ComparedFigure, ComparedRow, Runs, align_rows, as_records, paper_alone, rows_of
from opera_paper.plan import Reproduction
from opera_paper.reproduce import check_data, collect_results
from opera_paper.tables import AVERAGE, RANK, TABLES, find_table, table_rows


@pytest.fixture
def folder(tmp_path) -> RunsFolder:
    return RunsFolder(tmp_path)


METHODS = ("Pretrained", "FT", "InfoBatch", "SP", "DP")
Key = tuple[str, str]


def group_of(folder: RunsFolder, *after: Any, **values: Any) -> Runs:
    """Runs with one value per query, or the same for all, of each seed."""
    runs = [folder.add(final=np.broadcast_to(each, N_QUERIES), seed=at, **values) for at, each in enumerate(after)]
    return Runs(tuple(map(opera.Run.open, runs)), 4)


def aligned(table: str, groups: Mapping[Key, Runs]) -> list[ComparedRow]:
    return align_rows(rows_of(find_table(table)), lambda row: groups.get((row.data, row.method)))


def figure_at(rows: list[ComparedRow], data: str, method: str, measure: str, part: str = "") -> ComparedFigure:
    (only,) = [row for row in rows if (row.row.data, row.row.method, row.row.part) == (data, method, part)]
    return only.figures[measure]


def test_a_row_has_the_mean_over_seeds_and_the_difference_in_points(folder):
    rows = aligned("main", {("NFCorpus", "DP"): group_of(folder, 0.40, 0.44)})
    figure = figure_at(rows, "NFCorpus", "DP", "NDCG@10")
    assert (figure.paper, figure.ours) == (0.480, pytest.approx((0.40, 0.44)))
    assert (figure.mean, figure.sd, figure.difference) == pytest.approx((0.42, 0.02828427, -6.0))
    assert figure_at(rows, "NFCorpus", "DP", "Recall@20").mean == pytest.approx(-0.08)
    for data, method in (("NFCorpus", "SP"), ("FiQA", "FT"), (AVERAGE, "DP"), (RANK, "DP")):
        figure = figure_at(rows, data, method, "NDCG@10")
        assert (figure.mean, figure.difference, figure.missing) == (None, None, "not run")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_has_records(table):
    rows = rows_of(table)
    records = json.loads(json.dumps(as_records(table, paper_alone(rows), with_grid=False)))
    assert len(records) == sum(len(row.values) for row in table_rows(table.name))
    beside = as_records(table, align_rows(rows, lambda row: None), with_grid=True)
    assert {record["grid"] for record in beside} == {"not run"}
    assert all(record["our_measure"] for record in beside if "@" in record["measure"])
    if table.by_steps:
        steps = [row.steps or 0 for row in rows_of(table, "fiqa")]
        assert steps == sorted(steps)


def test_speeds_are_relative_to_ft(folder):
    (dp, ft), label = (group_of(folder, 0.4, step_seconds=s) for s in (0.5, 0.4)), "DP (I_u = 10)"
    alone = aligned("overhead", {("FiQA", label): dp})
    assert figure_at(alone, "FiQA", label, "Speed Diff (%)").missing == "FT not run"
    rows = aligned("overhead", {("FiQA", label): dp, ("FiQA", "FT"): ft})
    speed, difference = (figure_at(rows, "FiQA", label, name) for name in ("Iters/sec", "Speed Diff (%)"))
    assert (speed.mean, speed.difference) == pytest.approx((2.0, -0.37))
    assert (difference.mean, difference.difference) == pytest.approx((-20.0, -17.49))
    rows = aligned("overhead-fever", {("FEVER", "DP (I_u = 1)"): dp, ("FEVER", "FT"): ft})
    assert figure_at(rows, "FEVER", "DP (I_u = 1)", "Per-step overhead (%)").mean == pytest.approx(25.0)


def test_difficulty_needs_similarities(folder):
    after = np.arange(9) / 10
    dp = group_of(folder, after, np.full(9, 0.2), similarity=np.arange(9)[::-1])
    rows = aligned("difficulty", {("FiQA", "DP"): dp, ("FiQA", "FT"): group_of(folder, 0.4)})
    assert figure_at(rows, "FiQA", "FT", "NDCG@10", "hard").missing == "not recorded"
    assert figure_at(rows, "FiQA", "FT", "NDCG@10", "all").mean == pytest.approx(0.4)
    for part, mean in (("hard", 0.7), ("medium", 0.4), ("easy", 0.1)):
        assert figure_at(rows, "FiQA", "DP", "NDCG@10", part).ours == pytest.approx((mean, 0.2))
        assert figure_at(rows, "FiQA", "DP", "queries", part).mean == 3
    assert figure_at(rows, "FiQA", "DP", "queries", "all").difference == 9 - 648


def test_averages_need_all_data_sets_and_ranks_are_over_seen_or_unseen(folder):
    ascending = [group_of(folder, 0.2 + place / 10) for place in range(5)]
    sets = dict.fromkeys(row.data for row in rows_of(find_table("main")) if "verage" not in row.data)
    groups = {}
    for data in sets:
        for place, method in enumerate(METHODS[1:]):
            groups[data, method] = ascending[4 - place if data in ("FEVER", "HotpotQA") else place + 1]
        groups[data, "Pretrained"] = ascending[0]
    rows = aligned("main", groups)
    ranks = {
        kind: [figure_at(rows, kind, method, "NDCG@10").mean for method in METHODS]
        for kind in dict.fromkeys(row.row.data for row in rows)
        if "rank" in kind
    }
    assert ranks["Average rank (unseen)"] == [5, 4, 3, 2, 1]
    assert ranks["Average rank (seen)"] == [5, 1, 2, 3, 4]
    assert figure_at(rows, AVERAGE, "FT", "NDCG@10").mean == pytest.approx((6 * 0.3 + 2 * 0.6) / 8)
    del groups["FiQA", "FT"]
    assert figure_at(aligned("main", groups), AVERAGE, "FT", "NDCG@10").mean is None


def planned(table: str, out: Path, *names: str, **changes: Any) -> Reproduction:
    data = [f"{name}=anywhere/{name}-1" for name in names]
    plan = Reproduction(find_table(table), out, "small", "models/own", user_seeds=(0,), user_data=data)
    return replace(plan, **changes)


def test_each_row_of_a_table_by_iterations_has_its_own_small_run(tmp_path):
    plan = planned("full", tmp_path, "nfcorpus")
    cells = [
        cell
        for call in plan.calls
        for cell in plan_grid(
            [call.source], ["model"], plan.out / call.name, call.settings, call.methods, plan.seeds, [call.steps]
        )
    ]
    for number, cell in enumerate(cells):
        finish_planned(cell, ndcg=0.3 + number / 1000)
    reproduced = collect_results(plan)
    figures = [row.figures["NDCG@10"] for row in reproduced.rows]
    assert all(figure.ours and figure.paper is not None for figure in figures)
    assert len({figure.ours for figure in figures[1:]}) == reproduced.planned == len(figures) - 1
    assert {row.row.data for row in reproduced.rows} == {"NFCorpus"}


def test_data_that_cannot_be_loaded_are_named_all_at_once(beir, tmp_path):
    plan = planned("main", tmp_path, user_data=[f"nfcorpus={beir}", "fiqa=absent"])
    with pytest.raises(opera.DataError, match="fiqa: absent: no such file"):
        check_data(plan)
    (note,) = check_data(replace(plan, user_data=[f"nfcorpus={beir}"]))
    assert "nfcorpus: counts differ from Table 8: documents" in note
