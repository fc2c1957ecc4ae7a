"""Split documents into passages, and compare a query with the best passage of each document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from opera.core.arrays import IntArray, concatenated_ranges, normalise, slices
from opera.core.errors import ModelError
from opera.core.processes import cached_by_all, process_index
from opera.core.progress import progress
from opera.data.texts import ROWS_AT_ONCE, TEXT_SCHEMA, TextTable, open_arrow, text_batches
from opera.identity.model import cache_key, tokenizer_backend, tokenizer_facts
from opera.retrieval.vectors import Vectors

KIND, LAYOUT = "passages", "1"
TABLE_FILE, STARTS_FILE = "passages.arrow", "starts.npy"
PASSAGES_AT_ONCE = 4096
"""Bounds the temporary arrays over passages."""


@dataclass(frozen=True)
class Passages:
    """The passages of a corpus, document by document. Each document has at least one.

    Attributes:
        table: a row per passage: the id and the title of its document, and its own text.
        digest: identifies the contents.
        starts: int64 ``[documents + 1]``, the first passage of each document, then their number.
    """

    table: TextTable
    digest: str
    starts: NDArray[np.int64]

    @cached_property
    def doc_rows(self) -> NDArray[np.int64]:
        """The document of each passage: int64 ``[passages]``."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def rows_of(self, doc_rows: IntArray) -> NDArray[np.int64]:
        """Return the passages of some documents, document by document."""
        return concatenated_ranges(self.starts[doc_rows], np.diff(self.starts)[doc_rows])


