"""Write a review as an HTML page that needs no network, or as a table."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.files import replace_file
from opera.data.spreadsheets import with_apostrophes

COLUMNS = ("query_id", "doc_id", "decision", "split", "first_rank", "list", "query", "document")
SUFFIXES = (".html", ".csv")
MISSING_FRACTION, CHANGED_FRACTION = 0.2, 0.1
"""Fractions of a page for missing labels and for changed queries."""


def chosen_items(part: Mapping[str, Any], changed: Mapping[str, Any], items: int) -> Any:
    """Choose the items of a page: missing labels, changed queries and, for the rest, pairs.

    Args:
        part: ``pairs`` and ``missing`` of a split.
        changed: queries with ``losses`` and ``gains``.
        items: how many items.
    """
    missing = list(part.get("missing", ()))[: int(MISSING_FRACTION * items)]
    losses, gains = list(changed.get("losses", ())), list(changed.get("gains", ()))
    size = int(CHANGED_FRACTION * items)
    queries = losses[: size - min(len(gains), size // 2)]
    queries += gains[: size - len(queries)]
    pairs = list(part["pairs"])[: items - len(missing) - len(queries)]
    lists = {"pairs": pairs, "missing": missing, "changed": queries}
    return [
        {**item, "list": name, "id": f"{name} {item['query_id']} {item.get('doc_id', '')}"}
        for name, members in lists.items()
        for item in members
    ]


def write_review(
    file: Path, title: str, split: str, part: Mapping[str, Any], items: list[dict[str, Any]]
) -> None:
    """Write a page, or a table with an empty column ``decision`` if the file ends in ``.csv``.

    For the other arguments, see :func:`page`.
    """
    if file.suffix == ".csv":
        replace_file(file, partial(_write_table, split=split, items=items))
    else:
        text = page(title, split, part, items)
        replace_file(file, partial(Path.write_text, data=text, encoding="utf-8"))


def _write_table(file: Path, split: str, items: list[dict[str, Any]]) -> None:
    rows = [
        {name: {**item, "split": split}.get(name) for name in COLUMNS}
        for item in items
        if item["list"] != "changed"
    ]
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(with_apostrophes(pa.Table.from_pylist(rows)).to_pylist())


def page(title: str, split: str, part: Mapping[str, Any], items: list[dict[str, Any]]) -> str:
    """Return the HTML page.

    Args:
        title: of the page.
        split: ``train`` or ``test``.
        part: ``strata`` with their numbers of pairs, and OPERA's ``estimate``.
        items: from :func:`chosen_items`.
    """
    # The browser stores decisions under this key, which does not depend on the number of items.
    pairs = [(pair["query_id"], pair["doc_id"]) for pair in part["pairs"]]
    identity = json.dumps([title, split, pairs, part["estimate"]])
    values = {
        "title": title,
        "split": split,
        "strata": part["strata"],
        "confirmed": part["confirmed"],
        "estimate": part["estimate"],
        "items": items,
        "key": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }
    # The JSON is inside a script element, which no text may close.
    data = json.dumps(values).replace("<", "\\u003c")
    template = files("opera.labels").joinpath("review.html").read_text(encoding="utf-8")
    before, _, after = template.partition("DATA")
    return f"{before}{data}{after}"
