"""The goals of speed, the results of each kind of processor, and the tables that show both."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from page import fill, table_lines  # noqa: E402

FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
KINDS = {"amx": "AMX", "avx512_bf16": "AVX-512 with bf16", "avx2": "AVX2", "plain": "other"}
"""The kinds of processors of ``opera.core.processor``, and their titles."""

Unit = Literal["×", "ms", "s"]


class Goal(NamedTuple):
    """The least ratio, or the most of something that costs time."""

    limit: float
    is_most: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a result, rounded as in the tables, meets the goal."""
        value = round(value, 2)
        return value <= self.limit if self.is_most else value >= self.limit


GOALS = {
    "training, MiniLM, 32 × 128 tokens, against sentence-transformers": Goal(1.6),
    "encoding, MiniLM, 128 tokens, against sentence-transformers": Goal(1.15),
    "encoding, MiniLM, 512 tokens, against sentence-transformers": Goal(1),
    "encoding, static model, against sentence-transformers": Goal(1),
    "search, 100,000 documents, k = 10, against FAISS flat": Goal(1),
    "search, 100,000 documents, k = 100, against FAISS flat": Goal(1),
    "search, 1,000,000 documents, k = 10, against FAISS flat": Goal(1),
    "search, 1,000,000 documents, k = 100, against FAISS flat": Goal(1),
    "search, 1,000,000 documents, k = 10, against semantic_search": Goal(1.2),
    "search, 1,000,000 documents, k = 100, against semantic_search": Goal(1.2),
    "step of the sampler of dp, one core, 140,085 pairs, warm caches": Goal(0.5, is_most=True),
    "step of the sampler of dp, one core, 140,085 pairs, cold caches": Goal(0.8, is_most=True),
    "loading 300,000 rows, time of OPERA / time of DuckDB": Goal(1.5, is_most=True),
}


class Result(NamedTuple):
    """One result.

    Attributes:
        name: what was measured; a name in :data:`GOALS` has a goal.
        value: a ratio, or a time.
        unit: of the value.
        details: what else was measured, such as texts per second and memory.
    """

    name: str
    value: float
    unit: Unit
    details: dict[str, Any]


def keep(kind: str, results: list[Result], circumstances: dict[str, Any]) -> None:
    """Write results to the file of a kind of processor, and keep its older results of other names."""
    path = FOLDER / f"{kind}.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for result in results:
        stored[result.name] = {
            "value": round(result.value, 3), "unit": result.unit, "details": result.details, **circumstances
        }  # fmt: skip
    text = json.dumps(dict(sorted(stored.items(), key=place)), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def place(item: tuple[str, Any]) -> tuple[int, int]:
    """Sort by task, and results with a goal in the order of the goals first."""
    names, tasks = list(GOALS), ["training", "encoding", "search", "step", "loading", "start"]
    return tasks.index(item[0].split()[0].strip(",")), names.index(item[0]) if item[0] in names else len(names)


def goal_table(results: list[Result]) -> str:
    """Format the results of this run that have a goal."""
    rows = []
    for result in results:
        if goal := GOALS.get(result.name):
            met = "yes" if goal.is_met(result.value) else "no"
            rows.append([result.name, cell(result.value, result.unit), goal_cell(goal, result.unit), met])
    return table_lines(["", "result", "goal", "met"], rows)


def fill_page() -> None:
    """Write the results of all kinds next to each other into docs/benchmarks.md; bold ones miss their goal."""
    files = {kind: FOLDER / f"{kind}.json" for kind in KINDS}
    kinds = {kind: json.loads(path.read_text(encoding="utf-8")) for kind, path in files.items() if path.is_file()}
    items = {name: result for stored in kinds.values() for name, result in stored.items()}
    rows = []
    for name, any_result in sorted(items.items(), key=place):
        goal, unit = GOALS.get(name), any_result["unit"]
        rows.append([name, goal_cell(goal, unit) if goal else ""])
        for stored in kinds.values():
            text = cell(stored[name]["value"], unit) if name in stored else ""
            missed = goal and text and not goal.is_met(stored[name]["value"])
            rows[-1].append(f"**{text}**" if missed else text)
    heads = ["", "goal", *(KINDS[kind] for kind in kinds)]
    fill(PAGE, {"processors": processor_table(kinds), "speed": table_lines(heads, rows)})


def processor_table(kinds: dict[str, dict[str, Any]]) -> str:
    """Format the processors of each kind, and when they were measured."""
    rows = []
    for kind, stored in kinds.items():
        results = list(stored.values())
        dates = sorted({result["date"] for result in results})
        processors = ", ".join(sorted({result["processor"] for result in results}))
        rows.append([KINDS[kind], processors, " to ".join(sorted({dates[0], dates[-1]})), f"`{kind}.json`"])
    return table_lines(["kind", "processor", "measured", "in `benchmarks/results`"], rows)


def cell(value: float, unit: Unit) -> str:
    """Format a result."""
    return f"{value:.2f}×" if unit == "×" else f"{value:.2f} {unit}"


def goal_cell(goal: Goal, unit: Unit) -> str:
    """Format a goal."""
    return f"{'≤' if goal.is_most else '≥'} {cell(goal.limit, unit)}"
