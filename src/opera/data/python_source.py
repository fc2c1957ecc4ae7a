"""``python:PACKAGE``: the source code of an installed package as retrieval data.

The query of an object is the first paragraph of its docstring. Its documents are chunks of its code and of the rest of
its docstring. So each query has several positives of uneven quality, as in any chunked corpus. Train and test objects
come from different modules.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from opera.core.errors import DataError, SettingError
from opera.core.reading import read_text
from opera.core.rng import generator
from opera.core.terminal import printable, shortened, shown
from opera.data.checks import check_id
from opera.data.packages import source_files
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import LAYOUT, DataBuilder

CHUNK_CHARACTERS = 600
SHORTEST_CHUNK = 40
MIN_WORDS = 3
TEST_SHARE = 0.2

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
        train_queries: maximum number of train objects; the corpus holds the chunks of the kept objects.
        test_queries: maximum number of test objects.

    Raises:
        SettingError: for a limit below 1.
        DataError: if the package is not installed, or has too few documented objects in too few modules.
    """
    for name, limit in (("train_queries", train_queries), ("test_queries", test_queries)):
        if limit is not None and limit < 1:
            raise SettingError(f"{name}: must be 1 or more, got {shown(limit)}")
    found, left_out = _documented_objects(package)
    objects = _distinct_names(_distinct_summaries(found))
    modules = sorted({item.module for item in objects})
    if len(modules) < 2:
        raise DataError(
            f"python:{package}: found {len(objects)} documented objects in {len(modules)} modules; "
            "at least 2 modules are needed, because train and test objects come from different modules"
            + "".join(f"; {note}" for note in left_out)
        )
    train, test = _split_by_module(objects, modules, seed)
    kept = {
        split: _sample(items, limit, seed, split)
        for split, items, limit in (("train", train, train_queries), ("test", test, test_queries))
    }

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

    digest = hashlib.sha256(f"{LAYOUT}\0python\0{package}".encode())
    for split, items in kept.items():
        digest.update(f"\0{split}".encode())
        for item in items:
            digest.update("\0".join((item.name, item.summary, *item.chunks)).encode())
    data = load_or_parse(digest.hexdigest, package, f"python:{package}", parse)
    return replace(data, notes=(*data.notes, *left_out))


def _split_by_module(
    objects: list[DocumentedObject], modules: list[str], seed: int
) -> tuple[list[DocumentedObject], list[DocumentedObject]]:
    """Move random whole modules to test until it has a fifth of the objects; at least one module stays in train."""
    sizes = Counter(item.module for item in objects)
    target = TEST_SHARE * len(objects)
    testing: set[str] = set()
    for at in generator(seed, "python.modules").permutation(len(modules))[: len(modules) - 1]:
        if sum(sizes[module] for module in testing) >= target:
            break
        testing.add(modules[at])
    return (
        [item for item in objects if item.module not in testing],
        [item for item in objects if item.module in testing],
    )


def _sample(
    items: list[DocumentedObject], limit: int | None, seed: int, split: str
) -> list[DocumentedObject]:
    """Keep ``limit`` random objects, taking turns between modules so that large modules do not crowd out the rest."""
    if limit is None or len(items) <= limit:
        return items
    taken: Counter[str] = Counter()
    turns: list[tuple[int, int, int]] = []
    for at in generator(seed, f"python.{split}").permutation(len(items)).tolist():
        turns.append((taken[items[at].module], len(turns), at))
        taken[items[at].module] += 1
    return [items[at] for at in sorted(at for _, _, at in sorted(turns)[:limit])]


def _distinct_summaries(objects: list[DocumentedObject]) -> list[DocumentedObject]:
    """Drop objects that share their summary with another: such a query is ambiguous."""
    shared = Counter(item.summary.casefold() for item in objects)
    return [item for item in objects if shared[item.summary.casefold()] == 1]


def _distinct_names(objects: list[DocumentedObject]) -> list[DocumentedObject]:
    """Number the second and later objects of one name, such as property setters and definitions in else branches."""
    seen: Counter[str] = Counter()
    renamed = []
    for item in objects:
        seen[item.name] += 1
        renamed.append(
            item if seen[item.name] == 1 else replace(item, name=f"{item.name}({seen[item.name]})")
        )
    return renamed


