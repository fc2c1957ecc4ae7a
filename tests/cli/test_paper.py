"""``opera paper``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grids import PaperRuns
from opera.cli import app
from opera.core.errors import SettingError
from opera.experiments.paper.tables import TABLES


@pytest.fixture
def folder(tmp_path: Path) -> PaperRuns:
    return PaperRuns(tmp_path / "grid")


def run(*arguments: str) -> Any:
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
