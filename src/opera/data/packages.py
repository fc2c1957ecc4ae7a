"""Find the source files of an installed package without importing anything, so that none of its code runs."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from opera.core.errors import DataError
from opera.core.terminal import shown

NOT_STDLIB = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "ensurepip",
    "pydoc_data",
    "__pycache__",
}


def source_files(package: str) -> list[tuple[str, Path]]:
    """Return dotted name and file of each module of a package, or of the standard library as ``stdlib``, in order.

    Raises:
        DataError: if there is no such package, or none of its source is in files.
    """
    if package == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        return [
            (name, path)
            for name, path in _below(root)
            if not NOT_STDLIB & set(path.relative_to(root).parts)
        ]
    if not all(part.isidentifier() for part in package.split(".")):
        raise DataError(
            f"python:PACKAGE: must be the import name of a package, such as json, got {shown(package)}"
        )
    spec = _find(package)
    if spec is None:
        raise DataError(
            f"python:{package}: no installed package of that name (use its import name)"
        )
    roots = [Path(place) for place in spec.submodule_search_locations or []]
    files = [
        (f"{package}.{name}".removesuffix("."), path)
        for root in roots
        for name, path in _below(root)
    ]
    if not roots and spec.origin and spec.origin.endswith(".py") and Path(spec.origin).is_file():
        files = [(package, Path(spec.origin))]
    if not files:
        raise DataError(
            f"python:{package}: has no source in files: it is built in, compiled, or in an archive"
        )
    return files


def _find(package: str) -> ModuleSpec | None:
    """Find a package part by part, as ``import`` does; but that runs each part before it looks for the next."""
    spec, places, name = None, None, ""
    for part in package.split("."):
        name = f"{name}.{part}".removeprefix(".")
        # Under its last part alone: a namespace package asks for its parent, which nobody has imported, by its name.
        spec = PathFinder.find_spec(part, places) or _find_otherwise(name, places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or [])
    return spec


def _find_otherwise(name: str, places: list[str] | None) -> ModuleSpec | None:
    """Ask the finders of built-in modules and of editable installs."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            continue
        try:
            spec = finder.find_spec(name, places)
        except Exception:  # a finder that other software has put there: it may raise anything
            continue
        if spec is not None:
            return spec
    return None


def _below(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and path of each Python file below a folder; the name of ``__init__.py`` is its folder's."""
    for path in sorted(root.rglob("*.py")):
        if path.is_file():
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path
