"""Averages and average ranks over all or some of the paper's data sets."""

from __future__ import annotations

import pytest

from grids import PaperRuns, figure_at
from opera.experiments.paper.tables import AVERAGE, RANK

METHODS = ("Pretrained", "FT", "InfoBatch", "SP", "DP")


def test_averages_over_some_of_the_data_sets_have_both_sides_over_those(folder: PaperRuns) -> None:
    names = {"FT": {"method": "ft"}, "InfoBatch": {"method": "infobatch"}, "SP": {"method": "sp"},
             "DP": {"method": "dp"}}  # fmt: skip
    for data in ("nfcorpus", "fever"):
        for number, settings in enumerate(names.values()):
            folder.add(data, settings, ndcg=[0.2 + number / 10], recall=[0.5])
    folder.add("antique", {"method": "ft"}, ndcg=[0.9], recall=[0.9])
    rows = folder.rows("main")
    over = f"{AVERAGE}, over NFCorpus and FEVER"
    figure = figure_at(rows, over, "SP", "NDCG@10")
    assert (figure.paper, figure.mean, figure.difference) == pytest.approx((0.703, 0.4, -30.3))
    assert figure_at(rows, AVERAGE, "SP", "NDCG@10").mean is None
    rank = f"{RANK}, over NFCorpus and FEVER"
    assert [figure_at(rows, rank, method, "NDCG@10").mean for method in METHODS] == [5, 4, 3, 2, 1]
    assert [figure_at(rows, rank, method, "NDCG@10").paper for method in METHODS] == [5, 4, 3, 1, 2]
    assert figure_at(rows, rank, "SP", "NDCG@10").difference == 1
    assert figure_at(rows, rank, "DP", "Recall@20").mean == 2.5
    assert not any(row.row.data == over for row in folder.rows("main", data="fever"))


def test_averages_over_all_data_sets_stand_beside_the_papers(folder: PaperRuns) -> None:
    for data in ("nfcorpus", "fiqa", "ANTIQUE", "fever"):
        for number, method in enumerate(("sp", "sp+cbs")):
            folder.add(data, {"method": method, "k": 0.25}, ndcg=[0.2 + number], recall=[0.5])
    figure = figure_at(folder.rows("cbs"), AVERAGE, "SP (CBS)", "NDCG@10")
    assert (figure.paper, figure.mean) == pytest.approx((0.612, 1.2))
    assert not any("over" in row.row.data for row in folder.rows("cbs"))
