"""The data and the finished table of a reproduction, from made-up runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grids import finish_cell
from opera.cli.printing.paper import reproduced_text
from opera.core.errors import DataError, RunFolderError
from opera.experiments.paper.plan import Reproduction
from opera.experiments.paper.reproduce import collect_results, fetch_sets
from opera.experiments.paper.tables import find_table


def planned(table: str, out: Path, *names: str, seeds: tuple[int, ...] = (0,), preset: str = "paper") -> Reproduction:
    data = [f"{name}=anywhere/{name}-1" for name in names]
    return Reproduction(find_table(table), out, "small", "models/own", preset, None, seeds, {}, data)


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


def test_only_the_data_sets_taken_are_shown(tmp_path: Path) -> None:
    plan = planned("cbs", tmp_path, "nfcorpus", "fiqa", seeds=(0, 1))
    for cell in plan.cells[:-1]:
        finish_cell(cell, ndcg=0.3 + cell.seed / 10)
    text = reproduced_text(collect_results(plan))
    assert "7 of 8 cells are finished; the others are missing here." in text
    assert "0.350 ± 0.071" in text
    assert "ANTIQUE" not in text
    whole = json.loads(json.dumps(collect_results(plan).as_dict()))
    assert (whole["finished"], whole["left_out"]) == (7, {})


def test_without_a_finished_cell_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no cell of table cbs is finished"):
        collect_results(planned("cbs", tmp_path, "fiqa"))


def test_a_set_that_cannot_be_had_is_an_error(beir: Path) -> None:
    sources = {"nfcorpus": str(beir), "fiqa": "absent"}
    with pytest.raises(DataError, match="fiqa: absent: no such file") as caught:
        fetch_sets(sources, sources)
    assert str(caught.value).endswith("\n1 of 2 data sets cannot be had; --data nfcorpus goes without")
    (note,) = fetch_sets(sources, ["nfcorpus"])  # a shard loads its own data sets alone
    assert "nfcorpus has other counts than Table 8: documents" in note


def test_a_set_of_the_catalogue_that_cannot_be_had_may_come_from_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str) -> None:
        raise DataError("no network")

    monkeypatch.setattr("opera.experiments.paper.reproduce.load_data", refuse)
    with pytest.raises(DataError, match="1 of 1 data sets cannot be had; --data NAME=FOLDER takes one that you have"):
        fetch_sets({"fiqa": "paper:fiqa"}, ["fiqa"])
