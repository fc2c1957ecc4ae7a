"""Imports run one way, and reading results needs no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import opera

LAYERS = [
    "core", "data", "methods", "config", "runs", "retrieval", "training_set", "training", "experiments", "diagnostics",
    "api", "cli", "__main__",
]  # fmt: skip
HOME = Path(opera.__file__).parent


def layer_of(path: Path) -> str:
    return path.relative_to(HOME).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("opera."):
            names.add(node.module.split(".")[1])
    return names


def test_each_layer_imports_only_from_layers_below_it() -> None:
    for path in HOME.rglob("*.py"):
        if path.name == "__init__.py" and path.parent == HOME:
            continue
        layer = layer_of(path)
        above = {name for name in imported_layers(path) if LAYERS.index(name) > LAYERS.index(layer)}
        assert not above, f"{path.relative_to(HOME)} imports from {above}, which lie above {layer}"


def test_files_are_short_enough_to_read_in_one_sitting() -> None:
    assert {p.name: n for p in HOME.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400} == {}


def test_methods_data_and_runs_need_no_torch() -> None:
    code = (
        "import sys, opera, opera.methods, opera.data, opera.retrieval.measures, opera.runs.folder\n"
        "import opera.experiments.analysis, opera.experiments.paper, opera.experiments.report\n"
        "import opera.experiments.grid.compare, opera.cli, opera.config.recipe, opera.runs.sampling\n"
        "import opera.retrieval.locate, opera.retrieval.run_model, opera.diagnostics.theory\n"
        "assert 'torch' not in sys.modules and 'sentence_transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_global_random_state() -> None:
    for path in HOME.rglob("*.py"):
        text = path.read_text()
        for forbidden in ("np.random.seed", "torch.manual_seed", "random.seed(", "default_rng("):
            assert forbidden not in text, f"{path.name} uses {forbidden}"
