"""Tables that studies write into a Markdown page, between ``<!-- table NAME -->`` and ``<!-- end -->``.

The prose around them is written by hand and left as it is. A table that the page does not show is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results.md"


def fill(path: Path, tables: Mapping[str, str]) -> None:
    """Replace the tables of a page.

    Args:
        path: the page.
        tables: Markdown by name.
    """
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
    """Exit with a message if data that a study reads is absent."""
    for folder in folders:
        if not (ROOT / folder).is_dir():
            sys.exit(f"{folder} is absent: this study reads it")
