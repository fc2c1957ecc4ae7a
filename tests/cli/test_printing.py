"""What commands print of grids and inspections."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opera
from grids import RunsFolder, around
from opera.cli.compare import print_results
from opera.cli.inspect import dp_advice, print_inspection
from opera.cli.options import Screen
from opera.experiments.results import analyse_runs
from opera.experiments.verdict import conclusion, title


def printed(by: Callable[..., None], *results: Any, width: int = 400) -> str:
    file = io.StringIO()
    by(Screen(file, width), *results)
    return file.getvalue()


def test_a_grid_has_the_verdict_of_each_data_set_with_its_best_model(tmp_path):
    folder = RunsFolder(tmp_path / "runs")
    folder.add(method="ft", final=around(0.5, 1), base=[0.3] * 9)
    best = folder.add(method="dp", final=around(0.6, 2), base=[0.3] * 9)
    for method, mean in (("ft", 0.05), ("dp", 0.02)):
        folder.add(method=method, data="data/[bold]two", final=around(mean), base=[0.1] * 9)
    unfinished = folder.add(method="sp", status="running")
    comparison = analyse_runs(folder.home)
    text = printed(print_results, comparison, Path("grid"))
    lines = text.splitlines()
    for table in comparison.final_tables():
        assert lines[lines.index(title(table)) + 1] == f"{conclusion(table, 'ft')}."
    assert [line for line in lines if line.startswith("Model: ")] == [f"Model: {best / 'model'}"]
    assert "[bold]two" in text
    assert f"left out: {unfinished}: is not finished" in text


def test_an_inspection_fits_on_one_page(beir, static_model):
    page = printed(print_inspection, opera.inspect(beir, model=static_model), width=100)
    wanted = ["train queries", "Findings", "16 test queries are few", "Next steps", "Hardest"]
    assert sorted(wanted, key=page.index) == wanted
    assert len(page.splitlines()) <= 40


@pytest.mark.parametrize(("hard", "advice"), [(0.02, "unlikely to gain"), (0.49, "unlikely"), (0.61, "dp may gain")])
def test_inspect_says_whether_dp_may_gain(hard, advice):
    assert advice in dp_advice(hard)


def test_data_of_one_pair_without_other_splits_is_inspected(tmp_path, static_model):
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"query": "t1w5", "pos": ["t1w1"]}))
    assert "The data has only train" in printed(print_inspection, opera.inspect(path, model=static_model))
