"""``python:PACKAGE``: learn to search the source code of an installed package.

Queries are the first paragraphs of docstrings. The documents of an object are chunks of its code and of the rest of
its docstring, the first paragraph taken out, so that a query has several positives of uneven quality, as any chunked
corpus has. Train and test objects come from different modules.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sysconfig
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.qrels import Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.store import LAYOUT, Draft, stored

CHUNK_CHARACTERS = 600
SHORTEST_CHUNK = 40
FEWEST_WORDS = 3
TEST_SHARE = 0.2
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

Documentable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class DocumentedObject:
    """A function, method or class with a docstring: its dotted name, module, summary, and chunks."""

    name: str
    module: str
    summary: str
    chunks: tuple[str, ...]


def load_python(
    package: str, seed: int = 0, train_queries: int | None = None, test_queries: int | None = None
) -> RetrievalData:
    """Read an installed package, or ``stdlib``: the whole standard library. Nothing of it is run.

    Args:
        package: its import name.
        seed: decides which modules are for testing, and which objects are kept where there are limits.
        train_queries: keep at most so many train objects; the corpus is the chunks of the objects kept.
        test_queries: likewise for test.

    Raises:
        DataError: if the package is not installed, or has too few documented objects in too few modules.
    """
    objects = _distinct_names(_distinct_summaries(list(_documented_objects(package))))
    modules = sorted({item.module for item in objects})
    if len(modules) < 2:
        raise DataError(
            f"python:{package}: found {len(objects)} documented objects in {len(modules)} modules; "
            "it takes 2 modules or more, since train and test objects come from different ones"
        )
    train, test = _split_by_module(objects, modules, seed)
    chosen = {
        split: _sample(items, limit, seed, split)
        for split, items, limit in (("train", train, train_queries), ("test", test, test_queries))
    }

    def read(draft: Draft) -> None:
        docs: list[tuple[str, str, str]] = []
        queries: list[tuple[str, str, str]] = []
        for split, items in chosen.items():
            rows = []
            for item in items:
                for number, chunk in enumerate(item.chunks):
                    rows.append((len(queries), len(docs)))
                    docs.append((f"{item.name}#{number}", item.name, chunk))
                queries.append((item.name, "", item.summary))
            query, doc = np.array(rows).T
            draft.splits[split] = Qrels.from_arrays(query, doc, np.ones(len(doc), dtype=np.int32))
        draft.write_texts("corpus", docs)
        draft.write_texts("queries", queries)

    digest = hashlib.sha256(f"{LAYOUT}\0python\0{package}".encode())
    for split, items in chosen.items():
        digest.update(f"\0{split}".encode())
        for item in items:
            digest.update("\0".join((item.name, item.summary, *item.chunks)).encode())
    return stored(digest.hexdigest(), package, f"python:{package}", read)


def _split_by_module(
    objects: list[DocumentedObject], modules: list[str], seed: int
) -> tuple[list[DocumentedObject], list[DocumentedObject]]:
    """Give random whole modules to test until it has a fifth of the objects; at least one module stays in train."""
    sizes = Counter(item.module for item in objects)
    wanted = TEST_SHARE * len(objects)
    testing: set[str] = set()
    for at in generator(seed, "python.modules").permutation(len(modules))[: len(modules) - 1]:
        if sum(sizes[module] for module in testing) >= wanted:
            break
        testing.add(modules[at])
    return (
        [item for item in objects if item.module not in testing],
        [item for item in objects if item.module in testing],
    )


def _sample(items: list[DocumentedObject], limit: int | None, seed: int, split: str) -> list[DocumentedObject]:
    """Keep a random ``limit`` of the objects, taking turns between modules so that no large one crowds the rest out."""
    if limit is None or len(items) <= limit:
        return items
    taken: Counter[str] = Counter()
    turns: list[tuple[int, int, int]] = []
    for at in generator(seed, f"python.{split}").permutation(len(items)).tolist():
        turns.append((taken[items[at].module], len(turns), at))
        taken[items[at].module] += 1
    return [items[at] for at in sorted(at for _, _, at in sorted(turns)[:limit])]


def _distinct_summaries(objects: list[DocumentedObject]) -> list[DocumentedObject]:
    """Drop objects whose summary another shares: such a query does not say which one it is after."""
    shared = Counter(item.summary.casefold() for item in objects)
    return [item for item in objects if shared[item.summary.casefold()] == 1]


def _distinct_names(objects: list[DocumentedObject]) -> list[DocumentedObject]:
    """Number the second and later objects of one name, such as the branches of an if or a property's setter."""
    seen: Counter[str] = Counter()
    renamed = []
    for item in objects:
        seen[item.name] += 1
        renamed.append(item if seen[item.name] == 1 else replace(item, name=f"{item.name}({seen[item.name]})"))
    return renamed


