"""Helpers for tests that spoil files."""

from __future__ import annotations

from pathlib import Path


def edit_line(path: Path, number: int, new: str | None) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1 : number] = [] if new is None else [new]
    path.write_text("\n".join(lines) + "\n")