def advised_passage(limit: int) -> int:
    """Return a length of passages that leaves room for title, prompt and special tokens."""
    return max(1, limit * 4 // 5)


def uncut_tokenizer(model: Any) -> Tokenizer | None:
    """Copy a model's tokenizer, without truncation and padding; ``None`` without a fast one."""
    backend = tokenizer_backend(getattr(model[0], "tokenizer", None))
    if not hasattr(backend, "to_str"):
        return None
    uncut = Tokenizer.from_str(backend.to_str())
    uncut.no_truncation()
    uncut.no_padding()
    return uncut


def split_corpus(corpus: TextTable, digest: str, model: Any, most_tokens: int) -> Passages:
    """Split the documents of a corpus at the borders of sentences, or read the passages from the
    cache. All processes must call this.

    A longer sentence is split between words, a longer word between characters.

    Args:
        corpus: the documents.
        digest: identifies the contents of the corpus.
        model: a SentenceTransformer, whose tokenizer counts.
        most_tokens: the most tokens of a passage, without title, prompt and special tokens.

    Raises:
        ModelError: if the model has no fast tokenizer.
    """
    tokenizer = uncut_tokenizer(model)
    if tokenizer is None:
        raise ModelError(
            f"passages={most_tokens}: the model has no fast tokenizer that counts tokens; leave "
            "the setting out"
        )
    splitter = version("semantic-text-splitter")
    key = cache_key([LAYOUT, splitter, tokenizer_facts(tokenizer), digest, str(most_tokens)])

    def write(folder: Path, _: list[str]) -> None:
        if process_index() == 0:
            _write(folder, corpus, tokenizer, most_tokens)

    folder = cached_by_all(KIND, key, write)
    starts = np.load(folder / STARTS_FILE, mmap_mode="r")
    return Passages(TextTable(open_arrow(folder / TABLE_FILE)), f"passages/{key}", starts)


def _write(folder: Path, corpus: TextTable, tokenizer: Tokenizer, most_tokens: int) -> None:
    """Write the passages of all documents, and the first passage of each document."""
    from semantic_text_splitter import TextSplitter

    splitter = TextSplitter.from_huggingface_tokenizer(tokenizer, most_tokens)
    counts: list[int] = []

    def rows() -> Iterator[tuple[str, str, str]]:
        with progress("splitting documents", len(corpus), "documents") as bar:
            for start in range(0, len(corpus), ROWS_AT_ONCE):
                block = slice(start, start + ROWS_AT_ONCE)
                texts = corpus.texts(block, "text")
                passages = splitter.chunk_all(texts)
                columns = corpus.ids(block), corpus.titles(block), texts, passages
                for identifier, title, text, parts in zip(*columns, strict=True):
                    parts = parts if len(parts) > 1 else [text]
                    counts.append(len(parts))
                    yield from ((identifier, title, part) for part in parts)
                bar.update(len(texts))

    with pa.ipc.new_file(folder / TABLE_FILE, TEXT_SCHEMA) as file:
        for batch in text_batches(rows()):
            file.write_batch(batch)
    np.save(folder / STARTS_FILE, np.cumsum([0, *counts]))


@dataclass(frozen=True)
class DocumentVectors:
    """The embeddings of documents. A document has one vector, or one per passage.

    Attributes:
        rows: float32 ``[rows, dimension]``, or rows of another kind; in memory or on disk.
        starts: int64 ``[documents + 1]``, the first row of each document, then the number of rows;
            ``None`` if row i is document i.
    """

    rows: Vectors
    starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.rows) if self.starts is None else len(self.starts) - 1

    def select(self, doc_rows: IntArray) -> DocumentVectors:
        """Return the vectors of some documents, in memory."""
        if self.starts is None:
            return DocumentVectors(in_memory(self.rows[doc_rows]))
        counts = np.diff(self.starts)[doc_rows]
        rows = self.rows[concatenated_ranges(self.starts[doc_rows], counts)]
        return DocumentVectors(in_memory(rows), np.cumsum([0, *counts]))

    def first_rows(self) -> Vectors:
        """Return one vector per document: that of its first passage."""
        return self.rows if self.starts is None else self.rows[self.starts[:-1]]

    def similarities(self, queries: Any) -> NDArray[np.float32]:
        """Return the product of each query and the best passage of each document.

        The result is float32 ``[queries, documents]``.
        """
        if self.starts is None:
            return products(queries, self.rows[:])
        best = np.empty((len(queries), len(self)), dtype=np.float32)
        for documents in self._blocks():
            starts = self.starts[documents.start : documents.stop + 1]
            scores = products(queries, self.rows[int(starts[0]) : int(starts[-1])])
            np.maximum.reduceat(scores, starts[:-1] - starts[0], axis=1, out=best[:, documents])
        return best

    def _blocks(self) -> Iterator[slice]:
        """Yield ranges of documents with about :data:`PASSAGES_AT_ONCE` passages, or a document."""
        assert self.starts is not None
        first = 0
        while first < len(self):
            end = np.searchsorted(self.starts, self.starts[first] + PASSAGES_AT_ONCE, "right") - 1
            yield slice(first, first := max(first + 1, int(end)))

    def best_rows(
        self, queries: NDArray[np.float32], doc_rows: IntArray, have_length_1: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the row that matches each query best in a document, and their cosine.

        Args:
            queries: float32 ``[m, dimension]``; scaled in place unless they have length 1.
            doc_rows: int ``[m]``, a document per query.
            have_length_1: whether all vectors have length 1.
        """
        is_dense = isinstance(queries, np.ndarray)  # other rows are compared by their products
        have_length_1 = have_length_1 or not is_dense
        if not have_length_1:
            normalise(queries)
        if self.starts is None:
            rows = np.asarray(doc_rows, dtype=np.int64)
            return rows, self._cosines(queries, rows, have_length_1)
        best = np.zeros(len(doc_rows), dtype=np.int64)
        cosine = np.full(len(doc_rows), -np.inf, dtype=np.float32)
        order = np.argsort(doc_rows, kind="stable")
        documents, firsts = np.unique(doc_rows[order], return_index=True)
        for doc_row, pairs in zip(documents, np.split(order, firsts[1:]), strict=True):
            start, end = int(self.starts[doc_row]), int(self.starts[doc_row + 1])
            for block in slices(end - start, PASSAGES_AT_ONCE):
                vectors = self.rows[start + block.start : start + block.stop]
                if not have_length_1:
                    vectors = vectors.copy()  # the slice may be a view
                    normalise(vectors)
                cosines = products(queries[pairs], vectors)
                highest = cosines.max(axis=1)
                is_better = highest > cosine[pairs]
                cosine[pairs] = np.maximum(highest, cosine[pairs])
                rows = start + block.start + cosines.argmax(axis=1)
                best[pairs[is_better]] = rows[is_better]
        return best, cosine

    def _cosines(
        self, queries: NDArray[np.float32], rows: IntArray, have_length_1: bool
    ) -> NDArray[np.float32]:
        vectors = self.rows[rows]
        if not isinstance(vectors, np.ndarray):
            return np.asarray(vectors.pair_products(queries))
        if not have_length_1:
            normalise(vectors)
        return np.asarray(np.einsum("pd,pd->p", queries, vectors))


def products(queries: Any, rows: Any) -> NDArray[np.float32]:
    """Return the score of each query and row, float32 ``[queries, rows]``, of any kind of rows."""
    if isinstance(rows, np.ndarray):
        return np.asarray(queries @ rows.T)
    return np.asarray(rows.products(queries))


def in_memory(rows: Any) -> Any:
    """Return a copy of rows if they may be mapped from a file."""
    return np.array(rows) if isinstance(rows, np.ndarray) else rows
