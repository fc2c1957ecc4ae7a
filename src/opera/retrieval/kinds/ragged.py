"""What sparse and multi-vector models have in common: rows of unequal length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from opera.core.arrays import IntArray
from opera.data import TextTable
from opera.retrieval.kinds.base import EncodingKind
from opera.retrieval.kinds.rows import SUFFIX, NearestRows, Rows, StoredRows
from opera.retrieval.nearest import BestDocuments
from opera.retrieval.vectors import Shards


class RaggedKind(EncodingKind):
    """A kind whose embeddings are :class:`opera.retrieval.kinds.rows.Rows`.

    Attributes:
        rows_class: the class of its embeddings.
        search: makes a search from queries, documents, depth and ``doc_rows``.
    """

    suffix = SUFFIX
    rows_class: ClassVar[type[Rows]]
    search: ClassVar[Callable[..., BestDocuments]] = NearestRows

    @staticmethod
    def unusable(rows: Rows) -> IntArray:
        """Return the rows that hold NaN or infinite values."""
        return rows.unusable()

    @staticmethod
    def join(parts: Sequence[Any]) -> Any:
        """Return the rows of all parts."""
        return type(parts[0]).joined(parts)

    @staticmethod
    def write(path: Path, rows: Rows) -> None:
        """Write rows as a file."""
        rows.write(path)

    @classmethod
    def stored(cls, folder: Path, shards: Shards) -> StoredRows:
        """Map the rows in a folder's files into memory."""
        return StoredRows(folder, shards, cls.rows_class)

    @classmethod
    def nearest(
        cls,
        queries: Any,
        documents: TextTable,
        depth: int,
        device: str,
        similarity: str,
        doc_rows: Any,
    ) -> BestDocuments:
        """Return a search by products, which run on the CPU."""
        return cls.search(queries, documents, depth, doc_rows)
