"""``opera cache``."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Annotated

import typer

from opera.cli.options import JsonOption, Screen, show
from opera.core.cache import CacheEntry, cache_folder, cache_limit
from opera.core.cache import cache as read_cache
from opera.core.progress import duration


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="delete all entries that no process uses")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what OPERA keeps on disk for later commands, or delete it.

    The cache holds loaded data, token ids and embeddings. OPERA deletes the least recently used
    entries if the cache exceeds OPERA_CACHE_LIMIT gigabytes (default 20)."""
    entries, limit = read_cache(clear), cache_limit()
    record = {
        "folder": str(cache_folder()),
        "limit_bytes": int(limit),
        "entries": [{**entry._asdict(), "folder": str(entry.folder)} for entry in entries],
    }
    show(as_json, lambda: record, partial(_print_cache, entries=entries, limit=limit))


def _print_cache(screen: Screen, entries: list[CacheEntry], limit: float) -> None:
    total, sizes = sum(entry.size for entry in entries), Counter[str]()
    for entry in entries:
        sizes[entry.kind] += entry.size
    screen.heading(f"{cache_folder()}: {_megabytes(total)} of {_megabytes(limit)}")
    rows = []
    for kind, size in sizes.most_common():
        of_kind = [entry for entry in entries if entry.kind == kind]
        ago = f"{duration(max(0, time.time() - of_kind[-1].used))} ago"
        rows.append((kind, f"{len(of_kind):,}", _megabytes(size), ago))
    if rows:
        screen.table(("kind", "entries", "size", "last used"), rows)
    else:
        screen.lines("the cache is empty")


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
