"""``opera.review``: a page of what to look at in a finished run, and a table for another judge."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

from opera.core.arguments import whole_number
from opera.core.errors import SettingError
from opera.core.files import check_output, replace_file
from opera.core.paths import user_path
from opera.labels.review_page import chosen_items, page
from opera.runs.folder import REVIEW_FILE, TEST_REVIEW_FILE, Run

ITEMS = 200
COLUMNS = ("query_id", "doc_id", "decision", "split", "list", "query", "document")


def review(
    run: str | Path | Run,
    out: str | Path | None = None,
    *,
    items: int = ITEMS,
    split: str = "train",
    overwrite: bool = False,
) -> Path:
    """Write what is worth a look in a finished run: labels that look wrong, a random sample of the
    others, documents without a label, and the test queries that changed most.

    Args:
        run: the run's folder. Neither its model nor its data are read.
        out: the page to write, or a table if the name ends in ``.csv``; by default
            ``review.html`` in the run.
        items: how many at most.
        split: whose labels: ``train``, or ``test`` to correct what the run was measured by.
        overwrite: whether a file at ``out`` may be replaced.

    Returns:
        The file.

    Raises:
        SettingError: for another split, or a number below 1.
        RunFolderError: if the folder holds no finished run.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if split not in ("train", "test"):
        raise SettingError(f"split={split}: must be train or test")
    items = whole_number(items, "items", 1)
    contents = run.review()
    default = REVIEW_FILE if split == "train" else TEST_REVIEW_FILE
    file = run.path / default if out is None else user_path(out, "--out")
    if out is not None:
        check_output(file, "--out", (".html", ".csv"), overwrite=overwrite)
    chosen = chosen_items(contents[split], contents["changed"], items)
    if file.suffix == ".csv":
        replace_file(file, partial(_write_table, split=split, items=chosen))
        return file
    kind = "Labels" if split == "train" else "Test labels"
    title = f"{kind} of {run.record.data.source} in {run.path.name}"
    text = page(title, split, contents[split], chosen)
    replace_file(file, partial(Path.write_text, data=text, encoding="utf-8"))
    return file


def _write_table(file: Path, split: str, items: list[dict[str, Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, extrasaction="ignore", restval="")
        writer.writeheader()
        for item in items:
            if item["list"] != "changed":
                writer.writerow({**item, "split": split})
