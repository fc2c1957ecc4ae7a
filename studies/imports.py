"""Draw which part of the package imports which: a row per floor, a box per room, an arrow per import.

    python studies/imports.py src/opera docs/imports-after.svg
    git worktree add /tmp/before 8147f9e && python studies/imports.py /tmp/before/src/opera docs/imports-before.svg

A room is a module or folder directly under the package. Its floor is one above the highest room it imports from.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

Graph = dict[str, set[str]]


def read_imports(home: Path) -> tuple[Graph, dict[str, int]]:
    """Return the rooms that each room imports from, and how many modules each room has."""
    graph: Graph = {}
    modules: dict[str, int] = {}
    for path in sorted(home.rglob("*.py")):
        room = path.relative_to(home).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        modules[room] = modules.get(room, 0) + (path.name != "__init__.py" or path.parent.parent == home)
        targets = graph.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("opera."):
                targets.add(str(node.module).split(".")[1])
        targets.discard(room)
    return graph, modules


def floors(graph: Graph) -> list[list[str]]:
    """Group the rooms by floor, the lowest first."""

    @cache
    def floor(room: str) -> int:
        return 1 + max((floor(target) for target in graph[room]), default=-1)

    rows: list[list[str]] = [[] for _ in range(1 + max(map(floor, graph)))]
    for room in sorted(graph):
        rows[floor(room)].append(room)
    return rows


def draw(graph: Graph, modules: dict[str, int], path: Path) -> None:
    """Write the picture: floors from the bottom up, imports pointing down."""
    rows = floors(graph)
    arrows = sum(map(len, graph.values()))
    figure = Figure(figsize=(13, 0.75 * len(rows) + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    place = {
        room: ((at + 0.5) / len(row), height)
        for height, row in enumerate(rows)
        for at, room in enumerate(row)
    }  # fmt: skip
    for room, targets in sorted(graph.items()):
        for target in sorted(targets):
            (x, y), (to_x, to_y) = place[room], place[target]
            axes.add_patch(
                FancyArrowPatch(
                    (x, y - 0.2), (to_x, to_y + 0.2), arrowstyle="-|>", mutation_scale=7, color="0.55", linewidth=0.6
                )
            )
    for room, (x, y) in place.items():
        axes.add_patch(
            FancyBboxPatch(
                (x - 0.048, y - 0.17), 0.096, 0.34, boxstyle="round,pad=0.005", facecolor="#e8f1fa", zorder=2
            )
        )
        label = room if modules[room] == 1 else f"{room}\n{modules[room]} modules"
        axes.text(x, y, label, ha="center", va="center", fontsize=8, zorder=3)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.axis("off")
    axes.set_title(f"{len(graph)} rooms on {len(rows)} floors, {arrows} arrows", fontsize=11)
    with matplotlib.rc_context({"svg.hashsalt": "opera", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    print(f"{path}: {len(graph)} rooms on {len(rows)} floors, {arrows} arrows")


if __name__ == "__main__":
    draw(*read_imports(Path(sys.argv[1])), Path(sys.argv[2]))
