"""Tables as CSV and LaTeX, charts as SVG and PNG."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

import opera
from opera.core.errors import SettingError
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.groups import MeanStd
from opera.experiments.report.table_files import TableFile, table_files

TABLE = TableFile(
    "name",
    "50% of a_b & c",
    ("method", "nDCG@10", "p"),
    (("dp:k=0.5", MeanStd(0.12345, 0.001), 2), ("x^~\\", 0.5, None)),
)


def test_csv_has_every_digit_and_a_column_of_deviations() -> None:
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [
        ["method", "nDCG@10", "nDCG@10 std", "p"],
        ["dp:k=0.5", "0.12345", "0.001", "2"],
        ["x^~\\", "0.5", "", ""],
    ]


def test_a_spreadsheet_runs_no_label() -> None:
    hostile = TableFile("name", "a\x1bb", ("method", "n"), (("=HYPERLINK(1)", 1), ("a\x1b[31m", -2)))
    assert hostile.csv() == "method,n\n'=HYPERLINK(1),1\na\\x1b[31m,-2\n"
    for formula in ("\uff1d1", "\uff0b1", "\uff0d1", "\uff20a", "\ufe661", "\u207a1", " =1", "\u3000+1"):
        beside_means = TableFile("name", "", ("method", formula), ((formula, formula), ("a", MeanStd(0.5, None))))
        assert beside_means.csv() == f"method,'{formula},'{formula} std\n'{formula},'{formula},\na,0.5,\n"
    assert r"\caption{a\textbackslash{}x1bb}" in hostile.latex()


def test_latex_is_escaped_and_has_booktabs_rules() -> None:
    text = TABLE.latex()
    assert r"\caption{50\% of a\_b \& c}" in text
    assert r"dp:k=0.5 & $0.123 \pm 0.001$ & 2 \\" in text
    assert r"x\textasciicircum{}\textasciitilde{}\textbackslash{} & $0.500$ &  \\" in text
    rules = [line for line in text.splitlines() if line.endswith("rule")]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_the_files_hold_what_the_page_does(grid: Path, page_file: Path, tmp_path: Path) -> None:
    comparison = analyse_runs(grid, None)
    opera.report(grid, tmp_path / "page.html", tables=tmp_path / "tables", charts=tmp_path / "charts")
    names = {table.name for table in table_files(comparison)}
    assert names == {f"i-topics-{kind}-{steps}" for kind in ("quality", "cost", "guard") for steps in (4, 16)} | {
        "i-topics-difficulty-16"
    }
    written = {path.name: path.read_text() for path in (tmp_path / "tables").iterdir()}
    assert written.keys() == {f"{name}{suffix}" for name in names for suffix in (".csv", ".tex")}
    embedded = page_file.read_text().split('id="report-data">')[1].split("</script>")[0]
    in_page = json.loads(embedded)["tables"]
    assert {f"{name}.{kind}": text for name, kinds in in_page.items() for kind, text in kinds.items()} == written
    rows = list(csv.DictReader(io.StringIO(written["i-topics-quality-16.csv"])))
    for row, result in zip(rows[1:], comparison.final_tables()[0].rows, strict=True):
        assert row["method"] == result.method
        assert float(row["nDCG@10"]) == result.measures["nDCG@10"].mean
    charts = sorted(path.name for path in (tmp_path / "charts").iterdir())
    kinds = ("guard", "quality-by-steps", "quality-by-time", "training-loss")
    assert charts == [f"i-topics-{kind}-16{suffix}" for kind in kinds for suffix in (".png", ".svg")]
    assert "<svg" in (tmp_path / "charts" / "i-topics-guard-16.svg").read_text()
    assert (tmp_path / "charts" / "i-topics-guard-16.png").read_bytes().startswith(b"\x89PNG")


def test_files_are_replaced_on_request_alone(grid: Path, tmp_path: Path) -> None:
    shutil.copytree(grid, tmp_path / "grid", ignore=shutil.ignore_patterns("report.html"))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "i-topics-cost-4.tex").write_text("mine")
    with pytest.raises(SettingError, match=r"--tables .*i-topics-cost-4\.tex: exists; pass --overwrite"):
        opera.report(tmp_path / "grid", tables=tmp_path / "tables")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["i-topics-cost-4.tex"]
    assert not (tmp_path / "grid" / "report.html").exists()
    opera.report(tmp_path / "grid", tables=tmp_path / "tables", overwrite=True)
    assert "booktabs" not in (tmp_path / "tables" / "i-topics-cost-4.tex").read_text()
    assert len(list((tmp_path / "tables").iterdir())) == 14
