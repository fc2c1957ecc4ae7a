"""The report of a grid: one page that begins with the verdict, loads nothing, and in which names are only text."""

import html
import json
import shutil
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opera
from grids import RunsFolder, around, guard_record
from opera.experiments.charts import forest_plots, sampled_by_similarity
from opera.experiments.report import render
from opera.experiments.results import analyse_runs
from opera.experiments.tables import tables_of
from opera.experiments.verdict import conclusion, title
from opera.run_folder.folder import PAIRS_FILE, RunWriter

SIMILARITY = np.array([0.1, 0.9, 0.5, 0.3], dtype=np.float32)
BEST = ' class="best"'
SAVED = "data:image/svg+xml,"


def add_run(folder: RunsFolder, method: str, **run: Any) -> None:
    """Add a run with three queries, a, b and c, of which a has two documents. From step 2 on a is not drawn, b twice as
    often as by fine-tuning."""
    path = folder.add(method=method, **run)
    pairs = {"query_id": list("aabc"), "doc_id": list("wxyz"), "times_drawn": [2, 0, 1, 1], "similarity": SIMILARITY}
    RunWriter(path).write_table(PAIRS_FILE, pairs)
    fair, later = [0, 1, 2, 2, 3, 3], [2, 2, 2, 2, 3, 3]
    RunWriter(path).write_draws(np.array(fair + 4 * later, dtype=np.int32), per_step=6)


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    """Two methods, two seeds, two numbers of steps, on data whose name tries to break out of the page."""
    folder = RunsFolder(tmp_path_factory.mktemp("grid"))
    for number, (method, seed, steps) in enumerate(product(("ft", "dp"), (0, 1), (4, 16))):
        values = {"base": around(0.3), "fine_tuned": around(0.4, number), "final": around(0.4 + number / 100, number)}
        add_run(folder, method, seed=seed, max_steps=steps, data="data/<i>topics", chosen=guard_record(), **values)
    return folder.home


@pytest.fixture(scope="module")
def page(grid) -> str:
    return opera.report(grid).read_text()


class Page(HTMLParser):
    """What a page is made of: its elements, and attributes that could run or load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.active: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attrs:
            if tag == "a" and name == "href" and (value or "").startswith(SAVED):
                continue  # which a page saves and does not open
            if name.startswith("on") or (name in ("src", "href", "action") and (value or "")[:1] != "#"):
                self.active.append((name, value))


def test_figure_1_has_the_ratio_to_fine_tuning_by_similarity(folder):
    add_run(folder, "sp")
    (group,) = folder.groups()
    ratio = sampled_by_similarity(group)
    assert ratio[0] == pytest.approx([1, 1, 1, 1])
    assert ratio[2] == pytest.approx([0, 1, 2, 0])


def test_the_page_has_the_tables_and_the_guards_has_both_models(grid, page):
    comparison, text = analyse_runs(grid), html.unescape(page)
    (final,) = comparison.final_tables()
    tables = tables_of(comparison, final)
    for table in tables:
        assert f'<p class="note">{table.caption}</p>' in text
        for cells in map(table.cells, table.rows):
            assert "".join(f"<td{BEST * best}>{cell}</td>" for cell, best in cells) in text
    assert f"base   {100 * final.base['nDCG@10']:.1f}<" in next(forest_plots(final, comparison.baseline)).svg
    for row, result in zip(tables[-1].rows, final.rows, strict=True):
        assert row["nDCG@10 fine-tuned"] == result.guard.fine_tuned["nDCG@10"].in_points()
        assert row["nDCG@10 final"] == result.measures["nDCG@10"].in_points()


def test_the_same_runs_give_the_same_page_and_it_loads_nothing(grid, page):
    assert page == render(analyse_runs(grid), grid)
    assert {"svg"} <= Page(page).elements
    assert not Page(page).elements & {"script", "i"}
    assert Page(page).active == [("href", "data:,")]
    assert "default-src 'none'" in page
    assert "url(" not in page


def test_hostile_names_never_become_markup(folder):
    for number, label in enumerate(("</script><script>x", '" onclick="x', "<img src=x onerror=x>", "a}b{{ 1 }}")):
        path = folder.add(method="ft", seed=number, data=f"data/{label}")
        record = json.loads((path / "run.json").read_text())
        record["identity"]["method"] = record["settings"]["method"] = label
        record["device"] = record["model"]["source"] = label
        (path / "run.json").write_text(json.dumps(record))
    text = render(analyse_runs(folder.home), folder.home)
    assert not Page(text).elements & {"script", "img", "i", "b"}
    assert Page(text).active == [("href", "data:,")]
    assert "a}b{{ 1 }}" in text


def test_it_begins_with_the_verdict(grid, page):
    comparison = analyse_runs(grid)
    (final,) = comparison.final_tables()
    head = html.unescape(page.split("<nav>")[0].split("<body>")[1])
    sentence = conclusion(final, comparison.baseline)
    assert 0 < head.index(f"<p>{sentence}.</p>") < head.index(title(final)) < head.index("<svg")


def test_what_is_missing_or_left_out_is_said(grid, tmp_path):
    part = shutil.copytree(grid, tmp_path / "part")
    cells = sorted(path.parent.name for path in part.rglob("run.json"))
    (part / cells[0] / "run.json").write_text("<script>")
    text = opera.report(part).read_text()
    assert f"Left out: {part / cells[0] / 'run.json'}: is damaged" in text
