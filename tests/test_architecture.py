"""Imports run one way, and reading results needs no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import opera

ROOMS = [
    "errors", "rng", "settings", "files", "processes", "methods", "snapshots", "config", "data",
    "measures", "positives", "runs", "locate", "analysis", "theory", "show", "charts", "paper",
    "device", "models", "encode", "search", "score", "evaluation", "mine", "noise", "sampler", "train", "card",
    "preparation", "material", "adaptation", "api", "inspection", "outputs", "grid", "page", "quickstart",
    "cli", "__main__",
]  # fmt: skip
HOME = Path(opera.__file__).parent


def room_of(path: Path) -> str:
    return path.relative_to(HOME).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("opera."):
            names.add(node.module.split(".")[1])
    return names


def test_each_room_imports_only_from_rooms_above_it() -> None:
    for path in HOME.rglob("*.py"):
        if path.name == "__init__.py" and path.parent == HOME:
            continue
        room = room_of(path)
        below = {name for name in imported_rooms(path) if ROOMS.index(name) > ROOMS.index(room)}
        assert not below, f"{path.relative_to(HOME)} imports from {below}, which come after {room}"


def test_files_are_short_enough_to_read_in_one_sitting() -> None:
    assert {p.name: n for p in HOME.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400} == {}


def test_methods_data_and_runs_need_no_torch() -> None:
    code = (
        "import sys, opera, opera.methods, opera.data, opera.measures, opera.runs, opera.config, opera.cli\n"
        "import opera.analysis, opera.paper, opera.grid, opera.page, opera.snapshots\n"
        "assert 'torch' not in sys.modules and 'sentence_transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_global_random_state() -> None:
    for path in HOME.rglob("*.py"):
        text = path.read_text()
        for forbidden in ("np.random.seed", "torch.manual_seed", "random.seed(", "default_rng("):
            assert forbidden not in text, f"{path.name} uses {forbidden}"
