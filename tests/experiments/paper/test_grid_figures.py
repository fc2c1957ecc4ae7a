"""The grid's counterpart of each kind of figure."""

from __future__ import annotations

import pytest

from grids import PaperRuns, figure_at


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
