"""The text of ``opera paper``."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from grids import PaperRuns
from opera.cli.printing.paper import print_paper_table
from opera.experiments.paper.align import ComparedRow, align_table
from opera.experiments.paper.tables import find_table


@pytest.fixture
def folder(tmp_path: Path) -> PaperRuns:
    return PaperRuns(tmp_path / "grid")


def printed(name: str, rows: list[ComparedRow], models: list[str] | None) -> str:
    screen = Console(width=140, highlight=False, record=True, file=StringIO())
    print_paper_table(screen, find_table(name), rows, models)
    return screen.export_text()


def test_a_table_with_and_without_a_grid(folder: PaperRuns) -> None:
    folder.add("hotpotqa", {"method": "dp"}, ndcg=[0.40, 0.44], recall=[0.2, 0.2])
    text = printed("main", folder.rows("main"), ["potion-base-4m"])
    assert "the paper: bge-large-en-v1.5; the grid: potion-base-4m" in text
    assert re.search(r"DP +│ +100 │ +0\.812 │ 0\.420 ± 0\.028 │ +−39\.2 │", text)
    assert re.search(r"FT +│ +│ +0\.806 │ +not run │", text)
    assert "no variance" in text
    assert "B: HotpotQA, Recall@20" in text
    assert "NDCG@10 is retrieved_ideal_nDCG@10" in text
    one = printed("main", folder.rows("main", data="FiQA"), ["potion-base-4m"])
    assert "B: HotpotQA" not in one
    assert "L: the average ranks" in one
    alone = printed("retention", align_table(find_table("retention"), None), None)
    assert re.search(r"SP\.75 +│ +– │", alone)
    assert "not run" not in alone


def test_several_kinds_of_run_are_named(folder: PaperRuns) -> None:
    for masked in (True, False):
        folder.add("nfcorpus", {"method": "ft", "mask_known_positives": masked}, ndcg=[0.4], recall=[0.2])
    text = " ".join(printed("reversed", folder.rows("reversed"), ["m"]).split())
    assert "Several kinds of run match: ft; ft:mask_known_positives=false; select by --set." in text