def _documented_objects(package: str) -> Iterator[DocumentedObject]:
    for module, path in _modules(package):
        try:
            source = path.read_text(encoding="utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # another package's odd escapes are not our user's business
                tree = ast.parse(source)
        except (SyntaxError, ValueError, OSError):
            continue  # templates and files in other encodings lie in many packages; they hold no objects
        yield from _objects_in(tree, source.split("\n"), module, module)


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    if package == "stdlib":
        root = Path(sysconfig.get_paths()["stdlib"])
        files = (p for p in sorted(root.rglob("*.py")) if not NOT_STDLIB & set(p.relative_to(root).parts))
        yield from ((_dotted(path.relative_to(root)), path) for path in files)
        return
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise DataError(f"python:{package}: no installed package of that name (use its import name)")
    roots = [Path(place) for place in spec.submodule_search_locations or []]
    if not roots and spec.origin and spec.origin.endswith(".py"):
        yield package, Path(spec.origin)
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            yield f"{package}.{_dotted(path.relative_to(root))}".removesuffix("."), path


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _objects_in(node: ast.AST, lines: list[str], scope: str, module: str) -> Iterator[DocumentedObject]:
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


def _document(node: Documentable, lines: list[str], name: str, module: str) -> DocumentedObject | None:
    docstring = ast.get_docstring(node)
    if not docstring:
        return None
    summary, _, rest = inspect.cleandoc(docstring).partition("\n\n")
    summary = " ".join(summary.split())
    if len(summary.split()) < FEWEST_WORDS:
        return None
    chunks = [chunk for chunk in _chunks(_code_lines(node, lines, rest)) if summary not in " ".join(chunk.split())]
    return DocumentedObject(name, module, summary, tuple(chunks)) if chunks else None


def _first_line(node: Documentable) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: list[str], rest: str) -> list[str]:
    """Return the object's source with its docstring cut down to ``rest``; members with a docstring are left out."""
    first = _first_line(node)
    assert node.end_lineno is not None
    replaced: dict[int, list[str]] = {}
    dropped: set[int] = set()
    for at, child in enumerate(node.body):
        span = range(child.lineno, (child.end_lineno or child.lineno) + 1)
        if at == 0:
            dropped |= set(span)
            replaced[child.lineno] = textwrap.indent(rest, " " * child.col_offset).split("\n") if rest else []
        elif isinstance(node, ast.ClassDef) and isinstance(child, Documentable) and ast.get_docstring(child):
            dropped |= set(range(_first_line(child), span.stop))
    kept: list[str] = []
    for number in range(first, node.end_lineno + 1):
        kept += replaced.get(number, [])
        if number not in dropped:
            kept.append(lines[number - 1])
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    return [line[indent:] if not line[:indent].strip() else line for line in kept]


def _chunks(lines: list[str]) -> list[str]:
    """Pack lines into chunks of at most ``CHUNK_CHARACTERS``; a chunk too short to mean anything is dropped."""
    chunks, current = [], ""
    for line in lines:
        for piece in [line[i : i + CHUNK_CHARACTERS - 1] for i in range(0, len(line), CHUNK_CHARACTERS - 1)] or [""]:
            if len(current) + len(piece) + 1 > CHUNK_CHARACTERS:
                chunks.append(current)
                current = ""
            current += piece + "\n"
    chunks.append(current)
    return [chunk.strip("\n") for chunk in chunks if len(chunk.strip()) >= SHORTEST_CHUNK]
