"""``opera paper``."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from opera.cli import app
from opera.core.errors import SettingError
from opera.experiments.paper.tables import TABLES


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["paper", *arguments])


def test_without_a_table_it_lists_them() -> None:
    listed = run().stdout
    assert all(table.name in listed and table.number in listed for table in TABLES)
    assert [entry["table"] for entry in json.loads(run("--json").stdout)] == [table.name for table in TABLES]


def test_a_table_has_the_papers_figures_and_the_notes_on_its_data_sets() -> None:
    assert re.search(r"SP\.75 +│ +– │", run("--table", "retention").stdout)
    text = " ".join(run("--table", "main").stdout.split())
    assert "the paper: bge-large-en-v1.5" in text
    assert "B: HotpotQA, Recall@20" in text
    one = " ".join(run("--table", "main", "--data", "fiqa").stdout.split())
    assert "HotpotQA" not in one
    assert "L: the average ranks" in one
    records = json.loads(run("--table", "reversed", "--json").stdout)
    (sp,) = [r for r in records if r["method"] == "SP" and r["measure"] == "NDCG@10"]
    assert sp["paper"] == 0.491


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--table", "mian"), "did you mean 'main'"),
        (("--table", "full", "--data", "fiqaa"), "did you mean 'fiqa'"),
        (("--data", "fiqa"), "needs --table"),
    ],
)
def test_mistakes_are_reported(arguments: tuple[str, ...], message: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, SettingError)
    assert message in str(error)
