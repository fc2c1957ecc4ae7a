"""The report's tables, on the page and as CSV."""

from __future__ import annotations

import csv
import html
import io
import shutil
from pathlib import Path

import pytest

import opera
from grids import RunsFolder
from opera.core.errors import SettingError
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.report.tables import ReportTable, tables_of
from opera.runs.folder import RunWriter

BEST = ' class="best"'
TABLE = ReportTable(
    "name",
    "a caption",
    {"method": str, "nDCG@10": str, "p": str},
    [{"method": "dp:k=0.5", "nDCG@10": MeanStd(0.12345, 0.001), "p": 2}, {"method": "x^~\\", "nDCG@10": 0.5}],
)


def test_csv_has_every_digit_and_a_column_of_deviations() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [
        ["method", "nDCG@10", "nDCG@10 std", "p"],
        ["dp:k=0.5", "0.12345", "0.001", "2"],
        ["x^~\\", "0.5", "", ""],
    ]


def test_a_spreadsheet_runs_no_label() -> None:
    rows = [{"method": "=HYPERLINK(1)", "n": 1}, {"method": "a\x1b[31m", "n": -2}]
    hostile = ReportTable("name", "a\x1bb", {"method": str, "n": str}, rows)
    assert hostile.csv() == "method,n\n'=HYPERLINK(1),1\na\\x1b[31m,-2\n"
    for formula in ("\uff1d1", "\uff0b1", "\uff0d1", "\uff20a", "\ufe661", "\u207a1", " =1", "\u3000+1"):
        labels = [{"method": formula, formula: formula}, {"method": "a", formula: MeanStd(0.5, None)}]
        beside_means = ReportTable("name", "", {"method": str, formula: str}, labels)
        assert beside_means.csv() == f"method,'{formula},'{formula} std\n'{formula},'{formula},\na,0.5,\n"


def test_the_files_hold_what_the_page_does(grid: Path, page_file: Path, tmp_path: Path) -> None:
    comparison = analyse_runs(grid, None)
    opera.report(grid, tmp_path / "page.html", tables=tmp_path / "tables")
    names = {f"i-topics-{kind}-{steps}" for kind in ("quality", "cost", "guard") for steps in (4, 16)}
    written = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    assert written.keys() == {f"{name}.csv" for name in names}
    rows = list(csv.DictReader(io.StringIO(written["i-topics-quality-16.csv"])))
    final = comparison.final_tables()[0]
    for row, result in zip(rows[1:], final.rows, strict=True):
        assert row["method"] == result.method
        assert float(row["nDCG@10"]) == result.measures["nDCG@10"].mean
        assert result.gain is not None
        assert float(row["points vs untrained"]) == 100 * result.gain.difference
    text = html.unescape(page_file.read_text())
    for table in tables_of(comparison, final):
        assert f'<p class="note">{table.caption}</p>' in text
        for cells in map(table.cells, table.rows):
            assert "".join(f"<td{BEST * best}>{cell}</td>" for cell, best in cells) in text


def test_the_guard_has_both_models(grid: Path) -> None:
    comparison = analyse_runs(grid)
    final = comparison.final_tables()[0]
    guard = next(table for table in tables_of(comparison, final) if "guard" in table.name)
    for row, result in zip(guard.rows, final.rows, strict=True):
        assert result.guard is not None
        assert row["R@20 fine-tuned"] == result.guard.fine_tuned["R@20"]
        assert row["R@20 handed over"] == result.measures["R@20"]


def test_false_draws_stand_beside_the_share_of_false_pairs(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path / "runs")
    pairs = {"query_id": list("aabb"), "times_drawn": [6, 0, 3, 1], "injected": [False, False, False, True]}
    RunWriter(folder.add(method="ft", noise="random", noise_share=0.3)).write_pairs(pairs)
    pairs["times_drawn"] = [8, 1, 1, 0]
    RunWriter(folder.add(method="dp", noise="random", noise_share=0.3)).write_pairs(pairs)
    comparison = analyse_runs(folder.home)
    (_, cost, *_) = tables_of(comparison, comparison.tables[0])
    assert "injected pairs, which are 25% of all" in cost.caption
    assert [cost.cells(row)[0][0] for row in cost.rows] == ["10%", "0%"]
    noise = [row.noise for row in comparison.tables[0].rows]
    assert noise == [{"pairs": 0.25, "draws": 0.1}, {"pairs": 0.25, "draws": 0}]


def test_files_are_replaced_on_request_alone(grid: Path, tmp_path: Path) -> None:
    shutil.copytree(grid, tmp_path / "grid", ignore=shutil.ignore_patterns("report.html"))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "i-topics-cost-4.csv").write_text("mine")
    with pytest.raises(SettingError, match=r"--tables .*i-topics-cost-4\.csv: exists; pass --overwrite"):
        opera.report(tmp_path / "grid", tables=tmp_path / "tables")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["i-topics-cost-4.csv"]
    assert not (tmp_path / "grid" / "report.html").exists()
    opera.report(tmp_path / "grid", tables=tmp_path / "tables", overwrite=True)
    assert (tmp_path / "tables" / "i-topics-cost-4.csv").read_text().startswith("method,ms per step")
    assert len(list((tmp_path / "tables").iterdir())) == 6
