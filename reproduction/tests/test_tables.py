"""The paper's figures as they are shipped: complete, in their places, and consistent with each other."""

import re

import numpy as np
import pytest

from opera_paper.tables import AVERAGE, SUMMARIES, table_rows
from shared_fixtures import SHARED

METHODS = ("Pretrained", "FT", "InfoBatch", "SP", "DP")
LABELS = {
    "main": "tab:results", "qwen3": "tab:qwen3_results", "hierarchy": "tab:ablation_dp", "overhead": "tab:computation",
    "overhead-fever": "tab:computation_fever", "denoising": "tab:denoising", "cbs": "tab:consistency",
    "components": "tab:ablation_components", "bge-m3": "tab:bgem3_results", "reversed": "tab:reversed_schedule",
    "difficulty": "tab:per_query_difficulty",
}  # fmt: skip


@pytest.fixture(scope="module")
def source() -> str:
    """The paper's LaTeX without bold and underlining."""
    path = SHARED / "paper" / "opera.tex"
    if not path.is_file():
        pytest.skip("the paper is not beside the checkout (../shared/paper/opera.tex)")
    return re.sub(r"\\(?:textbf|underline)\{([^{}]*)\}", r"\1", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("table", "rows", "figures"),
    [
        ("main", 60, 120), ("qwen3", 20, 40), ("hierarchy", 4, 8), ("overhead", 5, 20), ("overhead-fever", 3, 9),
        ("denoising", 10, 20), ("cbs", 10, 20), ("components", 5, 10), ("bge-m3", 3, 6), ("reversed", 4, 8),
        ("difficulty", 12, 36), ("retention", 6, 3), ("full", 289, 2601), ("qwen3-full", 20, 460),
    ],
)  # fmt: skip
def test_none_is_missing(table, rows, figures):
    assert len(table_rows(table)) == rows
    assert sum(figure is not None for row in table_rows(table) for figure in row.values.values()) == figures
    assert len({(row.data, row.part, row.method, row.steps) for row in table_rows(table)}) == rows


@pytest.mark.parametrize(("table", "label"), LABELS.items())
def test_each_table_has_the_papers_figures(table, label, source):
    start = source.index(rf"\label{{{label}}}")
    begin = source.index(r"\begin{tabular}", start) if table != "cbs" else source[:start].rindex(r"\begin{tabular}")
    block = source[begin : source.index(r"\end{tabular}", begin)]
    figures = [float(figure) for figure in re.findall(r"(?<=& )-?\d+\.\d+", block)]
    assert sorted(figures) == sorted(
        figure
        for row in table_rows(table)
        for name, figure in row.values.items()
        if figure is not None and name != "queries"
    )


def test_main_has_them_in_their_places(source):
    block = source[: source.index(r"\label{tab:qwen3_results}")]
    for row in (row for row in table_rows("main") if row.data not in SUMMARIES):
        name = re.escape(row.data.replace("(head)", "(h)").replace("(torso)", "(t)"))
        (line,) = re.findall(rf"& {name}(?:\$\^\\dagger\$)? ((?:& [\d.]+ ){{10}})", block)
        figures, column = [float(figure) for figure in line.split("&")[1:]], METHODS.index(row.method)
        assert list(row.values.values()) == [figures[column], figures[column + 5]], row


@pytest.mark.parametrize("table", ["main", "qwen3", "cbs"])
def test_averages_are_means_of_their_rows(table):
    for row in (row for row in table_rows(table) if row.data == AVERAGE):
        for measure, stated in row.values.items():
            figures = [
                other.values[measure]
                for other in table_rows(table)
                if other.method == row.method and other.data not in SUMMARIES
            ]
            assert np.mean(np.array(figures, dtype=float)) == pytest.approx(stated, abs=0.00051), (row.method, measure)
