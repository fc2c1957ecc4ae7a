"""What ``opera paper`` prints."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grids import PaperRuns
from opera.cli.printing.paper import print_paper_table
from opera.core.errors import SettingError
from opera.experiments.paper import TABLES, ComparedRow, align_table, find_table


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
    assert re.search(r"DP +│ +100 │ +0\.812 │ 0\.420 ± 0\.028 │ +-39\.2 │", text)
    assert re.search(r"FT +│ +│ +0\.806 │ +not run │", text)
    assert "no variance" in text
    assert "B: HotpotQA, Recall@20" in text
    assert "NDCG@10 is retrieved_ideal_nDCG@10" in text
    alone = printed("retention", align_table(find_table("retention"), None), None)
    assert re.search(r"SP\.75 +│ +– │", alone)
    assert "not run" not in alone


def test_several_kinds_of_run_are_named(folder: PaperRuns) -> None:
    for masked in (True, False):
        folder.add("nfcorpus", {"method": "ft", "mask_known_positives": masked}, ndcg=[0.4], recall=[0.2])
    text = " ".join(printed("reversed", folder.rows("reversed"), ["m"]).split())
    assert "Several kinds of run match: ft; ft:mask_known_positives=false; select by --set." in text


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_prints(table: Any) -> None:
    assert table.number in printed(table.name, align_table(table, None), None)


def run(*arguments: str) -> Any:
    from opera.cli import app

    return CliRunner().invoke(app, ["paper", *arguments])


def test_without_a_table_it_lists_them() -> None:
    listed = run().stdout
    assert all(table.name in listed and table.number in listed for table in TABLES)
    assert [entry["table"] for entry in json.loads(run("--json").stdout)] == [table.name for table in TABLES]


def test_json_of_a_grid_of_run_folders(folder: PaperRuns) -> None:
    folder.add("nfcorpus", {"method": "dp"}, ndcg=[0.40, 0.44], recall=[0.2, 0.2])
    result = run("--table", "reversed", "--grid", str(folder.home), "--json")
    (present,) = [r for r in json.loads(result.stdout) if "2→5" in r["method"] and r["measure"] == "NDCG@10"]
    assert (present["paper"], present["grid"], present["seeds"], present["grid_steps"]) == (0.48, "run", 2, 100)
    assert (present["mean"], present["difference"]) == pytest.approx((0.42, -6.0))
    (absent,) = [r for r in json.loads(result.stdout) if r["method"] == "SP" and r["measure"] == "NDCG@10"]
    assert (absent["grid"], absent["mean"], absent["paper"]) == ("not run", None, 0.491)
    text = run("--table", "reversed", "--grid", str(folder.home), "--set", "update_interval=10").stdout
    assert "0.420" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--table", "mian"), "did you mean 'main'"),
        (("--table", "full", "--data", "fiqaa"), "did you mean 'FiQA'"),
        (("--data", "fiqa"), "needs --table"),
        (("--table", "main", "--steps", "5"), "give --grid"),
    ],
)
def test_mistakes_are_reported(arguments: tuple[str, ...], message: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, SettingError)
    assert message in str(error)
