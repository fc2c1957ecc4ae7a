"""``python:PACKAGE``: the source code of an installed package as retrieval data.

The query of an object is the first paragraph of its docstring. Its documents are chunks of its code
and of the rest of its docstring. OPERA does not import the package, so none of its code runs.
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
from opera.core.files import read_text
from opera.core.terminal import printable, shortened, shown
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
    """Read an installed package, or the standard library as ``stdlib``, without running its code.

    Args:
        package: its import name.
        seed: the seed that selects test modules, and objects if there are limits.
        train_queries: maximum number of train objects. The corpus has the chunks of the selected
            objects only.
        test_queries: maximum number of test objects.
        chunks: maximum number of chunks of an object; later chunks are dropped.

    Raises:
        DataError: if the package is not installed, or has too few documented objects in too few
            modules.
    """
    sections, notes = python_sections(package)
    limits = {"train": train_queries, "test": test_queries}
    return load_weak_pairs(f"python:{package}", sections, seed, limits, notes, chunks)


def python_sections(package: str) -> tuple[list[Section], list[str]]:
    """Read the documented objects of an installed package, and a note on unreadable files."""
    sections: list[Section] = []
    left_out = []
    files = _source_files(package)
    for module, path in files:
        try:
            if not module.isprintable():
                raise ValueError("ids start with the module's name")
            # as Python counts lines
            text = read_text(path).replace("\r\n", "\n").replace("\r", "\n")
            with warnings.catch_warnings(action="ignore"):  # users cannot fix the package
                tree = ast.parse(text)
            sections += _sections(tree, text.split("\n"), module, module)
        except (DataError, SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            left_out.append(path.name)  # deep nesting raises the last two errors
    names = shortened(printable(", ".join(left_out)))
    note = f"left out {len(left_out)} of {len(files)} files: not Python code in UTF-8: {names}"
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
        spec = find_spec(top)  # for a top-level name, this runs no code
    except ValueError:  # for example __main__
        spec = None
    homes = (spec and spec.submodule_search_locations) or []
    files = [module for home in homes for module in _below(Path(home, *rest), package)]
    if not files:
        raise DataError(
            f"python:{package}: no package with this import name is installed, or it has no "
            "Python source files"
        )
    return files


def _below(home: Path, package: str) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and path of the Python files in a folder."""
    for path in sorted(home.rglob("*.py")):
        if path.is_file():
            parts = path.relative_to(home).with_suffix("").parts
            names = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join((package, *names) if package else names), path


def _sections(node: ast.AST, lines: Sequence[str], scope: str, module: str) -> Iterator[Section]:
    """Yield functions, methods and classes with a docstring, also those inside conditions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Documentable):
            name = f"{scope}.{child.name}"
            docstring = ast.get_docstring(child) or ""
            docstring = docstring.encode("utf-8", "replace").decode()  # "\ud800" is not UTF-8
            summary, _, rest = inspect.cleandoc(docstring).partition("\n\n")
            below = _code_lines(child, lines, rest) if summary else []
            yield Section(name, module, summary, below, "docstring")
            if isinstance(child, ast.ClassDef):
                yield from _sections(child, lines, name, module)
        elif isinstance(child, ast.If | ast.Try):
            yield from _sections(child, lines, scope, module)


def _code_lines(node: Documentable, lines: Sequence[str], rest: str) -> list[str]:
    """Return the object's lines, with ``rest`` as its docstring, without documented members."""
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
