"""The report: one page that needs nothing else, in which corpus text is only text; looked at in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opera
from conftest import write_beir
from opera.core.errors import RunFolderError, SettingError
from opera.experiments.analysis import compare_runs, find_groups
from opera.experiments.report.explorer import explorer
from opera.experiments.report.verdict import points, verdict
from opera.experiments.report.write import render
from processes import DEADLINE

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'><b>bold</b> & \u2028 ${x}"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def hostile_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder whose texts and ids try to break out of the page."""
    folder = write_beir(tmp_path_factory.mktemp("page") / "<i>topics")
    for name in ("corpus", "queries"):
        path = folder / f"{name}.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            record["text"] = f"{record['text']} {HOSTILE}"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture(scope="module")
def grid(hostile_data: Path, static_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, two seeds, two numbers of steps."""
    out = tmp_path_factory.mktemp("grid")
    for method in ("ft", "sp", "dp"):
        for seed in (0, 1):
            for steps in (4, 16):
                opera.adapt(
                    hostile_data,
                    model=static_model,
                    out=out / method / f"steps{steps}" / f"seed{seed}",
                    method=method,
                    seed=seed,
                    max_steps=steps,
                    save_steps=100,  # never
                    per_device_train_batch_size=8,
                    learning_rate=0.05,
                )
    return out


@pytest.fixture(scope="module")
def page_file(grid: Path) -> Path:
    return opera.report(grid)


def test_the_same_runs_give_the_same_page_and_it_loads_nothing(grid: Path, page_file: Path) -> None:
    text = page_file.read_text()
    assert text == render(compare_runs(grid))
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


def test_it_tells_what_the_analysis_says(grid: Path, page_file: Path) -> None:
    comparison = compare_runs(grid)
    text = page_file.read_text()
    final = comparison.final(comparison.tables[0].data)
    for row in final.rows:
        assert f"{row.measures['nDCG@10'].mean:.3f}" in text
    told = verdict(comparison)
    best = max((row for row in final.rows if row.tests), key=lambda row: row.tests["nDCG@10"].difference)
    assert best.method in told
    assert f"{100 * best.tests['nDCG@10'].low:+.1f}".replace("-", "−") in told
    assert "after 16 steps" in told


def test_one_run_has_a_report_too(grid: Path, tmp_path: Path) -> None:
    run = opera.Run.open(grid / "dp" / "steps16" / "seed0")
    text = opera.report(run.path, tmp_path / "one.html").read_text()
    before, after = (run.measures[when]["nDCG@10"] for when in ("before", "after"))
    assert f"from {before:.3f} to {after:.3f}" in text
    assert "Holm" not in text.split("<main>")[1].split("<script")[0]


def test_texts_that_are_gone_are_told_of(hostile_data: Path, grid: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(hostile_data, moved)
    run = shutil.copytree(grid / "dp" / "steps16" / "seed0", tmp_path / "run")
    about = json.loads((run / "run.json").read_text())
    about["data"]["source"] = str(tmp_path / "not-here")
    (run / "run.json").write_text(json.dumps(about))
    assert "opera report --data says where it is" in opera.report(run).read_text()
    assert "opera report --data says where it is" not in opera.report(run, data=moved).read_text()


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


def test_of_many_queries_those_that_moved_most_are_shown(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.experiments.report.explorer.MOST_QUERIES", 4)
    (group,) = [group for group in find_groups(grid / "dp") if group.steps == 16]
    shown = [query["id"] for query in explorer([group], None)["queries"]]
    names, moved = [], []
    for table in group.query_tables:
        names += table["query_id"].to_pylist()
        moved.append(table["after nDCG@10"].to_numpy() - table["before nDCG@10"].to_numpy())
    changes = np.abs(np.mean(moved, axis=0))
    assert len(shown) == 4
    assert min(changes[names.index(name)] for name in shown) >= np.sort(changes)[-4] - 1e-9


def test_the_verdict_is_short_and_says_what_is_corrected(grid: Path) -> None:
    comparison = compare_runs(grid)
    assert "(2 seeds)" in verdict(comparison)
    assert "corrected for 2 methods" in verdict(comparison)
    table = comparison.final(comparison.tables[0].data)
    row = next(row for row in table.rows if row.tests)
    worse = replace(row.tests["nDCG@10"], difference=-0.1, t_test_holm=0.001)
    rows = [replace(row, method=f"sp:k=0.{at}", tests={"nDCG@10": worse}) for at in range(1, 7)]
    told = verdict(replace(comparison, tables=(replace(table, rows=tuple(rows)),)))
    assert "; 6 of the 6 others are worse; the untrained model is" in told
    alone = replace(row, method="sp", tests={})
    assert verdict(replace(comparison, tables=(replace(table, rows=(alone,)),))).endswith("it is not finished there.")
    assert points(-0.0004) == "0.0"
    assert points(-0.001) == "−0.1"


def test_wrong_input_is_refused_and_nothing_is_written(grid: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="holds no finished run"):
        opera.report(tmp_path)
    with pytest.raises(SettingError, match="no run is called so; there are ft, sp, dp"):
        opera.report(grid, tmp_path / "page.html", baseline="infobatch")
    with pytest.raises(SettingError, match=r"must end in \.html"):
        opera.report(grid, tmp_path / "page.pdf")
    assert not list(tmp_path.iterdir())


def test_the_verdict_speaks_of_the_untrained_model_and_of_noise(grid: Path) -> None:
    comparison = compare_runs(grid)
    table = comparison.final(comparison.tables[0].data)
    assert table.rows[0].gain is not None
    hurt = replace(table.rows[0].gain, difference=-0.02, t_test_holm=0.03)
    rows = tuple(replace(row, gain=hurt) for row in table.rows)
    told = verdict(replace(comparison, tables=(replace(table, rows=rows),), shared={"noise": "random", "lag": 2}))
    assert told.startswith("With false pairs put in (noise=random), on <i>topics")
    assert "no method is shown to beat the untrained model: " in told
    assert "−2.0 points" in told
    assert "the untrained model is" in verdict(comparison)


def test_cells_that_are_missing_are_told_first(grid: Path, tmp_path: Path) -> None:
    part = shutil.copytree(grid, tmp_path / "part")
    cells = [str(path.parent.relative_to(part)) for path in part.rglob("run.json")]
    shutil.rmtree(part / cells[0])
    (part / "grid.json").write_text(json.dumps({"cells": cells}))
    text = opera.report(part).read_text()
    assert f"1 of this grid's {len(cells)} cells are not finished" in text.split("<nav>")[0].split("<body>")[1]


class Opened:
    """A page in a browser, with everything it said and asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context}).new_page()
        self.page.set_default_timeout(1000 * DEADLINE)
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready=true]")

    def texts(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_text_contents())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs a browser: apt-get install chromium, or any Chromium on the PATH")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=1000 * DEADLINE
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(browser: Any, page_file: Path) -> Opened:
    return Opened(browser, page_file)


