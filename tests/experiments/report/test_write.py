"""The report: one page that loads nothing, in which corpus text is only text."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opera
from opera.core.errors import RunFolderError, SettingError
from opera.data import SOURCES
from opera.experiments.analysis import analyse_runs
from opera.experiments.analysis.verdict import verdict
from opera.experiments.report.write import render
from opera.runs.grid_record import GridRecord

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'><b>bold</b> & \u2028 ${x}"


def test_the_same_runs_give_the_same_page_and_it_loads_nothing(grid: Path, page_file: Path) -> None:
    text = page_file.read_text()
    assert text == render(analyse_runs(grid))
    own = text.split("<body>")[1].split("<script")[0]
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?!#|data:)[^\"'\s>]+", own)
    assert "default-src 'none'" in text
    assert "script-src 'sha256-" in text


def test_hostile_text_never_becomes_markup(page_file: Path) -> None:
    text = page_file.read_text()
    assert "window.hacked = 1</script>" not in text
    assert "<i>topics" not in text
    assert "\u2028" not in re.search(r'id="report-data">(.*?)</script>', text, re.S)[1]  # type: ignore[index]
    embedded = json.loads(re.search(r'id="report-data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
    assert any(HOSTILE in shown for shown in embedded["data"][0]["explorer"]["query_texts"])


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
    assert "Holm" not in text.split("<main>")[1].split("<script")[0]


def test_missing_texts_are_reported(hostile_data: Path, grid: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(hostile_data, moved)
    run = shutil.copytree(grid / "dp" / "steps16" / "seed0", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["data"]["source"] = str(tmp_path / "not-here")
    (run / "run.json").write_text(json.dumps(record))
    assert "pass the data to opera report --data" in opera.report(run).read_text()
    assert "pass the data to opera report --data" not in opera.report(run, data=moved).read_text()


def test_a_run_does_not_choose_code_that_the_report_runs(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run from elsewhere can name any data; only files are read for it."""
    asked = []

    class Source:
        description = "anything"

        def matches(self, source: str) -> bool:
            asked.append(source)
            return False

        def load(self, source: str) -> opera.RetrievalData:
            raise AssertionError

    monkeypatch.setattr("opera.data.sources.SOURCES", [Source(), *SOURCES])
    run = shutil.copytree(grid / "dp" / "steps16" / "seed0", tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    for source in ("python:json", str(tmp_path), str(tmp_path / "a.csv"), "a\0b", "x" * 5000):
        record["data"]["source"] = source
        (run / "run.json").write_text(json.dumps(record))
        text = opera.report(run, tmp_path / "page.html", overwrite=True).read_text()
        assert "so ids stand for texts" in text or "no texts: " in text
        assert not asked
    assert "is not what the runs were trained on" in opera.report(run, data="python:json", overwrite=True).read_text()
    assert asked


def test_a_loss_that_diverged_is_a_gap(grid: Path, tmp_path: Path) -> None:
    run = shutil.copytree(grid / "dp" / "steps16" / "seed0", tmp_path / "run")
    trace = pq.read_table(run / "trace.parquet")
    place = trace.column_names.index("loss")
    losses = [*trace["loss"].to_pylist()[:8], *[float("nan")] * 7, float("inf")]
    pq.write_table(
        trace.set_column(place, "loss", pa.array(losses, trace.schema.field(place).type)), run / "trace.parquet"
    )
    embedded = json.loads(re.search(r'id="report-data">(.*?)</script>', opera.report(run).read_text(), re.S)[1])  # type: ignore[index]
    assert [value is None for value in embedded["data"][0]["losses"]["dp"]["loss"]] == [False] * 8 + [True] * 8


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
    (other / "run.json").write_text((other / "run.json").read_text().replace('"format": 3', '"format": 1'))
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
