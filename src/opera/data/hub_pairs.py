"""Pairs in columns, as sentence-transformers and FlagEmbedding keep them on the hub: query, positives, negatives."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import xxhash

from opera.core.errors import DataError
from opera.core.terminal import shortened
from opera.data.published import published_texts
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.store import DataBuilder
from opera.data.texts import TextRow

QUERY = ("anchor", "query", "question")
POSITIVE = ("positive", "pos", "answer", "passage")
NEGATIVE = ("negative", "neg")
"""What columns are called; a column of negatives may have a number behind its name, and texts may stand in lists."""

Batches = Callable[[Any], Iterator[dict[str, list[Any]]]]
"""Reads a data set of the library ``datasets`` in batches, by column."""


def store_pairs(builder: DataBuilder, splits: Mapping[str, Any], read: Batches, source: str) -> None:
    """Store pairs; the corpus is the distinct texts of all splits, of which only hashes are kept in memory.

    Document ids are ``d0``, ``d1``, ... and query ids ``q0``, ``q1``, ... in order of first appearance.

    Args:
        builder: where to.
        splits: data sets of the library ``datasets``, by our names of the splits.
        read: reads one of them.
        source: what the user passed.

    Raises:
        DataError: for columns of another kind, or where no pair is left.
    """
    pairs = _Pairs(splits, read, source)
    builder.write_texts("corpus", published_texts(pairs.documents(), source, "document", builder.notes))
    builder.write_texts("queries", published_texts(pairs.queries(), source, "query", builder.notes))
    for split in splits:
        query, doc = pairs.positives(split)
        if len(query) == 0:
            raise DataError(f"{source}: split '{split}' has no pair with a text on both sides")
        builder.splits[split] = Qrels.from_arrays(query, doc, np.ones(len(doc), dtype=np.int32))
    builder.given_negatives = pairs.given_negatives(len(builder.tables["queries"]))
    builder.notes += pairs.notes()


class _Pairs:
    def __init__(self, splits: Mapping[str, Any], read: Batches, source: str) -> None:
        self._splits, self._read = splits, read
        self._columns = {split: _columns(part.column_names, source) for split, part in splits.items()}
        self._docs: dict[bytes, int] = {}
        self._queries: dict[bytes, int] = {}
        self._pairs = {(split, kind): (array("q"), array("q")) for split in splits for kind in ("pos", "neg")}
        self._source, self._empty = source, 0

    def documents(self) -> Iterator[TextRow]:
        """Yield the distinct documents, and remember which pairs they are in."""
        for split, part in self._splits.items():
            query_column, positive, negatives = self._columns[split]
            for batch in self._read(part):
                for row, query in enumerate(batch[query_column]):
                    found = {"pos": _listed(batch[positive][row], self._source)}
                    found["neg"] = [text for name in negatives for text in _listed(batch[name][row], self._source)]
                    full = {kind: [text for text in texts if text.strip()] for kind, texts in found.items()}
                    self._empty += sum(map(len, found.values())) - sum(map(len, full.values()))
                    if not isinstance(query, str) or not query.strip() or not full["pos"]:
                        self._empty += bool(full["pos"])
                        continue
                    yield from self._add(split, query, full)

    def _add(self, split: str, query: str, texts: Mapping[str, list[str]]) -> Iterator[TextRow]:
        number = self._queries.setdefault(_hash(query), len(self._queries))
        for kind in ("pos", "neg"):
            queries, docs = self._pairs[split, kind]
            for text in texts[kind]:
                known = len(self._docs)
                row = self._docs.setdefault(_hash(text), known)
                queries.append(number)
                docs.append(row)
                if row == known:
                    yield f"d{row}", "", text

    def queries(self) -> Iterator[TextRow]:
        """Yield the distinct queries that have a pair, after the documents."""
        given = 0
        for split, part in self._splits.items():
            for batch in self._read(part):
                for query in batch[self._columns[split][0]]:
                    if isinstance(query, str) and self._queries.get(_hash(query)) == given:
                        yield f"q{given}", "", query
                        given += 1

    def positives(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the queries and documents of the distinct positive pairs of a split."""
        return _distinct(*self._pairs[split, "pos"])

    def given_negatives(self, n_queries: int) -> GivenNegatives | None:
        """Return the negatives of the train queries that are not positives of theirs."""
        if "train" not in self._splits:
            return None
        query, doc = _distinct(*self._pairs["train", "neg"])
        own_query, own_doc = self.positives("train")
        scale = len(self._docs) + 1
        kept = ~np.isin(query * scale + doc, own_query * scale + own_doc)
        if not kept.any():
            return None
        offsets = np.concatenate([[0], np.cumsum(np.bincount(query[kept], minlength=n_queries))])
        return GivenNegatives(offsets.astype(np.int64), doc[kept].astype(np.int32))

    def notes(self) -> list[str]:
        """Count what was left out, and name the columns that are not used."""
        used = {name for query, positive, negatives in self._columns.values() for name in (query, positive, *negatives)}
        unused = sorted({name for part in self._splits.values() for name in part.column_names} - used)
        notes = [f"left out {self._empty:,} empty texts and the pairs they are in"] if self._empty else []
        return notes + ([f"unused columns: {shortened(', '.join(unused))}"] if unused else [])


def _columns(names: list[str], source: str) -> tuple[str, str, list[str]]:
    """Return the columns of queries, positives and negatives."""
    query, positive = (next((name for name in known if name in names), None) for known in (QUERY, POSITIVE))
    if query is None or positive is None:
        raise DataError(
            f"{source}: must have the configurations corpus and queries, or a column {'/'.join(QUERY)} and a column "
            f"{'/'.join(POSITIVE)}; its columns are {shortened(', '.join(map(str, names)))}"
        )
    negatives = [name for name in names if name.rstrip("0123456789").rstrip("_-") in NEGATIVE]
    return query, positive, negatives


def _listed(value: object, source: str) -> list[str]:
    values: list[Any] = value if isinstance(value, list) else [value]
    if not all(text is None or isinstance(text, str) for text in values):
        raise DataError(
            f"{source}: positives and negatives must be texts, or lists of texts; got {shortened(repr(value))}"
        )
    return [text or "" for text in values]


def _hash(text: str) -> bytes:
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))


def _distinct(query: array[int], doc: array[int]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.unique(np.stack([np.asarray(query), np.asarray(doc)], axis=1).reshape(-1, 2), axis=0)
    return pairs[:, 0], pairs[:, 1]
