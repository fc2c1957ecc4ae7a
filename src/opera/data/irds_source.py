"""``irds:ID``: data sets that ir_datasets downloads, streamed into the cache.

A document has the field ``text`` and perhaps a ``title``. A document or query without the field
``text`` has the default text of ir_datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from opera.core.environment import missing
from opera.core.errors import DataError, nearest
from opera.core.progress import with_progress
from opera.core.terminal import shortened, shown
from opera.data.add_tables import add_tables
from opera.data.columns import Columns
from opera.data.names import SPLIT_NAMES, source_name
from opera.data.numbering import TextNumbering, load_relation
from opera.data.relation import Relation
from opera.data.retrieval_data import RetrievalData
from opera.data.store import DataBuilder, digest_files, library_errors
from opera.data.tables import MemoryTable, arrow_rows

JUDGED = ["query", "document", "grade"]


def load_irds(identifier: str) -> RetrievalData:
    """Load a data set by its id in ir_datasets, from the cache if possible.

    Args:
        identifier: the id of one split with judgements, such as ``antique/train``; or its
            parent, such as ``beir/nfcorpus``, for the splits train, dev and test.

    Raises:
        MissingExtraError: if ir_datasets is not installed.
        DataError: for an unknown id, a failed download, and an error in the data.
    """
    source = f"irds:{identifier}"
    return load_irds_splits(find_splits(identifier), source_name(source) or source, source)


def find_splits(identifier: str) -> dict[str, str]:
    """Return the id of each split by the name of the split.

    Raises:
        DataError: if the id is unknown or has no judgements.
    """
    source = f"irds:{shown(identifier)[1:-1]}"
    registry = _library(source).registry

    def judged(name: str) -> bool:
        try:
            return bool(registry[name].has_qrels())
        except (KeyError, ValueError):
            return False

    if judged(identifier):
        named = [part for part in identifier.split("/") if part in SPLIT_NAMES]
        return {named[-1] if named else "test": identifier}
    paths = {name: f"{identifier}/{name}" for name in SPLIT_NAMES}
    if below := {name: path for name, path in paths.items() if judged(path)}:
        return below
    known = list(registry)
    inside = [name for name in known if name.startswith(f"{identifier}/") and judged(name)]
    problem = f"ir_datasets has no judgements for it{nearest(identifier[:100], known)}"
    if inside:
        problem = f"has no judgements itself; pass one of {shortened(', '.join(inside))}"
    raise DataError(f"{source}: {problem}")


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

    def read(relation: Relation, builder: DataBuilder) -> None:
        home, (first_id, *_) = Path(_library(source).util.home_path()), splits.values()
        page = f"https://ir-datasets.com/{first_id.partition('/')[0]}.html"
        advice = f"{page} says which files to download into {home}"
        with library_errors(source, home, advice):
            _read(splits, source, relation, builder)

    key = digest_files([], f"irds\0{splits}")
    return load_relation(key, name, source, read, lenient=True, skip_bad_rows=None)


def _read(splits: Mapping[str, str], source: str, relation: Relation, builder: DataBuilder) -> None:
    library = _library(source)
    datasets = {split: library.load(identifier) for split, identifier in splits.items()}
    corpus = next(iter(datasets.values()))

    def documents() -> Iterator[Sequence[Any]]:
        total = corpus.docs_metadata().get("count")
        for doc in with_progress(corpus.docs_iter(), f"reading {source}", total, "documents"):
            yield 0, doc.doc_id, *_title_and_text(doc)

    queries, prefixes = _queries_of(datasets)

    def judgements(split: str) -> Iterator[Sequence[Any]]:
        for judged in datasets[split].qrels_iter():
            yield 0, prefixes[split] + judged.query_id, judged.doc_id, str(judged.relevance)

    listed_queries = [(0, query, text) for query, text in queries.items()]
    add_tables(
        relation,
        {
            "documents": [_table(f"{source}: documents", ["id", "title", "text"], documents)],
            "queries": [_table(f"{source}: queries", ["id", "text"], lambda: listed_queries)],
        },
        [
            (split, _table(f"{source}: split '{split}'", JUDGED, partial(judgements, split)))
            for split in datasets
        ],
        Columns(),
    )
    relation.notes.clear()  # the columns are those of this module
    if any(prefixes.values()):
        relation.note(
            "the splits use the same query ids: ids of later splits begin with the split's name"
        )
    TextNumbering(relation, builder, source).build([SPLIT_NAMES[name] for name in datasets])


def _table(
    name: str, columns: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]]
) -> MemoryTable:
    """Return a table of texts from functions that yield a row number and the values of a row."""
    types = dict.fromkeys(columns, pa.string())
    return MemoryTable(
        name,
        columns,
        lambda _: (pa.record_batch(part.columns) for part in arrow_rows(rows(), types)),
    )


def _queries_of(datasets: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of all queries by id, and the prefix of the ids of each split.

    A split has a prefix if an id means another text in an earlier split.
    """
    queries: dict[str, str] = {}
    prefixes = dict.fromkeys(datasets, "")
    for split, dataset in datasets.items():
        rows = dataset.queries_iter() if dataset.has_queries() else ()
        texts = {query.query_id: _title_and_text(query)[1] for query in rows}
        if any(queries.get(query, text) != text for query, text in texts.items()):
            prefixes[split] = f"{SPLIT_NAMES[split]}:"
        queries |= {f"{prefixes[split]}{query}": text for query, text in texts.items()}
    return queries, prefixes


def _title_and_text(item: Any) -> tuple[str, str]:
    """Title and text of a document or query. UTF-8 cannot encode half characters."""
    title = getattr(item, "title", "") if "text" in item._fields else ""
    text = item.text if "text" in item._fields else item.default_text()
    title, text = ((value or "").encode("utf-8", "replace").decode() for value in (title, text))
    return title, text


def _library(source: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise missing("ir_datasets", source) from None
    return ir_datasets
