"""``python:PACKAGE``: the source code of an installed package as retrieval data.

The query of an object is the first paragraph of its docstring. Its documents are chunks of its code
and of the rest of its docstring. So each query has several positives of uneven quality, as in any
chunked corpus. Train and test objects come from different modules. Nothing is imported, so no code
of the package runs.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import sysconfig
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import DataError
from opera.core.reading import read_text
from opera.core.rng import generator
from opera.core.terminal import printable, shortened, shown
from opera.data.checks import check_id
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import LAYOUT, DataBuilder

CHUNK_CHARACTERS = 600
SHORTEST_CHUNK = 40
MIN_WORDS = 3
TEST_SHARE = 0.2
NOT_STDLIB = frozenset(
    [
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
    ]
)

Documentable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class DocumentedObject:
    """A function, method or class with a docstring: its dotted name, module, summary and chunks."""

    name: str
    module: str
    summary: str
    chunks: tuple[str, ...]


def load_python(
    package: str, seed: int = 0, train_queries: int | None = None, test_queries: int | None = None
) -> RetrievalData:
    """Read an installed package, or the standard library as ``stdlib``. No code is run.

    Args:
        package: its import name.
        seed: of the draw of test modules, and of the objects to keep if there are limits.
        train_queries: maximum number of train objects; the corpus holds the chunks of the kept
            objects.
        test_queries: maximum number of test objects.

    Raises:
        DataError: if the package is not installed, or has too few documented objects in too few
            modules.
    """
    objects, notes = _documented_objects(package)
    sizes = Counter(item.module for item in objects)
    if len(sizes) < 2:
        raise DataError(
            f"python:{package}: found {len(objects)} documented objects in {len(sizes)} modules; "
            "at least 2 modules are needed, because train and test objects come from different "
            "modules" + "".join(f"; {note}" for note in notes)
        )
    testing = _test_modules(sizes, seed)
    train = [item for item in objects if item.module not in testing]
    test = [item for item in objects if item.module in testing]
    kept = {
        "train": _sample(train, train_queries, seed, "train"),
        "test": _sample(test, test_queries, seed, "test"),
    }
    digest = hashlib.sha256(f"{LAYOUT}\0python\0{package}".encode())
    for split, items in kept.items():
        digest.update(f"\0{split}".encode())
        for item in items:
            digest.update("\0".join((item.name, item.summary, *item.chunks)).encode())

    def parse(builder: DataBuilder) -> None:
        docs: list[tuple[str, str, str]] = []
        queries: list[tuple[str, str, str]] = []
        for split, items in kept.items():
            rows = []
            for item in items:
                for number, chunk in enumerate(item.chunks):
                    rows.append((len(queries), len(docs)))
                    docs.append((f"{item.name}#{number}", item.name, chunk))
                queries.append((item.name, "", item.summary))
            query, doc = np.array(rows).T
            builder.splits[split] = Qrels.from_arrays(query, doc, np.ones(len(doc), dtype=np.int32))
        builder.write_texts("corpus", docs)
        builder.write_texts("queries", queries)

    data = load_or_parse(digest.hexdigest, package, f"python:{package}", parse)
    return replace(data, notes=(*data.notes, *notes))


def _test_modules(sizes: Counter[str], seed: int) -> set[str]:
    """Draw modules until they have a fifth of the objects; at least one is left for train."""
    modules, target = sorted(sizes), TEST_SHARE * sizes.total()
    drawn: set[str] = set()
    for at in generator(seed, "python.modules").permutation(len(modules))[:-1]:
        if sum(sizes[module] for module in drawn) >= target:
            break
        drawn.add(modules[at])
    return drawn


def _sample(
    items: list[DocumentedObject], limit: int | None, seed: int, split: str
) -> list[DocumentedObject]:
    """Keep ``limit`` random objects, modules taking turns, so that none crowds out others."""
    if limit is None or len(items) <= limit:
        return items
    taken: Counter[str] = Counter()
    turns: list[tuple[int, int, int]] = []
    for at in generator(seed, f"python.{split}").permutation(len(items)).tolist():
        turns.append((taken[items[at].module], len(turns), at))
        taken[items[at].module] += 1
    return [items[at] for at in sorted(at for _, _, at in sorted(turns)[:limit])]


def _source_files(package: str) -> list[tuple[str, Path]]:
    """Return dotted name and file of each module of a package, or of ``stdlib``, in order.

    Raises:
        DataError: if there is no such package, or none of its source is in files.
    """
    top, *rest = package.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        raise DataError(
            "python:PACKAGE: must be the import name of a package, such as json, got "
            f"{shown(package)}"
        )
    if package == "stdlib":
        home = Path(sysconfig.get_paths()["stdlib"])
        return [
            (name, path)
            for name, path in _below(home, "")
            if not NOT_STDLIB & set(path.relative_to(home).parts)
        ]
    # Of a top-level name, finders run no code. Those of editable installs are among the others.
    finders: list[Any] = [PathFinder, *sys.meta_path]
    specs = (finder.find_spec(top, None) for finder in finders)
    spec = next((spec for spec in specs if spec is not None), None)
    homes = (spec and spec.submodule_search_locations) or []
    files = [own for home in homes for own in _below(Path(home, *rest), package)]
    alone = [Path(home, *rest).with_suffix(".py") for home in homes]
    if spec is not None and not homes and not rest:
        alone = [Path(spec.origin or "")]
    files = files or [(package, path) for path in alone if path.suffix == ".py" and path.is_file()]
    if not files:
        raise DataError(
            f"python:{package}: no installed package of that name has its source in files (use its "
            "import name)"
        )
    return files


def _below(home: Path, package: str) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and path of each Python file in a folder; ``__init__`` is the folder."""
    for path in sorted(home.rglob("*.py")):
        if path.is_file():
            parts = path.relative_to(home).with_suffix("").parts
            own = parts[:-1] if parts[-1] == "__init__" else parts
            yield ".".join((package, *own) if package else own), path


