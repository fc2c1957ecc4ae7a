"""``irds:ID``: data sets that ir_datasets downloads, streamed into the cache.

A document has the field ``text`` and perhaps a ``title``. A document or query without the field
``text`` has the default text of ir_datasets.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.errors import DataError, MissingExtraError, OperaError, nearest
from opera.core.extras import missing
from opera.core.progress import counted
from opera.core.storage import ADVICE, storage_error
from opera.core.terminal import shortened, shown
from opera.data.adapters import add_tables
from opera.data.arrow_tables import MemoryTable
from opera.data.columns import Columns
from opera.data.index import Index, parse_relation
from opera.data.names import SPLIT_NAMES, source_name
from opera.data.read import arrow_rows
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import LAYOUT, DataBuilder, load_or_parse
from opera.data.texts import TextRow

JUDGED = ["query", "document", "grade"]
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


def load_irds(identifier: str) -> RetrievalData:
    """Load a data set by its id in ir_datasets, from the cache if possible.

    Args:
        identifier: the id of one split with judgements, such as ``antique/train``; or the id above
            the splits train, dev and test, such as ``beir/nfcorpus``, for all of them.

    Raises:
        MissingExtraError: if ir_datasets is not installed.
        DataError: for an unknown id, a failed download, and an error in the data.
    """
    source = f"irds:{identifier}"
    return load_irds_splits(find_splits(identifier), source_name(source) or source, source)


def find_splits(identifier: str) -> dict[str, str]:
    """Return the id of each split.

    Raises:
        DataError: if the id is unknown or has no judgements.
    """
    source = f"irds:{shown(identifier)[1:-1]}"
    if not _ID.fullmatch(identifier):
        raise DataError(f"{source}: must be an id of ir_datasets, such as irds:beir/nfcorpus")
    registry = _library(source).registry

    def judged(name: str) -> bool:
        try:
            return bool(registry[name].has_qrels())
        except (KeyError, ValueError):
            return False

    if judged(identifier):
        named = [SPLIT_NAMES[part] for part in identifier.split("/") if part in SPLIT_NAMES]
        return {named[-1] if named else "test": identifier}
    below: dict[str, str] = {}
    for name, split in SPLIT_NAMES.items():
        if judged(f"{identifier}/{name}"):
            below.setdefault(split, f"{identifier}/{name}")
    if below:
        return below
    known = list(registry)
    problem = f"ir_datasets has no such data set{nearest(identifier[:100], known)}"
    if inside := [name for name in known if name.startswith(f"{identifier}/") and judged(name)]:
        problem = f"has no judgements itself; pass one of {shortened(', '.join(inside))}"
    elif identifier in known:
        problem = "ir_datasets has no judgements for it"
    raise DataError(f"{source}: {problem}")


def _digest(splits: Mapping[str, str]) -> str:
    named = (f"{split}={identifier}" for split, identifier in splits.items())
    return hashlib.sha256("\0".join((LAYOUT, "irds", *named)).encode()).hexdigest()


def load_irds_splits(splits: Mapping[str, str], name: str, source: str) -> RetrievalData:
    """Load the splits of one corpus, each by its own id in ir_datasets.

    Args:
        splits: the id of each split: ``{"train": "beir/fiqa/train", "test": "beir/fiqa/test"}``.
        name: short name of the data set, for tables.
        source: the user's argument, for messages.

    Raises:
        MissingExtraError: if ir_datasets is not installed.
        DataError: for a failed download, and for an error in the data.
    """
    parse = partial(
        parse_relation, partial(_read, splits, source), lenient=True, skip_bad_rows=None
    )
    return load_or_parse(_digest(splits), name, source, parse, named=True)


def _read(splits: Mapping[str, str], source: str, relation: Relation, builder: DataBuilder) -> None:
    library = _library(source)
    datasets = {split: library.load(identifier) for split, identifier in splits.items()}
    corpus = next(iter(datasets.values()))
    if not corpus.has_docs():
        raise DataError(f"{source}: ir_datasets has no documents for it")

    def read(items: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        try:
            yield from items()
        except (OperaError, MemoryError):
            raise
        except Exception as error:
            raise _explained(error, source, next(iter(splits.values()))) from error

    def table(name: str, columns: Sequence[str], rows: Callable[[], Iterable[Any]]) -> MemoryTable:
        types = dict.fromkeys(columns, pa.string())
        return MemoryTable(
            f"{source}: {name}",
            columns,
            lambda _: (pa.record_batch(part.columns) for part in arrow_rows(rows(), types)),
        )

    def documents() -> Iterator[Sequence[Any]]:
        total = corpus.docs_metadata().get("count")
        rows = (_text_row(doc, doc.doc_id) for doc in read(corpus.docs_iter))
        for row in counted(rows, f"reading {source}", total, "documents"):
            yield 0, *row_of_text("documents", row)

    def row_of_text(kind: str, row: TextRow) -> Iterator[str]:
        """Replace each half character by a question mark, because UTF-8 cannot encode it."""
        valid = [text.encode("utf-8", "replace").decode() for text in row]
        replaced[kind] += valid != list(row)
        return iter(valid)

    replaced = Counter[str]()
    queries: dict[str, str] = {}
    prefixes = dict.fromkeys(datasets, "")
    for split, dataset in datasets.items():
        rows = read(dataset.queries_iter) if dataset.has_queries() else ()
        texts = {query.query_id: _text_row(query, query.query_id)[2] for query in rows}
        if any(queries.get(query, text) != text for query, text in texts.items()):
            prefixes[split] = f"{split}:"
        queries |= {f"{prefixes[split]}{query}": text for query, text in texts.items()}
    query_rows = (
        (0, *row_of_text("queries", (query, "", text))) for query, text in queries.items()
    )

    def judgements(split: str) -> Iterator[Sequence[Any]]:
        for judged in read(datasets[split].qrels_iter):
            query = f"{prefixes[split]}{judged.query_id}"
            yield 0, query, judged.doc_id, str(judged.relevance)

    add_tables(
        relation,
        {
            "documents": [table("documents", ["id", "title", "text"], documents)],
            "queries": [table("queries", ["id", "title", "text"], lambda: query_rows)],
        },
        [
            (split, table(f"split '{split}'", JUDGED, partial(judgements, split)))
            for split in datasets
        ],
        Columns(),
    )
    relation.notes = [
        f"replaced half characters by question marks in {count:,} {kind}"
        for kind, count in replaced.items()
        if count
    ]
    if any(prefixes.values()):
        relation.note(
            "the splits use the same query ids: ids of later splits begin with the split's name"
        )
    Index(relation, builder, source).build(list(datasets))


def _text_row(item: Any, identifier: str) -> TextRow:
    if "text" in item._fields:
        return identifier, getattr(item, "title", "") or "", item.text or ""
    return identifier, "", item.default_text() or ""


def _library(source: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise missing("ir_datasets", source) from None
    logging.getLogger("ir_datasets").addFilter(_only_agreements)
    return ir_datasets


def _only_agreements(record: logging.LogRecord) -> bool:
    """Show a message of the library only if it asks the user to agree to terms of use."""
    return "agree" in record.getMessage().lower()


def _explained(error: Exception, source: str, identifier: str) -> OperaError:
    if isinstance(error, ImportError):
        return MissingExtraError(f"{source}: {error}")
    home = Path(_library(source).util.home_path())
    if isinstance(error, OSError) and error.errno in ADVICE:
        return storage_error(
            home, error, " (in the files of ir_datasets; IR_DATASETS_HOME sets their folder)"
        )
    reason = shortened(f"{type(error).__name__}: {error}", 400)
    page = f"https://ir-datasets.com/{identifier.partition('/')[0]}.html"
    return DataError(
        f"{source}: cannot be read ({reason}); {page} says which files to download into {home}"
    )
