"""Take the two screenshots of a report in docs/, of runs/grid, with a Chromium on the PATH.

    .venv/bin/python -m pip install playwright
    .venv/bin/python studies/screenshots.py

The pictures in docs/ are of this grid:

    .venv/bin/opera-paper noise ../shared/data/scifact --share 0.3 --kind random --out runs/scifact-noisy
    .venv/bin/opera compare runs/scifact-noisy --model ../shared/models/potion-base-4m --out runs/grid \\
        --methods ft,denoise,infobatch,dp,sp:k=0.7
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import opera
from page import ROOT

GRID = ROOT / "runs" / "grid"
WIDE, NARROW = ROOT / "docs" / "report-wide.png", ROOT / "docs" / "report-narrow.png"
GAP = 24
PHONE = {"width": 390, "height": 1350}


def save(picture: Image.Image, path: Path) -> None:
    """Write a picture and print its size."""
    picture.convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1000} kB")


def capture(page: Page, path: Path, selector: str | None = None) -> Image.Image:
    """Capture the window, scrolled to the first match of a selector."""
    if selector:
        page.locator(selector).first.evaluate("(node) => node.scrollIntoView()")
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    return Image.open(path).copy()


def main() -> None:
    """Take both screenshots."""
    browser_path = shutil.which("chromium")
    if browser_path is None or not GRID.is_dir():
        sys.exit("needs a chromium on the PATH, and the runs in runs/grid")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = opera.report(GRID, Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        shot = Path(folder) / "shot.png"
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.goto(file.as_uri())
        page.screenshot(path=shot, full_page=True)
        rest = page.locator("#data-0 h3").first.bounding_box()
        assert rest is not None
        save(Image.open(shot).crop((0, 0, 1280, int(rest["y"]))), WIDE)
        phone = browser.new_page(viewport=PHONE, color_scheme="dark")  # type: ignore[arg-type]
        phone.goto(file.as_uri())
        parts = [capture(phone, shot, selector) for selector in (None, ".verdict ul", "#data-0")]
        narrow = Image.new("RGB", (3 * PHONE["width"] + 2 * GAP, PHONE["height"]), "white")
        for place, part in enumerate(parts):
            narrow.paste(part, (place * (PHONE["width"] + GAP), 0))
        save(narrow, NARROW)
        browser.close()


if __name__ == "__main__":
    main()
