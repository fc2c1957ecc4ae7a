"""The report: one page that loads nothing, in which names are only text."""

from __future__ import annotations

import html
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import opera
from grids import RunsFolder
from opera.core.errors import RunFolderError, SettingError
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.verdict import verdict
from opera.experiments.report.write import render
from opera.runs.record import GridRecord


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
            if name.startswith("on") or (name in ("src", "href", "action") and (value or "")[:1] != "#"):
                self.active.append((name, value))


def test_the_same_runs_give_the_same_page_and_it_loads_nothing(grid: Path, page_file: Path) -> None:
    text = page_file.read_text()
    assert text == render(analyse_runs(grid))
    page = Page(text)
    assert "script" not in page.elements
    assert page.active == [("href", "data:,")]
    assert "default-src 'none'" in text
    assert "script-src" not in text
    assert "url(" not in text


def test_hostile_names_never_become_markup(page_file: Path, tmp_path: Path) -> None:
    assert "i" not in Page(page_file.read_text()).elements
    folder = RunsFolder(tmp_path / "runs")
    for number, label in enumerate(("</script><script>x", '" onclick="x', "<img src=x onerror=x>", "a}b{{ 1 }}")):
        for steps in (4, 8):
            path = folder.add(method="ft", seed=number, max_steps=steps, data=f"data/{label}")
            record = json.loads((path / "run.json").read_text())
            record["identity"]["method"] = record["settings"]["method"] = label
            record["device"] = record["model"]["source"] = label
            (path / "run.json").write_text(json.dumps(record))
    text = render(analyse_runs(folder.home))
    page = Page(text)
    assert not page.elements & {"script", "img", "i", "b"}
    assert page.active == [("href", "data:,")]
    assert "a}b{{ 1 }}" in text


def test_it_shows_the_results_and_the_verdict(grid: Path, page_file: Path) -> None:
    comparison = analyse_runs(grid)
    text = page_file.read_text()
    final = comparison.final(comparison.tables[0].data)
    for row in final.rows:
        assert f"{row.measures['nDCG@10'].mean:.3f}" in text
    (only,) = verdict(comparison)
    head = html.unescape(text.split("<nav>")[0].split("<body>")[1])
    assert only.title == "<i>topics: 16 steps, 2 seeds"
    assert f"<p>{only.title}</p>" in head
    assert all(f"<li>{bullet}</li>" in head for bullet in only.bullets)
    best = max((row for row in final.rows if row.tests), key=lambda row: row.tests["nDCG@10"].difference)
    against_ft = next(bullet for bullet in only.bullets if bullet.startswith("Against ft: "))
    assert best.method in against_ft
    assert f"{100 * best.tests['nDCG@10'].low:+.1f}".replace("-", "−") in against_ft
    assert "corrected for 2 methods" in against_ft


def test_one_run_has_a_report_too(grid: Path, tmp_path: Path) -> None:
    run = opera.Run.open(grid / "dp" / "steps16" / "seed0")
    text = opera.report(run.path, tmp_path / "one.html").read_text()
    before, after = (run.measures[when]["nDCG@10"] for when in ("before", "after"))
    assert f"from {before:.3f} to {after:.3f}" in text
    assert "Holm" not in text.split("<main>")[1]


def test_wrong_input_is_refused_and_nothing_is_written(grid: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no finished run"):
        opera.report(tmp_path)
    with pytest.raises(SettingError, match="no run has this label; there are ft, sp, dp"):
        opera.report(grid, tmp_path / "page.html", baseline="infobatch")
    with pytest.raises(SettingError, match=r"must end in \.html"):
        opera.report(grid, tmp_path / "page.pdf")
    assert not list(tmp_path.iterdir())


def test_missing_cells_are_reported_first(grid: Path, tmp_path: Path) -> None:
    part = shutil.copytree(grid, tmp_path / "part")
    cells = [str(path.parent.relative_to(part)) for path in part.rglob("run.json")]
    shutil.rmtree(part / cells[0])
    GridRecord(model="model", settings={}, cells=cells).write(part)
    other = part / cells[1]
    (other / "run.json").write_text((other / "run.json").read_text().replace('"format": 4', '"format": 1'))
    text = opera.report(part).read_text()
    assert f"Left out, written by another version of OPERA: {other}." in text
    assert f"2 of this grid's {len(cells)} cells are not finished" in text.split("<nav>")[0].split("<body>")[1]


def test_a_damaged_run_is_left_out_and_named(grid: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(grid / "dp" / "steps4" / f"seed{int(name == 'other')}", tmp_path / "runs" / name)
    (tmp_path / "runs" / "other" / "pairs.parquet").write_bytes(b"PAR1 and <script>")
    text = opera.report(tmp_path / "runs", tmp_path / "report.html").read_text()
    assert f"Left out, damaged: {tmp_path / 'runs' / 'other' / 'pairs.parquet'}: is not as OPERA wrote it" in text
    with pytest.raises(opera.RunFolderError, match=r"pairs\.parquet: is not as OPERA wrote it"):
        opera.report(tmp_path / "runs" / "other", tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()