class TestInABrowser:
    def test_nothing_is_wrong_and_nothing_leaves_the_page(self, opened: Opened, page_file: Path) -> None:
        assert opened.said == []
        leaving = [url for url in opened.asked if not url.startswith(("data:", "blob:"))]
        assert leaving == [page_file.resolve().as_uri()]

    def test_the_charts_have_drawn(self, opened: Opened) -> None:
        drawn = opened.page.evaluate(
            "[...document.querySelectorAll('.chart')].map((node) => [node.id || node.dataset.chart, "
            "node.querySelectorAll('.trace path, .bars path, .heatmaplayer image, .scatterlayer path').length])"
        )
        assert len(drawn) == 7
        assert all(count > 0 for _, count in drawn), drawn

    def test_hostile_text_stays_text(self, opened: Opened) -> None:
        assert opened.page.evaluate("window.hacked === undefined")
        assert opened.page.locator("main img, #explorer b, #explorer script").count() == 0
        assert "onerror='window.hacked = 2'><b>bold</b>" in opened.texts("#explorer-query h3")[0]
        assert "<b>bold</b>" in opened.texts("#explorer-query .body")[0]

    def test_no_script_but_the_page_s_own_runs(self, browser: Any, page_file: Path) -> None:
        opened = Opened(browser, page_file)
        added = "document.createElement('script')"
        opened.page.evaluate(f"document.body.append(Object.assign({added}, {{textContent: 'window.hacked = 3'}}))")
        assert opened.page.evaluate("window.hacked === undefined")
        assert any("Content Security Policy" in said for said in opened.said)

    def test_tables_sort_both_ways_below_the_untrained_row(self, opened: Opened) -> None:
        table = opened.page.locator("#data-0 table").first
        head = table.locator("thead th").nth(1)

        def column() -> list[float]:
            return [float(row.split()[0]) for row in table.locator("tbody td:nth-child(2)").all_inner_texts()]

        untrained = column()[0]
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        first = column()
        assert first[0] == untrained
        assert first[1:] == sorted(first[1:], reverse=True)
        head.locator("button").click()
        assert column() == [untrained, *sorted(first[1:])]

    def test_the_explorer_filters(self, opened: Opened, grid: Path) -> None:
        page = opened.page
        everything = page.locator("#explorer-list li").count()
        assert everything == opera.Run.open(grid / "dp" / "steps16" / "seed0").per_query().num_rows
        page.select_option("#explorer-against", "untrained")
        counts = {}
        for outcome, sign in (("won", "+"), ("lost", "−"), ("tied", "+−")):
            page.select_option("#explorer-outcome", outcome)
            changes = opened.texts("#explorer-list .change")
            assert all(change[0] in sign for change in changes)
            counts[outcome] = len(changes)
        assert sum(counts.values()) == everything
        assert counts["won"] > 0
        page.select_option("#explorer-outcome", "all")
        thirds = []
        for third in ("hard", "medium", "easy"):
            page.select_option("#explorer-third", third)
            thirds.append(page.locator("#explorer-list li").count())
        assert sum(thirds) == everything
        assert max(thirds) - min(thirds) <= 1
        page.select_option("#explorer-third", "all")
        page.fill("#explorer-words", "nothing has these words")
        assert opened.texts("#explorer-query") == ["No query is like that."]
        page.fill("#explorer-words", "")
        page.locator("#explorer-list button").nth(2).click()
        assert opened.texts("#explorer-query h3")[0].startswith(opened.texts("#explorer-list .text")[2][:10])
        assert page.locator("#explorer-query li.relevant").count() > 0

    def test_the_slider_moves_the_pictures(self, opened: Opened) -> None:
        page = opened.page
        page.select_option("#sampling-method", "dp")

        def threshold() -> str:
            return next(text for text in opened.texts("#similarities .annotation-text") if text.startswith("T ="))

        start = threshold()
        page.locator("#sampling-step").fill("3")
        assert opened.texts("#sampling-at") == ["16 of 16"]
        assert threshold() != start
        page.select_option("#sampling-method", "ft")
        assert "keeps no similarities" in opened.texts("#similarities")[0]
        page.select_option("#sampling-method", "sp")
        assert any(text.startswith("kept from") for text in opened.texts("#similarities .annotation-text"))

    def test_it_fits_a_phone_and_the_dark(self, browser: Any, page_file: Path) -> None:
        phone = Opened(browser, page_file, viewport={"width": 390, "height": 844}, color_scheme="dark")
        assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert phone.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert phone.said == []

    def test_it_prints_light(self, browser: Any, page_file: Path) -> None:
        dark = Opened(browser, page_file, color_scheme="dark")
        before = dark.page.evaluate("colourOf('dp')")
        dark.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert dark.page.evaluate("colourOf('dp')") != before
        assert dark.page.evaluate("[...document.querySelectorAll('details')].every((part) => part.open)")
        assert len(dark.page.pdf()) > 20_000

    def test_printed_charts_stay_in_their_columns(self, browser: Any, page_file: Path) -> None:
        page = Opened(browser, page_file).page
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1000})
        outside = page.evaluate(
            "[...document.querySelectorAll('.chart')].filter((node) => { const svg = node.querySelector('.main-svg');"
            " if (!svg) return false; const [a, b] = [svg, node].map((one) => one.getBoundingClientRect());"
            " return a.right > b.right + 1 || a.bottom > b.bottom + 1; }).length"
        )
        assert outside == 0

    def test_many_long_labels_fit_a_phone_and_leave_the_charts_room(
        self, browser: Any, grid: Path, tmp_path: Path
    ) -> None:
        for at in range(20):
            run = shutil.copytree(grid / "dp" / "steps16" / "seed0", tmp_path / "runs" / str(at))
            about = json.loads((run / "run.json").read_text())
            about["identity"]["alpha_start"] = 4.0 + at / 1000
            about["identity"]["learning_rate"] = 1.0 + at / 1000
            (run / "run.json").write_text(json.dumps(about))
        phone = Opened(browser, opera.report(tmp_path / "runs"), viewport={"width": 390, "height": 844})
        assert "20 methods on" in phone.texts("h1")[0]
        assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        plot = phone.page.locator("[data-chart=loss] .bglayer, [data-chart=loss] .plot").first.bounding_box()
        assert plot is not None
        assert plot["height"] > 80
