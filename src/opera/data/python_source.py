"""``python:PACKAGE``: the source code of an installed package as retrieval data.

The query of an object is the first paragraph of its docstring; its documents are chunks of its code
and of the rest of its docstring. Nothing is imported, so no code of the package runs.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from opera.core.errors import DataError
from opera.core.reading import read_text
from opera.core.terminal import printable, shortened, shown
from opera.data.checks import check_id
from opera.data.retrieval_data import RetrievalData
from opera.data.weak_pairs import Section, load_weak_pairs

NOT_STDLIB = {"site-packages", "dist-packages", "test", "tests", "__pycache__"} | {
    "idlelib", "lib2to3", "turtledemo", "ensurepip", "pydoc_data"
}  # fmt: skip

Documentable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def load_python(
    package: str,
    seed: int = 0,
    train_queries: int | None = None,
    test_queries: int | None = None,
    chunks: int | None = None,
) -> RetrievalData:
    """Read an installed package, or the standard library as ``stdlib``. No code is run.

    Args:
        package: its import name.
        seed: of the draw of test modules, and of the objects to keep if there are limits.
        train_queries: maximum number of train objects; the corpus holds the chunks of the kept
            objects.
        test_queries: maximum number of test objects.
        chunks: maximum number of chunks of an object, its first ones.

    Raises:
        DataError: if the package is not installed, or has too few documented objects in too few
            modules.
    """
    sections, notes = python_sections(package)
    limits = {"train": train_queries, "test": test_queries}
    return load_weak_pairs(f"python:{package}", sections, seed, limits, notes, chunks)


def python_sections(package: str) -> tuple[list[Section], list[str]]:
    """Read the documented objects of an installed package, and a note on files left out."""
    sections: list[Section] = []
    left_out = []
    files = _source_files(package)
    for module, path in files:
        try:
            check_id("its name", module)  # ids start with it
            # as Python counts lines
            text = read_text(path).replace("\r\n", "\n").replace("\r", "\n")
            with warnings.catch_warnings(action="ignore"):  # those of the package are its own
                tree = ast.parse(text)
            sections += _sections(tree, text.split("\n"), module, module)
        except (DataError, SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            left_out.append(path.name)  # the last two: deep nesting
    names = shortened(printable(", ".join(left_out)))
    note = f"left out {len(left_out)} of {len(files)} files that are no Python in UTF-8: {names}"
    return sections, [note] if left_out else []


def _source_files(package: str) -> list[tuple[str, Path]]:
    """Return dotted name and file of each module of a package, or of ``stdlib``, in order."""
    top, *rest = package.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        raise DataError(
            "python:PACKAGE: must be the import name of a package, such as json, got "
            f"{shown(package)}"
        )
    if package == "stdlib":
        home = Path(sysconfig.get_paths()["stdlib"])
        modules = _below(home, "")
        return [
            module for module in modules if not NOT_STDLIB & set(module[1].relative_to(home).parts)
        ]
    try:
        spec = find_spec(top)  # of a top-level name it runs no code
    except ValueError:  # such as __main__
        spec = None
    homes = (spec and spec.submodule_search_locations) or []
    files = [module for home in homes for module in _below(Path(home, *rest), package)]
    if not files:
        raise DataError(
            f"python:{package}: no installed package (a folder of modules with their source) has "
            "this import name"
        )
    return files


def _below(home: Path, package: str) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and path of each Python file in a folder; ``__init__`` is the folder."""
    for path in sorted(home.rglob("*.py")):
        if path.is_file():
            parts = path.relative_to(home).with_suffix("").parts
            names = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join((package, *names) if package else names), path


def _sections(node: ast.AST, lines: Sequence[str], scope: str, module: str) -> Iterator[Section]:
    """Yield functions, methods and classes with a docstring; members of conditions too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Documentable):
            name = f"{scope}.{child.name}"
            docstring = ast.get_docstring(child) or ""
            docstring = docstring.encode("utf-8", "replace").decode()  # escapes can be half letters
            summary, _, rest = inspect.cleandoc(docstring).partition("\n\n")
            below = _code_lines(child, lines, rest) if summary else []
            yield Section(name, module, summary, below, "docstring")
            if isinstance(child, ast.ClassDef):
                yield from _sections(child, lines, name, module)
        elif isinstance(child, ast.If | ast.Try):
            yield from _sections(child, lines, scope, module)


def _code_lines(node: Documentable, lines: Sequence[str], rest: str) -> list[str]:
    """Return the object's lines with ``rest`` as docstring and without documented members."""
    first, in_class = _first_line(node), isinstance(node, ast.ClassDef)
    code = list(lines[first - 1 : node.end_lineno])
    for child in reversed(node.body):
        span = slice(_first_line(child) - first, (child.end_lineno or child.lineno) - first + 1)
        if child is node.body[0]:
            code[span] = textwrap.indent(rest, " " * child.col_offset).split("\n") if rest else []
        elif in_class and isinstance(child, Documentable) and ast.get_docstring(child):
            del code[span]
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    return [line[indent:] if not line[:indent].strip() else line for line in code]


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, Documentable) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
