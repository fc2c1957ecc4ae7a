"""The token ids of a table of texts, memory-mapped: each text is tokenised once, whatever reads it
later."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray
from opera.core.cache import entry, seal
from opera.core.processes import from_main, grown_by_all, process_index
from opera.core.progress import progress
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.encoder.embeddings import Shards
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
MOST_KEPT = 64_000_000
"""Tokens that :class:`TokensOnDemand` keeps, 4 bytes each."""


class Tokens(Protocol):
    """Token ids by row of a table."""

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of some rows, in their order."""

    def __len__(self) -> int: ...


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
    def of_corpus(
        cls,
        model: SentenceTransformer,
        data: RetrievalData,
        prompt: str = "",
        corpus_text: CorpusText = "title_text",
    ) -> TokenSource:
        """The documents of a data set."""
        return cls(
            model, data.corpus, f"{data.fingerprint}/corpus", "document", prompt, corpus_text
        )

    @classmethod
    def of_queries(
        cls, model: SentenceTransformer, data: RetrievalData, prompt: str = ""
    ) -> TokenSource:
        """The queries of a data set."""
        return cls(model, data.queries, f"{data.fingerprint}/queries", "query", prompt, "text")

    def tokenise(self, rows: IntArray | slice) -> list[TokenIds]:
        """Return the ids of some rows."""
        return token_ids(
            self.model, self.table.texts(rows, self.corpus_text), self.task, self.prompt
        )

    @property
    def key(self) -> str:
        """Digest of all that decides the ids; not of the weights."""
        how = tokenisation_fingerprint(self.model, self.task, self.prompt)
        layout = f"{LAYOUT} {Shards.of(len(self.table)).size}"
        return hashlib.sha256(
            "\0".join([layout, how, self.digest, self.corpus_text]).encode()
        ).hexdigest()[:32]

    def stored(self) -> TokenStore | None:
        """Open the ids of all rows if the cache has them; any process may call this by itself."""
        home = entry(KIND, self.key)
        return None if home is None else TokenStore(home, Shards.of(len(self.table)), self._dtype)

    def store(self, show_progress: bool = True) -> TokenStore:
        """Open the ids of all rows; tokenise them first where the cache has none. All processes
        call this.
        """
        shards = Shards.of(len(self.table))
        write = partial(self._write, shards, show_progress)
        about = {
            "holds": f"token ids of {self.digest}, {self.corpus_text}, {self.task}",
            "prompt": self.prompt,
            "rows": len(self.table),
            "rows_per_file": shards.size,
        }
        home = grown_by_all(KIND, self.key, shards.names(SUFFIX), write, about)
        return TokenStore(home, shards, self._dtype)

    @property
    def _dtype(self) -> type[np.integer[Any]]:
        return np.uint16 if vocabulary_size(self.model) <= 2**16 else np.int32

    def _write(
        self, shards: Shards, show_progress: bool, folder: Path, names: Sequence[str]
    ) -> None:
        dtype = self._dtype
        numbers = [int(name.removesuffix(SUFFIX)) for name in names]
        total = sum(shards.rows(number).stop - shards.rows(number).start for number in numbers)
        hidden = not show_progress or process_index() > 0
        with progress(
            f"tokenising {self.task}s".replace("ys", "ies"), total, "texts", hidden=hidden
        ) as bar:
            for name, number in zip(names, numbers, strict=True):
                rows, offsets = shards.rows(number), [0]
                pieces: list[NDArray[np.integer[Any]]] = []
                for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
                    found = self.tokenise(slice(start, min(start + ROWS_AT_ONCE, rows.stop)))
                    offsets += [len(ids) for ids in found]
                    pieces += [np.concatenate(found).astype(dtype)]
                    bar.update(len(found))
                with (folder / name).open("wb") as file:
                    file.write(np.cumsum(offsets, dtype=np.int64).data)
                    for piece in pieces:
                        file.write(np.ascontiguousarray(piece).data)
                seal(folder / name)


class TokenStore:
    """Token ids of all rows of a table, memory-mapped; :meth:`TokenSource.store` opens one.

    Args:
        folder: a file per shard: int64 offsets ``[rows + 1]``, then the ids of its rows, one after
            another.
        shards: how the rows are cut.
        dtype: of the ids on disk.
    """

    def __init__(self, folder: Path, shards: Shards, dtype: type[np.integer[Any]]) -> None:
        self._shards = shards
        self._offsets: list[NDArray[np.int64]] = []
        self._ids: list[NDArray[np.integer[Any]]] = []
        for number, name in enumerate(shards.names(SUFFIX)):
            rows = shards.rows(number)
            content = np.memmap(folder / name, mode="r")
            head = 8 * (rows.stop - rows.start + 1)
            self._offsets.append(content[:head].view(np.int64))
            self._ids.append(content[head:].view(dtype))

    def __len__(self) -> int:
        return self._shards.count

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of some rows, in their order: int32 ``[tokens]`` each."""
        found: list[TokenIds] = [np.empty(0, np.int32)] * len(rows)
        for number, places, local in self._shards.by_shard(rows):
            starts, stops = (
                self._offsets[number][local].tolist(),
                self._offsets[number][local + 1].tolist(),
            )
            for place, start, stop in zip(places.tolist(), starts, stops, strict=True):
                found[place] = self._ids[number][start:stop].astype(np.int32)
        return found

    def lengths(self, rows: IntArray) -> NDArray[np.int64]:
        """Return how many tokens some rows have: int64 ``[len(rows)]``."""
        lengths = np.empty(len(rows), dtype=np.int64)
        for number, places, local in self._shards.by_shard(rows):
            lengths[places] = self._offsets[number][local + 1] - self._offsets[number][local]
        return lengths


class TokensOnDemand:
    """Token ids of rows as they are first asked for; kept in memory while there is room.

    For a training that reads few rows of a large table: to tokenise them all would take longer.

    Args:
        source: what is tokenised.
        most_kept: tokens kept.
    """

    def __init__(self, source: TokenSource, most_kept: int = MOST_KEPT) -> None:
        self._source, self._room = source, most_kept
        self._kept: dict[int, TokenIds] = {}

    def __len__(self) -> int:
        return len(self._source.table)

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of some rows, in their order: int32 ``[tokens]`` each."""
        wanted = np.asarray(rows, dtype=np.int64).tolist()
        absent = [row for row in dict.fromkeys(wanted) if row not in self._kept]
        new = (
            dict(zip(absent, self._source.tokenise(np.array(absent, np.int64)), strict=True))
            if absent
            else {}
        )
        found = [self._kept[row] if row in self._kept else new[row] for row in wanted]
        for row, ids in new.items():
            if len(ids) <= self._room:
                self._room -= len(ids)
                self._kept[row] = ids
        return found


def training_tokens(source: TokenSource, drawn: int) -> Tokens:
    """Return the ids for a training: stored for the whole table, or on demand. All processes call
    this.

    Args:
        source: what is tokenised.
        drawn: texts that the training draws at most. If they are fewer than a tenth of the table,
            and the table is not stored yet, only those are tokenised.
    """
    if drawn * 10 < len(source.table) and not from_main(
        process_index() == 0 and source.stored() is not None
    ):
        return TokensOnDemand(source)
    return source.store()
