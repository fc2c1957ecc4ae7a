"""The paper's tables side by side with a grid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grids import PaperRuns, figure_at
from opera.experiments.paper import TABLES, align_table, as_records, table_rows
from opera.experiments.paper.tables import AVERAGE, RANK


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


def test_full_tables_match_iterations_and_add_the_grids_own(folder: PaperRuns) -> None:
    for steps, ndcg in ((500, 0.3), (600, 0.4)):
        folder.add("nfcorpus", {"method": "ft"}, steps=steps, ndcg=[ndcg])
    rows = folder.rows("full")
    assert {row.row.data for row in rows} == {"NFCorpus"}
    assert [figure_at(rows, "NFCorpus", "FT", "NDCG@10", steps=s).ours for s in (500, 600, 1000)] == [
        (0.3,),
        (0.4,),
        (),
    ]
    assert [figure_at(rows, "NFCorpus", "FT", "NDCG@10", steps=s).paper for s in (500, 600)] == [0.45608, None]
    steps = [row.row.steps for row in rows]
    assert steps == sorted(steps, key=lambda step: step or 0)
    assert [row.row.method for row in rows if row.row.steps == 600] == ["FT"]
    assert {row.row.steps for row in folder.rows("full", steps=600)} == {0, 600}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_has_records(table: Any) -> None:
    records = json.loads(json.dumps(as_records(table, align_table(table, None), False)))
    assert len(records) == sum(len(row.values) for row in table_rows(table.name))
    with_grid = as_records(table, align_table(table, []), True)
    assert {record["grid"] for record in with_grid} == {"not run"}
    assert all(record["our_measure"] for record in with_grid if "@" in record["measure"])
