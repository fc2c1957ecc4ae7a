"""The finished table of a reproduction, from made-up runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grids import finish_cell
from opera.cli.printing.paper import reproduced_text
from opera.core.errors import RunFolderError
from opera.experiments.paper import find_table
from opera.experiments.paper.cells import TableSettings
from opera.experiments.paper.plan import ReproductionPlan, plan_reproduction
from opera.experiments.paper.results import collect_results
from opera.experiments.paper.scale import SCALES


def planned(
    table: str, out: Path, *names: str, seeds: tuple[int, ...] = (0,), preset: str = "paper"
) -> ReproductionPlan:
    shared = TableSettings(find_table(table), "models/own", preset, SCALES["small"], None, seeds, {})
    sources = {name: f"anywhere/{name}-1" for name in names}
    return plan_reproduction(shared, out, sources, {"fever": "it is large"})


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_each_row_of_a_table_by_iterations_has_its_own_small_run(tmp_path: Path, preset: str) -> None:
    plan = planned("full", tmp_path, "nfcorpus", preset=preset)
    for number, cell in enumerate(plan.cells):
        finish_cell(cell, ndcg=0.3 + number / 1000)
    reproduced = collect_results(plan)
    figures = [row.figures["NDCG@10"] for row in reproduced.rows]
    assert all(figure.ours and figure.paper is not None for figure in figures)
    assert len({figure.ours for figure in figures[1:]}) == len(plan.cells) == len(figures) - 1
    assert {row.row.data for row in reproduced.rows} == {"NFCorpus"}
    assert {row.reading for row in reproduced.rows} == {""}


def test_averages_are_over_the_data_sets_taken_and_the_others_are_named(tmp_path: Path) -> None:
    plan = planned("cbs", tmp_path, "nfcorpus", "fiqa", seeds=(0, 1))
    for cell in plan.cells[:-1]:
        finish_cell(cell, ndcg=0.3 + cell.seed / 10)
    text = reproduced_text(collect_results(plan))
    assert "7 of 8 cells are finished; the others are missing here." in text
    assert "0.350 ± 0.071" in text
    assert "Average, over NFCorpus and FiQA" in " ".join(text.replace("│", " ").split())
    assert "Left out: fever: it is large" in text
    assert "ANTIQUE" not in text
    whole = json.loads(json.dumps(collect_results(plan).as_dict()))
    assert (whole["finished"], whole["left_out"]) == (7, {"fever": "it is large"})


def test_without_a_finished_cell_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no cell of table cbs is finished"):
        collect_results(planned("cbs", tmp_path, "fiqa"))