def _documented_objects(package: str) -> tuple[list[DocumentedObject], list[str]]:
    """Return the objects with a summary of their own, and a note on the files that cannot be read.

    Many packages hold templates, or files in other encodings. The second and later objects of one
    name, such as setters, get a number.
    """
    found: list[DocumentedObject] = []
    left_out = []
    files = _source_files(package)
    for module, path in files:
        try:
            check_id("its name", module)  # ids start with it
            text = (
                read_text(path).replace("\r\n", "\n").replace("\r", "\n")
            )  # as Python counts lines
            with warnings.catch_warnings(
                action="ignore"
            ):  # those of that package do not concern the user
                tree = ast.parse(text)
            found += _objects_in(tree, text.split("\n"), module, module)
        except (DataError, SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            left_out.append(path.name)  # the last two: deep nesting
    shared = Counter(item.summary.casefold() for item in found)
    seen: Counter[str] = Counter()
    objects = []
    for item in found:
        if shared[item.summary.casefold()] == 1:
            seen[item.name] += 1
            number = f"({seen[item.name]})" if seen[item.name] > 1 else ""
            objects.append(replace(item, name=f"{item.name}{number}"))
    names = shortened(printable(", ".join(left_out)))
    note = f"left out {len(left_out)} of {len(files)} files that are no Python in UTF-8: {names}"
    return objects, [note] if left_out else []


def _objects_in(
    node: ast.AST, lines: Sequence[str], scope: str, module: str
) -> Iterator[DocumentedObject]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Documentable):
            name = f"{scope}.{child.name}"
            yield from _document(child, lines, name, module)
            if isinstance(child, ast.ClassDef):
                yield from _objects_in(child, lines, name, module)
        elif isinstance(child, ast.If | ast.Try):
            yield from _objects_in(child, lines, scope, module)


def _document(
    node: Documentable, lines: Sequence[str], name: str, module: str
) -> Iterator[DocumentedObject]:
    docstring = ast.get_docstring(node) or ""
    docstring = docstring.encode("utf-8", "replace").decode()  # an escape can be half a character
    summary, _, rest = inspect.cleandoc(docstring).partition("\n\n")
    summary = " ".join(summary.split())
    if len(summary.split()) < MIN_WORDS:
        return
    chunks = _chunks(_code_lines(node, lines, rest))
    if hiding := tuple(chunk for chunk in chunks if summary not in " ".join(chunk.split())):
        yield DocumentedObject(name, module, summary, hiding)


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, Documentable) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _code_lines(node: Documentable, lines: Sequence[str], rest: str) -> list[str]:
    """Return the object's lines with ``rest`` as docstring and without documented members."""
    first, in_class = _first_line(node), isinstance(node, ast.ClassDef)
    own = list(lines[first - 1 : node.end_lineno])
    for child in reversed(node.body):
        span = slice(_first_line(child) - first, (child.end_lineno or child.lineno) - first + 1)
        if child is node.body[0]:
            own[span] = textwrap.indent(rest, " " * child.col_offset).split("\n") if rest else []
        elif in_class and isinstance(child, Documentable) and ast.get_docstring(child):
            del own[span]
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    return [line[indent:] if not line[:indent].strip() else line for line in own]


def _chunks(lines: Sequence[str]) -> list[str]:
    """Pack lines into chunks of ``CHUNK_CHARACTERS`` at most, ``SHORTEST_CHUNK`` at least."""
    chunks, longest = [""], CHUNK_CHARACTERS - 1
    for line in lines:
        for start in range(0, max(1, len(line)), longest):
            piece = line[start : start + longest] + "\n"
            if len(chunks[-1]) + len(piece) > CHUNK_CHARACTERS:
                chunks.append("")
            chunks[-1] += piece
    return [chunk.strip("\n") for chunk in chunks if len(chunk.strip()) >= SHORTEST_CHUNK]
