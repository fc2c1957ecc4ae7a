"""The reproduction uses only public names of the product, and the product does not know it."""

import ast
from pathlib import Path

import opera
import opera_paper

PUBLIC = {"opera", "opera.data", "opera.methods", "opera.core.registry"}
"""``opera`` lists its names itself; the registry is where extensions register."""


def imported(package: Path) -> set[str]:
    names: set[str] = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    return names


def test_only_public_modules_of_the_product_are_imported():
    names = imported(Path(opera_paper.__file__).parent)
    assert {name for name in names if name.split(".")[0] == "opera"} == PUBLIC


def test_the_product_does_not_import_the_reproduction():
    names = imported(Path(opera.__file__).parent)
    assert not {name for name in names if name.split(".")[0] == "opera_paper"}
