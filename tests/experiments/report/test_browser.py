"""The report in a real browser; skipped without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import opera
from processes import DEADLINE

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Opened:
    """A page in a browser, with its console messages and requests."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context}).new_page()
        self.page.set_default_timeout(1000 * DEADLINE)
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
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
        assert opened.messages == []
        leaving = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
        assert leaving == [page_file.resolve().as_uri()]

    def test_the_charts_have_drawn(self, opened: Opened) -> None:
        drawn = opened.page.evaluate(
            "[...document.querySelectorAll('.chart')].map((node) => [node.id || node.dataset.chart, "
            "node.querySelectorAll('.trace path, .bars path, .heatmaplayer image, .scatterlayer path').length])"
        )
        assert len(drawn) == 7
        assert all(count > 0 for _, count in drawn), drawn

    def test_tables_and_charts_are_saved_without_a_server(self, opened: Opened, page_file: Path) -> None:
        page = opened.page
        assert page.locator("table[data-table]").count() == page.locator(".scroll + .save").count() == 7
        with page.expect_download() as saved:
            page.locator("section .save button", has_text="LaTeX").first.click()
        assert saved.value.suggested_filename == "i-topics-quality-16.tex"
        text = Path(saved.value.path()).read_text(encoding="utf-8")
        document = page_file.read_text(encoding="utf-8").split('id="report-data">')[1].split("</script>")[0]
        assert text == json.loads(document)["tables"]["i-topics-quality-16"]["tex"]
        for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
            with page.expect_download() as saved:
                page.locator(".chart[data-chart=loss] + .save button", has_text=kind).click()
            assert Path(saved.value.path()).read_bytes().startswith(start)
        assert opened.messages == []

    def test_each_chart_has_its_figures_as_a_table(self, opened: Opened) -> None:
        tables = opened.page.evaluate(
            "(() => { const all = [...document.querySelectorAll('details.figures')]; "
            "all.forEach((part) => { part.open = true; part.dispatchEvent(new Event('toggle')); }); "
            "return all.map((part) => [...part.querySelectorAll('tr')].slice(0, 2)"
            ".map((row) => [...row.children].map((cell) => cell.textContent))); })()"
        )
        assert len(tables) == 7
        convergence, time, loss = tables[:3]
        assert convergence[0] == ["steps", "ft", "sp", "dp"]
        assert convergence[1][0] == "4"
        assert all(" ± " in cell for cell in convergence[1][1:])
        assert time[0] == ["seconds of training", "ft", "sp", "dp"]
        assert loss[0] == ["step", "ft", "sp", "dp"]
        drawn = opened.page.evaluate("report.data[0].losses.dp.loss[0]")
        assert float(loss[1][3]) == pytest.approx(drawn, rel=1e-4)
        assert all(len(table[1]) == len(table[0]) > 1 for table in tables)

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
        assert any("Content Security Policy" in message for message in opened.messages)

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
        for outcome, sign in (("won", "+"), ("lost", "−"), ("tied", "0")):
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
        assert opened.texts("#explorer-query") == ["No query matches."]
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
        assert phone.messages == []

    def test_it_prints_light(self, browser: Any, page_file: Path) -> None:
        dark = Opened(browser, page_file, color_scheme="dark")
        before = dark.page.evaluate("colourOf('dp')")
        dark.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert dark.page.evaluate("colourOf('dp')") != before
        assert dark.page.evaluate("[...document.querySelectorAll('details:not(.figures)')].every((part) => part.open)")
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
            record = json.loads((run / "run.json").read_text())
            record["identity"]["alpha_start"] = 4.0 + at / 1000
            record["identity"]["learning_rate"] = 1.0 + at / 1000
            (run / "run.json").write_text(json.dumps(record))
        phone = Opened(browser, opera.report(tmp_path / "runs"), viewport={"width": 390, "height": 844})
        assert "20 methods on" in phone.texts("h1")[0]
        assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        plot = phone.page.locator("[data-chart=loss] .bglayer, [data-chart=loss] .plot").first.bounding_box()
        assert plot is not None
        assert plot["height"] > 80
