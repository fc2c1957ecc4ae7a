"""Fill the tables of docs/reliability.md from the records of ``make chaos`` and ``make soak``.

python studies/reliability.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from chaos import PLAN, RESULTS, read_record
from page import ROOT, fill, table_lines
from soak import RESULTS as SOAK

PAGE = ROOT / "docs" / "reliability.md"
FAULTS = {fault.__name__: (fault.__doc__ or "").strip().rstrip(".") for fault, _, _ in PLAN}


def chaos_table() -> str:
    """A row per fault: how often, and how it ended."""
    rows, record = [], read_record(RESULTS)
    for fault, what in FAULTS.items():
        trials = [row for row in record if row["fault"] == fault]
        if trials:
            rows.append([f"`{fault}`: {what}", *_counts(trials)])
    rows.append(["all", *_counts(record)])
    assert not any(row["left"] or row["traceback"] == "True" for row in record), "the page says that none did"
    heads = ["fault", "trials", "kills", "ended equal"]
    return table_lines(heads, rows)


def soak_table() -> str:
    """Memory, files and threads of the long training and of the large grid."""
    found: dict[str, Any] = json.loads(SOAK.read_text(encoding="utf-8"))
    rows = []
    for part, who, unit in (
        ("training", "trainer", "1,000 steps"),
        ("grid", "parent", "100 cells"),
        ("grid", "worker", "100 cells"),
    ):
        if part in found and who in found[part]:
            rows.append(_soak_row(found[part], who, unit))
    heads = [
        "process",
        "length",
        "MB in the first tenth after warm-up",
        "in the last",
        "slope",
        "open files",
        "threads",
    ]
    return table_lines(heads, rows)


def _soak_row(part: dict[str, Any], who: str, unit: str) -> list[str]:
    values = part[who]
    slope = next(value for name, value in values.items() if name.startswith("MB per"))
    length = f"{part['steps']:,} steps" if who == "trainer" else f"{part['cells']} cells"
    return [
        who,
        f"{length}, {part['seconds'] / 60:.0f} min",
        f"{values['MB first tenth']:,.1f}",
        f"{values['MB last tenth']:,.1f}",
        f"{slope:+.2f} MB per {unit}",
        f"{values['files first']} → {values['files last']}",
        f"{values['threads first']} → {values['threads last']}",
    ]


def _counts(trials: Sequence[dict[str, str]]) -> list[str]:
    equal = sum(row["equal"] == "True" for row in trials)
    return [
        str(len(trials)),
        str(sum(int(row["kills"]) for row in trials)),
        f"{equal} of {len(trials)}",
    ]


if __name__ == "__main__":
    fill(PAGE, {"chaos": chaos_table(), "soak": soak_table()})
