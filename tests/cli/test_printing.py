"""What commands print of grids and inspections."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import opera
from grids import RunsFolder, around, guard_record
from opera.cli.compare import print_results
from opera.cli.inspect import print_inspection
from opera.cli.screen import Screen, flat
from opera.experiments.analysis import PRIMARY, Comparison, analyse_runs
from opera.experiments.analysis.verdict import verdict
from opera.runs.record import GridRecord, ShareMean


def printed(by: Callable[..., None], *what: Any, width: int = 160) -> str:
    file = io.StringIO()
    by(Screen(file, width), *what)
    return file.getvalue()


def test_text_is_made_safe() -> None:
    assert flat("a\x1b]0;owned\x07b\n\tc [red]d[/red]") == "a ]0;owned b c [red]d[/red]"


class TestGrids:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunsFolder:
        return RunsFolder(tmp_path / "runs")

    def shown(self, comparison: Comparison, width: int = 160) -> str:
        return printed(print_results, comparison, Path("grid"), width=width)

    def test_shared_settings_unfinished_runs_and_missing_cells(self, folder: RunsFolder) -> None:
        for method in ("ft", "dp"):
            folder.add(method=method, temperature=0.05, corpus_text="text")
        unfinished, other = folder.add(method="sp", status="running"), folder.add(method="rp")
        (other / "run.json").write_text((other / "run.json").read_text().replace('"format": 5', '"format": 1'))
        GridRecord(model="models/small", settings={}, cells=["run0", "run1", "run2"]).write(folder.home)
        text = self.shown(analyse_runs(folder.home), 400)
        assert "all runs: temperature=0.05, corpus_text=text" in text
        assert f"left out, unfinished: {unfinished}" in text
        assert f"left out, written by another version of OPERA: {other}" in text
        assert "1 of the grid's 3 runs is not finished" in text
        assert "handed over" not in text

    def test_ranks_and_the_verdict_of_each_data_set_with_its_best_model(self, folder: RunsFolder) -> None:
        folder.add(method="ft", after=around(0.5, 1), before=[0.3] * 9)
        best = folder.add(method="dp", after=around(0.6, 2), before=[0.3] * 9)
        folder.add(method="ft", data="data/[bold]two", after=around(0.05), before=[0.1] * 9)
        folder.add(method="dp", data="data/[bold]two", after=around(0.02), before=[0.1] * 9)
        comparison = analyse_runs(folder.home)
        text = self.shown(comparison, 400)
        lines = text.splitlines()
        for found in verdict(comparison):
            assert found.title in lines
            assert all(f"- {bullet}" in lines for bullet in found.bullets)
        assert [line for line in lines if line.startswith("- Model: ")] == [f"- Model: {best / 'model'}"]
        assert f"- Best method: none, keep the base model ({PRIMARY} 0.100; ft: 0.050)" in lines
        assert "[bold]two" in text
        ranks = text[text.index("average rank over") :]
        assert re.search(r"\bft +1\.50", ranks)
        assert re.search(r"\bdp +1\.50", ranks)

    def test_both_models_with_what_the_guard_chose(self, folder: RunsFolder) -> None:
        for method, seed in product(("ft", "dp"), (0, 1)):
            tuned, after = around(0.4, seed), around(0.5, seed)
            verdict = "better" if method == "ft" or seed else "same"
            share = 0.25 + 0.5 * seed
            chosen = guard_record(share=share, verdict=verdict, curve=[ShareMean(share=share, mean=0.34)])
            folder.add(method=method, seed=seed, before=[0.3] * 9, fine_tuned=tuned, after=after, chosen=chosen)
        text = self.shown(analyse_runs(folder.home))
        rows = [line.split() for line in text.splitlines() if "0.25 0.75" in line]
        assert [row[:5] for row in rows] == [
            ["ft", "0.25", "0.75", "better", "better"],
            ["dp", "0.25", "0.75", "same", "better"],
        ]
        assert rows[0][5:8] == ["0.400", "±", "0.000"]
        assert "+10.0" in rows[0]


class TestInspections:
    def test_one_page(self, beir: Path, static_model: Path) -> None:
        page = printed(print_inspection, opera.inspect(beir, model=static_model), width=100)
        wanted = ["train queries", "Findings", "hard for this model", "16 test queries are few", "Next steps"]
        assert sorted([*wanted, "Hardest", "--json"], key=page.index) == [*wanted, "Hardest", "--json"]
        assert len(page.splitlines()) <= 40

    def test_data_of_one_pair_without_other_splits(self, tmp_path: Path, static_model: Path) -> None:
        path = tmp_path / "pairs.jsonl"
        path.write_text(json.dumps({"query": "t1w5", "pos": ["t1w1"]}))
        text = printed(print_inspection, opera.inspect(path, model=static_model))
        assert "only train is given" in text
