"""README, CONTRIBUTING, CHANGELOG and docs/: modules, links, commands and names on these pages exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import opera
from documents import find, parse

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HOME = Path(opera.__file__).parent


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[str]:
    """Return the ``opera`` commands in a page's indented blocks, without comments and continued lines joined."""
    blocks = re.sub(r" *\\\n *", " ", read(page))
    return [
        shlex.join(shlex.split(line, comments=True))
        for line in re.findall(r"^    (?:.*-m )?(?:\.venv/bin/)?opera ([a-z].*)$", blocks, re.MULTILINE)
    ]


def test_modules_on_the_page_of_the_architecture_exist() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", read(ROOT / "docs" / "architecture.md")))
    assert len(named) > 10
    assert [name for name in named if not (HOME / name).is_file() and not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", read(page)):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_commands_are_valid() -> None:
    found = {page.name: commands(page) for page in PAGES}
    assert all(found[name] for name in ("README.md", "comparing.md", "distributed.md", "results.md"))
    for command in [command for of_page in found.values() for command in of_page]:
        parse(shlex.split(command))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_package_exist(page: Path) -> None:
    for name in re.findall(r"`(opera(?:\.\w+)+)\b", read(page)):
        find(name)


def test_the_readme_names_the_two_commands() -> None:
    assert re.findall(r"^    (make \w+)", read(ROOT / "README.md"), re.MULTILINE) == ["make quickstart", "make test"]


def test_the_readme_fits_in_a_minute() -> None:
    """Its prose, without code and tables, at some 600 words a minute of skimming."""
    without_blocks = re.sub(r"```.*?```", "", read(ROOT / "README.md"), flags=re.DOTALL)
    words = re.sub(r"^(    |\|).*$", "", without_blocks, flags=re.MULTILINE).split()
    assert 400 < len(words) < 650
