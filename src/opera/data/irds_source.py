"""``irds:ID`` and ``paper:NAME``: data sets that ir_datasets downloads, streamed into the cache.

A document is its field ``text``, with its ``title`` where it has one; a kind of document without a ``text`` gives what
ir_datasets calls its default text. A query is its ``text``, or likewise its default text.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from opera.core.errors import DataError, MissingExtraError, OperaError, nearest
from opera.core.extras import missing
from opera.core.storage import ADVICE, storage_error
from opera.core.terminal import shortened, shown
from opera.data.catalogue import find_set
from opera.data.irds_files import home, how_to_fetch
from opera.data.names import SPLIT_NAMES, source_name
from opera.data.published import RULES, Judgements, check_published_ids, published_texts
from opera.data.retrieval_data import RetrievalData, load_or_parse
from opera.data.store import LAYOUT, DataBuilder, stored_entry
from opera.data.texts import TextRow

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
Item = TypeVar("Item")


def load_irds(identifier: str) -> RetrievalData:
    """Load a data set by its id in ir_datasets; what is not in the cache or in IR_DATASETS_HOME is downloaded.

    Args:
        identifier: an id with judgements, such as ``antique/train``, which is one split; or one above the splits
            train, dev and test, such as ``beir/nfcorpus``, which is all of them.

    Raises:
        MissingExtraError: if ir_datasets is not installed.
        DataError: for an unknown id, for data that cannot be fetched, and for an error in them.
    """
    source = f"irds:{identifier}"
    return load_splits(find_splits(identifier), source_name(source) or source, source)


def load_paper_set(name: str) -> RetrievalData:
    """Load one of the paper's eight data sets.

    Raises:
        InputError: as :func:`load_irds`.
    """
    entry = find_set(name)
    data = load_splits(entry.splits, entry.name, entry.source)
    if entry.relevant_grade == 1:
        return data
    note = f"the paper counts grades from {entry.relevant_grade} up as relevant: relevant_grade={entry.relevant_grade}"
    return replace(data, notes=(*data.notes, note))


def find_splits(identifier: str) -> dict[str, str]:
    """Return the id of each split of an id.

    Raises:
        MissingExtraError: if ir_datasets is not installed.
        DataError: if the id is unknown, or nothing there is judged.
    """
    source = f"irds:{shown(identifier)[1:-1]}"
    if not _ID.fullmatch(identifier):
        raise DataError(f"{source}: must be an id of ir_datasets, such as irds:beir/nfcorpus")
    registry = _library(source).registry
    known = list(registry)
    if (dataset := _dataset(registry, identifier)) is not None and dataset.has_qrels():
        return {_split_of(identifier): identifier}
    below: dict[str, str] = {}
    for name, split in SPLIT_NAMES.items():
        dataset = _dataset(registry, f"{identifier}/{name}")
        if dataset is not None and dataset.has_qrels():
            below.setdefault(split, f"{identifier}/{name}")
    if below:
        return below
    judged = [
        name for name in known if name.startswith(f"{identifier}/") and registry[name].has_qrels()
    ]
    if judged:
        raise DataError(
            f"{source}: has no judgements itself; give one of {shortened(', '.join(judged))}"
        )
    if identifier in known:
        raise DataError(f"{source}: ir_datasets has no judgements of it")
    raise DataError(f"{source}: ir_datasets has no such data set{nearest(identifier[:100], known)}")


def load_splits(splits: Mapping[str, str], name: str, source: str) -> RetrievalData:
    """Load the splits of one corpus, each by its own id.

    Args:
        splits: the id of each split.
        name: short name, for tables.
        source: what the user passed.

    Raises:
        InputError: as :func:`load_irds`.
    """
    key = _digest(splits)
    if key is None:
        raise missing("ir_datasets", source)
    return load_or_parse(
        lambda: key, name, source, lambda builder: _parse(builder, dict(splits), source), named=True
    )


def is_here(splits: Mapping[str, str]) -> bool:
    """Whether the splits of a corpus are in the cache, so that they can be read without a network."""
    return stored_at(splits) is not None


def stored_at(splits: Mapping[str, str]) -> Path | None:
    """Return the folder in the cache that holds the splits of a corpus; ``None`` where there is none."""
    key = _digest(splits)
    return None if key is None else stored_entry(key)


def _digest(splits: Mapping[str, str]) -> str | None:
    """SHA-256 of what decides the data, ``None`` without ir_datasets: its version, which holds each file's MD5."""
    try:
        version = importlib.metadata.version("ir-datasets")
    except importlib.metadata.PackageNotFoundError:
        return None
    parts = [
        LAYOUT,
        RULES,
        "irds",
        version,
        *(f"{split}={identifier}" for split, identifier in splits.items()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _parse(builder: DataBuilder, splits: dict[str, str], source: str) -> None:
    library = _library(source)
    datasets = {split: library.load(identifier) for split, identifier in splits.items()}
    ids = list(splits.values())

    def read(items: Callable[[], Iterable[Item]]) -> Iterator[Item]:
        return _from_library(items, source, ids)

    corpus = next(iter(datasets.values()))
    if not corpus.has_docs():
        raise DataError(f"{source}: ir_datasets has no documents of it")
    total = corpus.docs_metadata().get("count")
    rows = (_text_row(doc, doc.doc_id) for doc in read(corpus.docs_iter))
    builder.write_texts("corpus", published_texts(rows, source, "document", builder.notes, total))
    texts = {
        split: _queries(read(dataset.queries_iter))
        for split, dataset in datasets.items()
        if dataset.has_queries()
    }
    prefixes = _prefixes(texts)
    queries = {
        f"{prefixes[split]}{query}": text
        for split, own in texts.items()
        for query, text in own.items()
    }
    rows = ((query, "", text) for query, text in queries.items())
    builder.write_texts(
        "queries", published_texts(rows, source, "query", builder.notes, len(queries))
    )
    check_published_ids(builder, source)
    if any(prefixes.values()):
        builder.notes.append(
            "the splits number their queries alike: ids of later splits have its name in front"
        )
    for split, dataset in datasets.items():
        judgements = Judgements(source, split)
        for judged in read(dataset.qrels_iter):
            judgements.add(f"{prefixes[split]}{judged.query_id}", judged.doc_id, judged.relevance)
        judgements.store(builder)


def _text_row(item: Any, identifier: str) -> TextRow:
    if "text" in item._fields:
        return identifier, getattr(item, "title", "") or "", item.text or ""
    return identifier, "", item.default_text() or ""


def _queries(queries: Iterable[Any]) -> dict[str, str]:
    return {query.query_id: _text_row(query, query.query_id)[2] for query in queries}


def _prefixes(texts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What to put before the query ids of each split: its name, where an id means another query in an earlier split."""
    seen: dict[str, str] = {}
    prefixes = {}
    for split, own in texts.items():
        clash = any(seen.get(query, text) != text for query, text in own.items())
        prefixes[split] = f"{split}:" if clash else ""
        seen |= own
    return prefixes


def _split_of(identifier: str) -> str:
    names = [SPLIT_NAMES[part] for part in identifier.split("/") if part in SPLIT_NAMES]
    return names[-1] if names else "test"


def _dataset(registry: Any, identifier: str) -> Any:
    try:
        return registry[identifier]
    except (KeyError, ValueError):
        return None


def _library(source: str) -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise missing("ir_datasets", source) from None
    log = logging.getLogger("ir_datasets")
    if _only_agreements not in log.filters:
        log.addFilter(_only_agreements)
    return ir_datasets


def _only_agreements(record: logging.LogRecord) -> bool:
    """Whether to show a message of the library: only the terms of use that some authors ask to agree to."""
    return "agree" in record.getMessage().lower()


def _from_library(
    items: Callable[[], Iterable[Item]], source: str, ids: list[str]
) -> Iterator[Item]:
    """Yield what the library reads; whatever it raises becomes one message that says what to fetch by hand.

    Raises:
        InputError: in its place.
    """
    try:
        yield from items()
    except (OperaError, MemoryError):
        raise
    except Exception as error:
        raise _explained(error, source, ids) from error


def _explained(error: Exception, source: str, ids: list[str]) -> OperaError:
    if isinstance(error, ImportError):
        return MissingExtraError(f"{source}: {error}")
    if isinstance(error, OSError) and error.errno in ADVICE:
        return storage_error(
            home(), error, " (in the files of ir_datasets, which IR_DATASETS_HOME can move)"
        )
    reason = shortened(f"{type(error).__name__}: {error}")
    return DataError(f"{source}: cannot be read ({reason}); {how_to_fetch(ids)}")
