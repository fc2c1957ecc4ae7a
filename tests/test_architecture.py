"""Imports run one way, and reading results needs no torch."""

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import opera

LAYERS = [
    "core", "data", "labels", "methods", "config", "run_folder", "identity", "encoder", "retrieval", "adapter",
    "training", "guard", "run", "deployment", "experiments", "diagnostics", "api", "cli",
]  # fmt: skip
HOME = Path(opera.__file__).parent
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def name_of(path: Path) -> str:
    return ".".join(["opera", *path.relative_to(HOME).with_suffix("").parts]).removesuffix(".__init__")


MODULES = {name_of(path): path for path in HOME.rglob("*.py")}


def layer_of(module: str) -> str:
    layer = module.split(".")[1]
    return "cli" if layer == "__main__" else layer


def imported_modules(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the package's modules that import statements name; ``opera`` itself only where it is all they name."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in MODULES else node.module)
    return names & MODULES.keys()


@functools.cache
def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_each_layer_imports_only_from_layers_below_it():
    for module in MODULES.keys() - {"opera"}:
        imported = imported_modules(ast.walk(parse(module)))
        assert "opera" not in imported, f"{module}: inside the package, import from the module that defines a name"
        above = {name for name in imported if LAYERS.index(layer_of(name)) > LAYERS.index(layer_of(module))}
        assert not above, f"{module} imports {above}, which lie above it"


def test_private_modules_are_imported_only_in_their_room():
    for module in MODULES:
        for name in imported_modules(ast.walk(parse(module))):
            is_private = any(re.match("_[^_]", part) for part in name.split("."))
            assert not is_private or layer_of(name) == layer_of(module), f"{module} imports {name}"


def test_no_module_imports_itself_in_a_circle():
    graph = {module: imported_modules(ast.walk(parse(module))) for module in MODULES}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def test_the_page_lists_the_layers_in_this_order():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w, ]+) \|", text[text.index("| room |") : text.index("### The path")], re.MULTILINE)
    assert [name for row in rows[1:] for name in row.split(", ")] == LAYERS


def test_files_are_short_enough_to_read_in_one_sitting():
    assert {p.name: n for p in HOME.rglob("*.py") if (n := len(p.read_text().splitlines())) > 450} == {}


WITHOUT_LARGE_LIBRARIES = """
import contextlib, importlib, os, sys
large = {"torch", "transformers", "sentence_transformers", "sklearn", "pandas", "datasets"}
from opera.cli import main
for words in (["--version"], ["search", "--help"]):
    sys.argv = ["opera", *words]
    with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.suppress(SystemExit):
        main()
    assert not {*large, "scipy", "numba", "matplotlib"} & set(sys.modules)
import opera.run_folder.folder
assert not {"numba", "opera.methods"} & set(sys.modules)
for name in ("methods", "data", "retrieval.measures", "retrieval.locate", "experiments.results", "experiments.report",
             "experiments.compare", "config.recipe", "adapter"):
    importlib.import_module(f"opera.{name}")
assert not large & set(sys.modules)
"""


def test_help_methods_data_and_runs_need_no_large_library():
    subprocess.run([sys.executable, "-c", WITHOUT_LARGE_LIBRARIES], check=True)


def test_no_global_random_state():
    for path in HOME.rglob("*.py"):
        text = path.read_text()
        for forbidden in ("np.random.seed", "torch.manual_seed", "random.seed(", "default_rng("):
            assert forbidden not in text, f"{path.name} uses {forbidden}"


def test_what_studies_benchmarks_and_tools_import_of_the_package_exists():
    """They run for minutes to hours, so nobody notices otherwise."""
    root = Path(__file__).parents[1]
    for path in sorted(
        path
        for folder in ("reproduction/studies", "benchmarks", "tools", "tests/chaos")
        for path in (root / folder).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "opera":
                module = importlib.import_module(str(node.module))
                for name in (each.name for each in node.names):
                    known = hasattr(module, name) or f"{node.module}.{name}" in MODULES
                    assert known, f"{path.relative_to(root)}: {node.module} has no {name}"
