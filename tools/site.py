"""Hooks of MkDocs: pages that the documentation site makes of what the project already holds.

README.md becomes the home page; CONTRIBUTING.md and CHANGELOG.md become pages; settings, commands and licences are
listed from the code and from what is installed. ``make site`` builds it all, with warnings as errors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from audit import licences

ROOT = Path(__file__).parents[1]
FROM_ROOT = {
    "reproduction/README.md": "reproduce.md",
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the project that are pages of the site, and what they are called there."""
SEARCH = '<label class="search-box" for="__search">Search the documentation</label>'
"""Opens the theme's search, of which a phone shows an icon alone."""
LICENCE = re.compile(r"\n+Apache-2\.0\s*$")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    pages = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in FROM_ROOT.items()}
    pages["index.md"] = first_screen(LICENCE.sub("\n", pages["index.md"]))
    pages |= {"settings.md": settings_page(), "commands.md": commands_page(), "licences.md": licences()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=site_links(text)))
    return files


def on_page_markdown(markdown: str, **others: Any) -> str:
    """Lead links between docs/ and the project's root to their pages; start a list after a line, as GitHub does."""
    return with_lists_apart(site_links(markdown))


def first_screen(text: str) -> str:
    """Put a search box, README's first figure and its first section, the commands, before its introduction."""
    figures = re.findall(r"(?m)^!\[.*\n\n", text)[:1]
    for figure in figures:
        text = text.replace(figure, "")
    head, *sections = re.split(r"(?m)^(?=## )", text)
    title, promise, introduction = head.split("\n\n", 2)
    shown = [figure.strip() + "{ .first }" for figure in figures]
    first = [title, promise, SEARCH, *shown, sections[0] + "## What it does", introduction]
    return "\n\n".join(first) + "".join(sections[1:])


def site_links(text: str) -> str:
    """Rewrite links to README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ as the site has them."""
    text = re.sub(r"\]\((?:\.\./)?docs/", "](", text)
    for name, page in FROM_ROOT.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", text)
    return text


def with_lists_apart(text: str) -> str:
    """Put an empty line before a list that follows a paragraph at once: GitHub needs none, Markdown does."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"(?m)^(?![-*] |\d+\. |\s|\|)(.+)\n(?=- |\d+\. )", r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)


def settings_page() -> str:
    """List every setting by group, from where each is declared."""
    from opera.config.recipe import docs_by_group

    lines = [
        "# Settings",
        "",
        "`--set NAME=VALUE` on the command line, `NAME: VALUE` in a recipe, `opera.adapt(..., NAME=VALUE)` in Python.",
        "`opera train --help-settings` prints the same. `auto` is a value that [depends on the data](training.md).",
    ]
    for group, docs in docs_by_group().items():
        lines += ["", f"## {group}", "", "| name | kind | default | what it does | source of the default |"]
        lines += ["|---|---|---|---|---|"]
        for doc in docs:
            cells = [f"`{doc.name}`", f"`{doc.kind}`", f"`{doc.default}`", doc.help, doc.source]
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Describe every command and option, from the command line's own help."""
    import typer
    from typer.cli import get_docs_for_click

    from opera.cli import app

    command = typer.main.get_command(app)
    page = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="opera"), name="opera")
    page = re.sub(r"^# `opera`$", "# Commands", page, flags=re.MULTILINE)
    return re.sub(r"^## `opera ", "## `", page, flags=re.MULTILINE)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
