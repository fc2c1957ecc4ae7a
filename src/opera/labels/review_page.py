"""The review as one HTML page that needs no network, or as a table for another judge."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from opera.core.files import replace_file

COLUMNS = ("query_id", "doc_id", "decision", "split", "first_rank", "list", "query", "document")
SUFFIXES = (".html", ".csv")
MISSING_SHARE, CHANGED_SHARE = 0.2, 0.1
"""Of the items of a page."""


def chosen_items(part: Mapping[str, Any], changed: Mapping[str, Any], items: int) -> Any:
    """Choose the items of a page: a fifth missing labels, a tenth changed queries, the rest pairs.

    Args:
        part: of a split: ``pairs`` and ``missing``.
        changed: ``losses`` and ``gains``.
        items: how many in all.
    """
    missing = list(part.get("missing", ()))[: int(MISSING_SHARE * items)]
    losses, gains = list(changed.get("losses", ())), list(changed.get("gains", ()))
    size = int(CHANGED_SHARE * items)
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
    """Write the items as a page, or as a table with an empty column ``decision`` if the name of
    the file ends in ``.csv``; arguments are those of :func:`page`."""
    if file.suffix == ".csv":
        replace_file(file, partial(_write_table, split=split, items=items))
    else:
        text = page(title, split, part, items)
        replace_file(file, partial(Path.write_text, data=text, encoding="utf-8"))


def _write_table(file: Path, split: str, items: list[dict[str, Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore", restval="")
        writer.writeheader()
        for item in items:
            if item["list"] != "changed":
                writer.writerow({**item, "split": split})


def page(title: str, split: str, part: Mapping[str, Any], items: list[dict[str, Any]]) -> str:
    """Return the page.

    Args:
        title: of the page.
        split: whose labels it shows, ``train`` or ``test``.
        part: ``strata``, how many pairs there are of each, and OPERA's own ``estimate``.
        items: of :func:`chosen_items`.
    """
    values = {
        "title": title,
        "split": split,
        "strata": part["strata"],
        "confirmed": part["confirmed"],
        "estimate": part["estimate"],
        "items": items,
    }
    # decisions are kept under this key: of one run, whatever the number of items
    pairs = [(pair["query_id"], pair["doc_id"]) for pair in part["pairs"]]
    identity = json.dumps([title, split, pairs, part["estimate"]])
    values["key"] = hashlib.sha256(identity.encode()).hexdigest()[:16]
    # JSON inside a script element: no text of the data may end it
    data = json.dumps(values).replace("<", "\\u003c")
    template = files("opera.labels").joinpath("review.html").read_text(encoding="utf-8")
    before, _, after = template.partition("DATA")
    return f"{before}{data}{after}"