def _documented_objects(package: str) -> tuple[list[DocumentedObject], list[str]]:
    """Return the documented objects of a package, and a note on the files that cannot be read.

    Many packages hold templates, or files in other encodings.
    """
    objects: list[DocumentedObject] = []
    left_out = []
    files = source_files(package)
    for module, path in files:
        try:
            check_id("its name", module)  # ids start with it
            objects += _read(module, read_text(path))
        except (
            DataError,
            SyntaxError,
            ValueError,
            OSError,
            RecursionError,
            MemoryError,
        ):  # the last two: deep nesting
            left_out.append(path.name)
    if not left_out:
        return objects, []
    names = shortened(printable(", ".join(left_out)))
    return objects, [
        f"left out {len(left_out)} of {len(files)} files that are no Python in UTF-8: {names}"
    ]


def _read(module: str, text: str) -> list[DocumentedObject]:
    source = text.replace("\r\n", "\n").replace("\r", "\n")  # as Python counts lines
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # syntax warnings of that package do not concern the user
        tree = ast.parse(source)
    return list(_objects_in(tree, source.split("\n"), module, module))


def _objects_in(
    node: ast.AST, lines: list[str], scope: str, module: str
) -> Iterator[DocumentedObject]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Documentable):
            name = f"{scope}.{child.name}"
            item = _document(child, lines, name, module)
            if item:
                yield item
            if isinstance(child, ast.ClassDef):
                yield from _objects_in(child, lines, name, module)
        elif isinstance(child, ast.If | ast.Try):
            yield from _objects_in(child, lines, scope, module)


def _document(
    node: Documentable, lines: list[str], name: str, module: str
) -> DocumentedObject | None:
    docstring = ast.get_docstring(node)
    if not docstring:
        return None
    docstring = docstring.encode("utf-8", "replace").decode(
        "utf-8"
    )  # an escape can be half a character
    summary, _, rest = inspect.cleandoc(docstring).partition("\n\n")
    summary = " ".join(summary.split())
    if len(summary.split()) < MIN_WORDS:
        return None
    chunks = [
        chunk
        for chunk in _chunks(_code_lines(node, lines, rest))
        if summary not in " ".join(chunk.split())
    ]
    return DocumentedObject(name, module, summary, tuple(chunks)) if chunks else None


def _first_line(node: Documentable) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _code_lines(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str], rest: str
) -> list[str]:
    """Return the object's source lines with ``rest`` as its docstring and without documented members."""
    first = _first_line(node)
    assert node.end_lineno is not None
    replaced: dict[int, list[str]] = {}
    dropped: set[int] = set()
    for at, child in enumerate(node.body):
        span = range(child.lineno, (child.end_lineno or child.lineno) + 1)
        if at == 0:
            dropped |= set(span)
            replaced[child.lineno] = (
                textwrap.indent(rest, " " * child.col_offset).split("\n") if rest else []
            )
        elif (
            isinstance(node, ast.ClassDef)
            and isinstance(child, Documentable)
            and ast.get_docstring(child)
        ):
            dropped |= set(range(_first_line(child), span.stop))
    kept: list[str] = []
    for number in range(first, node.end_lineno + 1):
        kept += replaced.get(number, [])
        if number not in dropped:
            kept.append(lines[number - 1])
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    return [line[indent:] if not line[:indent].strip() else line for line in kept]


def _chunks(lines: list[str]) -> list[str]:
    """Pack lines into chunks of at most ``CHUNK_CHARACTERS``; drop chunks shorter than ``SHORTEST_CHUNK``."""
    chunks, current = [], ""
    for line in lines:
        for piece in [
            line[i : i + CHUNK_CHARACTERS - 1] for i in range(0, len(line), CHUNK_CHARACTERS - 1)
        ] or [""]:
            if len(current) + len(piece) + 1 > CHUNK_CHARACTERS:
                chunks.append(current)
                current = ""
            current += piece + "\n"
    chunks.append(current)
    return [chunk.strip("\n") for chunk in chunks if len(chunk.strip()) >= SHORTEST_CHUNK]
