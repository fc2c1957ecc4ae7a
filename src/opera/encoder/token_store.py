"""Memory-mapped token ids of a table of texts, so that texts are tokenised only once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray
from opera.core.cache import entry
from opera.core.processes import cached_by_all, from_main, process_index
from opera.core.progress import progress
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.encoder.token_ids import (
    Task,
    TokenIds,
    token_ids,
    tokenisation_fingerprint,
    vocabulary_size,
)

KIND, LAYOUT = "tokens", "3"
IDS, OFFSETS = "ids.bin", "offsets.npy"
ROWS_AT_ONCE = 1024
"""Texts to tokenise together: enough for all threads of the tokenizer, with little memory."""

Tokens = Callable[[IntArray], list[TokenIds]]
"""Returns the ids of rows of a table, in the order of the argument."""


@dataclass(frozen=True)
class TokenSource:
    """A table of texts, and how to tokenise them.

    Attributes:
        model: has the tokenizer and the lengths.
        table: the texts.
        digest: identifies the table's contents.
        task: ``query`` or ``document``, for the length.
        prompt: put before every text.
        corpus_text: fields of a document to read.
    """

    model: SentenceTransformer
    table: TextTable
    digest: str
    task: Task
    prompt: str = ""
    corpus_text: CorpusText = "title_text"

    @classmethod
    def of(
        cls,
        model: SentenceTransformer,
        data: RetrievalData,
        task: Task,
        prompt: str = "",
        corpus_text: CorpusText = "title_text",
    ) -> TokenSource:
        """Return a data set's queries or documents as a source of tokens."""
        if task == "query":
            return cls(model, data.queries, f"{data.fingerprint}/queries", task, prompt, "text")
        return cls(model, data.corpus, f"{data.fingerprint}/corpus", task, prompt, corpus_text)

    def tokenise(self, rows: IntArray | slice) -> list[TokenIds]:
        """Return the ids of rows."""
        texts = self.table.texts(rows, self.corpus_text)
        return token_ids(self.model, texts, self.task, self.prompt)

    @property
    def key(self) -> str:
        """Digest of the texts and their tokenisation, without the weights."""
        how = tokenisation_fingerprint(self.model, self.task, self.prompt)
        parts = LAYOUT, how, self.digest, self.corpus_text
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def stored(self) -> TokenStore | None:
        """Open the cached token ids of all rows, or return ``None``. Any process may call this."""
        home = entry(KIND, self.key)
        return None if home is None else TokenStore(home)

    def store(self, show_progress: bool = True) -> TokenStore:
        """Open the ids of all rows; the main process tokenises if the cache has none.

        All processes must call this.
        """
        return TokenStore(
            cached_by_all(KIND, self.key, lambda folder, _: self._write(folder, show_progress))
        )

    def _write(self, folder: Path, show_progress: bool) -> None:
        """Write the offset of each row, and the joined ids of all rows, in the main process."""
        if process_index() > 0:
            return
        unit = "queries" if self.task == "query" else "documents"
        dtype = np.uint16 if vocabulary_size(self.model) <= 2**16 else np.int32
        rows, lengths = len(self.table), [np.zeros(1, dtype=np.int64)]
        hidden = not show_progress
        with (
            (folder / IDS).open("wb") as file,
            progress(f"tokenising {unit}", rows, "texts", hidden=hidden) as bar,
        ):
            for start in range(0, rows, ROWS_AT_ONCE):
                token_lists = self.tokenise(slice(start, min(start + ROWS_AT_ONCE, rows)))
                lengths.append(np.array([len(ids) for ids in token_lists]))
                file.write(np.concatenate(token_lists).astype(dtype).data)
                bar.update(len(token_lists))
        np.save(folder / OFFSETS, np.cumsum(np.concatenate(lengths)))


class TokenStore:
    """Memory-mapped token ids of all rows of a table.

    Args:
        folder: written by :meth:`TokenSource.store`.
    """

    def __init__(self, folder: Path) -> None:
        self._offsets, ids = np.load(folder / OFFSETS, mmap_mode="r"), folder / IDS
        count, size = int(self._offsets[-1]), ids.stat().st_size
        dtype = np.uint16 if size == 2 * count else np.int32
        self._ids: NDArray[np.integer[Any]] = np.empty(0, dtype)
        if count:  # an empty file cannot be mapped
            self._ids = np.memmap(ids, dtype, mode="r")

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of rows, in the order of ``rows``: int32 ``[tokens]`` per row."""
        starts, ends = self._offsets[rows].tolist(), self._offsets[np.asarray(rows) + 1].tolist()
        return [
            self._ids[start:end].astype(np.int32) for start, end in zip(starts, ends, strict=True)
        ]


def training_tokens(source: TokenSource, sampled: int) -> Tokens:
    """Return the function that gives a training its token ids; all processes must call this.

    It reads the stored table. If the table is not stored yet and the training samples at most
    ``sampled`` texts, fewer than a tenth, the function tokenises the texts of each batch instead.
    """
    few = sampled * 10 < len(source.table)
    if few and not from_main(process_index() == 0 and source.stored() is not None):
        return source.tokenise
    return source.store().rows
