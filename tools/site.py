"""Hooks of MkDocs: pages of the site that come from files outside docs/ or from the code.

README.md is the home page. CONTRIBUTING.md, CHANGELOG.md and reproduction/README.md are pages. The lists of settings,
commands and licences come from the code and from the installed packages. ``make site`` builds the site.
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
"""Files outside docs/ that are pages of the site, and the names of these pages."""
SEARCH = '<label class="search-box" for="__search">Search the documentation</label>'
"""Opens the theme's search, because a phone shows only an icon for it. A wide page has the theme's own box."""
START = "[Start](start.md){ .md-button .md-button--primary }"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File

    pages = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in FROM_ROOT.items()}
    pages["index.md"] = as_home(pages["index.md"])
    pages |= {"settings.md": settings_page(), "commands.md": commands_page(), "licences.md": licences()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=site_links(text)))
    return files


def on_page_markdown(markdown: str, **others: Any) -> str:
    """Add the shared arguments, point links to files outside docs/ at their pages, and put an empty line before each
    list.
    """
    return with_lists_apart(site_links(markdown.replace("{shared_arguments}", shared_arguments())))


def as_home(readme: str) -> str:
    """Put a button and a search box below the title and the first sentence of README."""
    title, promise, rest = readme.split("\n\n", 2)
    return "\n\n".join([title, promise, START, SEARCH, rest])


def site_links(text: str) -> str:
    """Rewrite links to docs/ and to the files of FROM_ROOT as links to pages of the site."""
    text = re.sub(r"\]\((?:\.\./)?docs/", "](", text)
    for name, page in FROM_ROOT.items():
        text = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", text)
    return text


def with_lists_apart(text: str) -> str:
    """Put an empty line before a list that directly follows a paragraph: Markdown needs it, GitHub does not."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"(?m)^(?![-*] |\d+\. |\s|\|)(.+)\n(?=- |\d+\. )", r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)


def shared_arguments() -> str:
    """List the arguments that several functions take."""
    from opera.config.arguments import HELP

    return "\n".join(
        ["| argument | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in HELP.items())]
    )


def settings_page() -> str:
    """List every setting by group, from the declarations in the code."""
    from opera.config.recipe import docs_by_group

    lines = [
        "# All settings",
        "",
        "Change a setting with `--set NAME=VALUE` on the command line, with a line `NAME: VALUE` in a recipe, or with",
        "`opera.adapt(..., NAME=VALUE)` in Python. `opera train --help-settings` prints the same list.",
        "OPERA [chooses the value](training.md#automatic-settings) of a setting whose default is `auto`.",
    ]
    for group, docs in docs_by_group().items():
        lines += ["", f"## {group}", "", "| name | type | default | what it does | source of the default |"]
        lines += ["|---|---|---|---|---|"]
        for doc in docs:
            cells = [f"`{doc.name}`", f"`{doc.kind}`", f"`{doc.default}`", doc.help, doc.source]
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Describe every command and option, from the help of the command line."""
    import typer
    from typer.cli import get_docs_for_click

    from opera.cli import app

    command = typer.main.get_command(app)
    page = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="opera"), name="opera")
    page = re.sub(r"^# `opera`$", "# All commands", page, flags=re.MULTILINE)
    return re.sub(r"^## `opera ", "## `", page, flags=re.MULTILINE)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
