"""Tables that scripts write into Markdown pages, between ``<!-- table NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def fill(path: Path, tables: Mapping[str, str]) -> None:
    """Replace tables of a page by name, and leave its prose as it is; print the tables that the page lacks."""
    page = path.read_text(encoding="utf-8")
    for name, text in tables.items():
        head, start, rest = page.partition(f"<!-- table {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        if end:
            page = f"{head}{start}\n{text}\n{end}{tail}"
        else:
            print(f"{name}:\n\n{text}")
    path.write_text(page, encoding="utf-8")


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def need(*folders: str) -> None:
    """Exit with a message if data that a study reads is absent; paths are relative to the checkout."""
    for folder in folders:
        if not (ROOT / folder).is_dir():
            sys.exit(f"{folder} is absent: this study reads it")
