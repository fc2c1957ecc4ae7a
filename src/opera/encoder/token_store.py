"""Token ids of a table of texts, memory-mapped: each text is tokenised once, whatever reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray
from opera.core.cache import entry
from opera.core.files import unfinished
from opera.core.processes import from_main, grown_by_all, process_index
from opera.core.progress import progress
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Shards, shard_number
from opera.encoder.token_ids import (
    Task,
    TokenIds,
    token_ids,
    tokenisation_fingerprint,
    vocabulary_size,
)

KIND, SUFFIX, LAYOUT = "tokens", ".tokens", "2"
ROWS_AT_ONCE = 1024
"""Texts that are tokenised together: the tokenizer has work for all of its threads, and memory
holds no more."""

Tokens = Callable[[IntArray], list[TokenIds]]
"""Returns the ids of some rows of a table, in their order."""


@dataclass(frozen=True)
class TokenSource:
    """What is tokenised, and how: all that decides the ids of a table's rows.

    Attributes:
        model: its tokenizer and lengths.
        table: the texts.
        digest: names the table's contents.
        task: ``query`` or ``document``, for the length.
        prompt: before each text.
        corpus_text: what of a document is read.
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
        """The queries or the documents of a data set."""
        if task == "query":
            return cls(model, data.queries, f"{data.fingerprint}/queries", task, prompt, "text")
        return cls(model, data.corpus, f"{data.fingerprint}/corpus", task, prompt, corpus_text)

    def tokenise(self, rows: IntArray | slice) -> list[TokenIds]:
        """Return the ids of some rows."""
        texts = self.table.texts(rows, self.corpus_text)
        return token_ids(self.model, texts, self.task, self.prompt)

    @property
    def key(self) -> str:
        """Digest of all that decides the ids; not of the weights."""
        how = tokenisation_fingerprint(self.model, self.task, self.prompt)
        parts = f"{LAYOUT} {self._shards.size}", how, self.digest, self.corpus_text
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def stored(self) -> TokenStore | None:
        """Open the ids of all rows if the cache has them; any process may call this by itself."""
        home = entry(KIND, self.key)
        return None if home is None else TokenStore(home, self._shards, self._dtype)

    def store(self, show_progress: bool = True) -> TokenStore:
        """Open the ids of all rows, made first if the cache has none; all processes call this."""
        unit = "queries" if self.task == "query" else "documents"
        hidden = not show_progress or process_index() > 0

        def write(folder: Path, names: Sequence[str]) -> None:
            ranges = [self._shards.rows(shard_number(name)) for name in names]
            total = sum(rows.stop - rows.start for rows in ranges)
            with progress(f"tokenising {unit}", total, "texts", hidden=hidden) as bar:
                for name in names:
                    self._write(folder / name, bar.update)

        home = grown_by_all(KIND, self.key, self._shards.names(SUFFIX), write)
        return TokenStore(home, self._shards, self._dtype)

    @property
    def _shards(self) -> Shards:
        return Shards.of(len(self.table))

    @property
    def _dtype(self) -> type[np.integer[Any]]:
        return np.uint16 if vocabulary_size(self.model) <= 2**16 else np.int32

    def _write(self, path: Path, done: Callable[[int], object]) -> None:
        """Write a shard: int64 offsets ``[rows + 1]``, then the ids of its rows in a line."""
        rows = self._shards.rows(shard_number(path.name))
        lengths, pieces = [0], []
        for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
            token_lists = self.tokenise(slice(start, min(start + ROWS_AT_ONCE, rows.stop)))
            lengths += map(len, token_lists)
            pieces.append(np.concatenate(token_lists).astype(self._dtype))
            done(len(token_lists))
        temporary = unfinished(path)
        with temporary.open("wb") as file:
            for part in (np.cumsum(lengths, dtype=np.int64), *pieces):
                file.write(part.data)
        temporary.replace(path)


class TokenStore:
    """Token ids of all rows of a table, memory-mapped; :meth:`TokenSource.store` opens one.

    Args:
        folder: a file per shard, as :class:`TokenSource` writes them.
        shards: how the rows are cut.
        dtype: of the ids on disk.
    """

    def __init__(self, folder: Path, shards: Shards, dtype: type[np.integer[Any]]) -> None:
        self._shards = shards
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.integer[Any]]]] = []
        for number, name in enumerate(shards.names(SUFFIX)):
            rows, content = shards.rows(number), np.memmap(folder / name, mode="r")
            head = 8 * (rows.stop - rows.start + 1)
            self._parts.append((content[:head].view(np.int64), content[head:].view(dtype)))

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of some rows, in their order: int32 ``[tokens]`` each."""
        token_lists: list[TokenIds] = [np.empty(0, np.int32)] * len(rows)
        for number, places, local in self._shards.by_shard(rows):
            offsets, ids = self._parts[number]
            for place, row in zip(places.tolist(), local.tolist(), strict=True):
                token_lists[place] = ids[offsets[row] : offsets[row + 1]].astype(np.int32)
        return token_lists


def training_tokens(source: TokenSource, drawn: int) -> Tokens:
    """Return what gives a training its token ids; all processes call this.

    They are those of the stored table. If the training draws fewer than a tenth of a table that is
    not stored yet, each text is tokenised when it is drawn, ``drawn`` at most.
    """
    few = drawn * 10 < len(source.table)
    if few and not from_main(process_index() == 0 and source.stored() is not None):
        return source.tokenise
    return source.store().rows
