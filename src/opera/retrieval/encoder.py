"""Encode texts as unit float32 vectors, cached on disk and memory-mapped."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray, normalise
from opera.core.errors import ModelError
from opera.core.processes import (
    cached_by_all,
    everywhere,
    grown_by_all,
    own_share,
    process_count,
    process_index,
    shares,
)
from opera.core.progress import progress
from opera.core.reproducible import is_reproducible
from opera.core.terminal import shortened, shown
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.encoder.batches import token_batches
from opera.encoder.embeddings import (
    SUFFIX,
    Embeddings,
    StoredAs,
    as_embeddings,
    shard_number,
    write_shard,
)
from opera.encoder.forward import embed_tokens, pays_for_padding
from opera.encoder.packing import packing
from opera.encoder.shards import Shards
from opera.encoder.token_ids import TokenIds, has_token_path, prompt_length
from opera.encoder.token_store import TokenSource
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.frozen import CHUNK_ROWS, embed_rows, lookup_of
from opera.retrieval.models import fingerprints, is_static, lengths_of, load_model, set_lengths
from opera.retrieval.prompts import ROLES, Role, prompt_for, set_prompts, warn_of_prompts
from opera.retrieval.row_texts import RowTexts
from opera.retrieval.run_model import run_lengths

PLURALS: dict[Role, str] = {"query": "queries", "document": "documents"}
KIND = "vectors"
TOKENS_PER_TEXT = 128
"""A batch holds ``batch_size`` texts of this length, or as many tokens in fewer or more texts."""
SEARCH_MEMORY = 2**28
"""Bytes that a search may take by default, besides the queries, the results and what reads the corpus."""
MEMORY_LIMIT = 2**30
"""Bytes of embeddings that processes send each other; more are searched by the process that computed them."""

REFUSED_TEXTS = (IndexError, TypeError, ValueError, KeyError, AttributeError)
"""What models raise that cannot encode a text."""


class Encoder:
    """A model with everything that decides the embedding of a text.

    Several processes share the encoding of a corpus or of queries, so all of them call for it. Each encodes whole
    shards, so the bytes are those of one process.

    Attributes:
        model: the SentenceTransformer.
        device: the device it computes on.
        precision: ``fp32``, ``bf16`` or ``fp16``, for computing; embeddings are always float32.
        stored_as: ``fp32`` or ``fp16``, of the embeddings in the cache; they are read as float32.
        search_memory: bytes that a search by its embeddings may take; see :mod:`opera.retrieval.search`.
        prompts: what goes before a text, by role; empty for nothing.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        precision: Precision = "auto",
        batch_size: int = 128,
        use_cache: bool = True,
        show_progress: bool = True,
        stored_as: StoredAs = "fp32",
        search_memory: int = SEARCH_MEMORY,
    ) -> None:
        self.model, self.batch_size, self.use_cache, self.stored_as = (
            model,
            batch_size,
            use_cache,
            stored_as,
        )
        self.search_memory = search_memory
        self._shows_progress = show_progress
        self.device = model.device.type
        self.precision = resolve_precision(precision, self.device, not is_static(model))
        self.prompts: dict[Role, str] = {role: prompt_for(model, role) for role in ROLES}
        self._token_paths: dict[tuple[Role, str], bool] = {}

    def without_prompts(self) -> Encoder:
        """The same encoder without prompts."""
        plain = copy.copy(self)
        plain.prompts = dict.fromkeys(ROLES, "")
        return plain

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model, with the prompts and lengths that it holds."""
        return self._fingerprints[0]

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self.model.get_embedding_dimension())

    def encode(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        """Encode a few texts: float32 ``[len(texts), dimension]``, rows of length 1.

        Raises:
            ModelError: if the model cannot encode a text, or an embedding holds a value that is no number.
        """
        table = TextTable.from_texts({str(number): text for number, text in enumerate(texts)})
        given = RowTexts(TokenSource(self.model, table, "", role, self.prompts[role], "text"))
        return self._vectors(given, slice(0, len(texts)), role, lambda count: None)

    def encode_corpus(
        self, data: RetrievalData, corpus_text: CorpusText = "title_text"
    ) -> Embeddings:
        """Encode the whole corpus, or open it in the cache: float32 ``[documents, dimension]``, memory-mapped."""
        if lookup_of(self.model) is not None:
            return as_embeddings(embed_rows(self.model, "document", None))
        return self._encode_rows(
            self._documents(data, corpus_text), "document", f"{data.fingerprint}/corpus"
        )

    def encode_queries(self, data: RetrievalData, rows: IntArray) -> Embeddings:
        """Encode some rows of the query table, or open them in the cache: float32 ``[len(rows), dimension]``."""
        if lookup_of(self.model) is not None:
            return as_embeddings(embed_rows(self.model, "query", rows))
        source = TokenSource.of_queries(self.model, data, self.prompts["query"])
        return self._encode_rows(
            RowTexts(source, rows), "query", f"{data.fingerprint}/queries/{rows_digest(rows)}"
        )

    def keeps(self, count: int) -> bool:
        """Whether the embeddings of that many documents are kept whole: in the cache, or in memory to be shared."""
        if self.use_cache:
            return True
        few = count * self.dimension * 4 < MEMORY_LIMIT
        return few and process_count() > 1 and lookup_of(self.model) is None

    def document_parts(
        self, data: RetrievalData, corpus_text: CorpusText, share: slice
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Encode a range of the corpus in this process alone, and keep nothing: part by part, each from a row on.

        The bytes are those of :meth:`encode_corpus`: where the range cuts a shard, all of the shard is encoded.
        """
        if lookup_of(self.model) is not None:
            for start in range(share.start, share.stop, CHUNK_ROWS):
                rows = np.arange(start, min(start + CHUNK_ROWS, share.stop))
                yield start, np.asarray(embed_rows(self.model, "document", rows))
        elif share.stop > share.start:
            size = Shards.of(len(data.corpus)).size
            first = share.start // size * size
            stop = min(-(-share.stop // size) * size, len(data.corpus))
            documents = self._documents(data, corpus_text)
            self._find_ids(documents, "document", make=False)
            for part in self._parts(documents, "document", size, slice(first, stop)):
                start = max(share.start, first)
                yield start, part[start - first : share.stop - first]
                first += len(part)

    def cached(
        self, kind: str, *key: str, write: Callable[[Path], object], roles: Iterable[Role] = ROLES
    ) -> Path:
        """Return the folder of a cache entry that this model computed; ``write`` fills it where there is none.

        The entry depends on the prompts and lengths of ``roles`` alone, so that no other prompt of queries encodes
        documents again. All processes call this, and ``write``: see :func:`opera.core.processes.cached_by_all`.
        """
        return cached_by_all(kind, self._key(*key, roles=roles), write)

    def _key(self, *key: str, roles: Iterable[Role]) -> str:
        arithmetic = [
            self.precision,
            *(["reproducible"] if is_reproducible() else []),
            self.stored_as,
        ]
        reading = [f"{self.prompts[role]}\0{self._length(role)}" for role in roles]
        parts = (self._fingerprints[1], " ".join(arithmetic), *reading, *key)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def _length(self, role: Role) -> int | None:
        """Tokens of a text that the model reads; ``None`` for all of them."""
        own = getattr(self.model[0], f"{role}_length", None)
        return own if own is not None else getattr(self.model, "max_seq_length", None)

    @cached_property
    def _fingerprints(self) -> tuple[str, str]:
        return fingerprints(self.model)

    def _documents(self, data: RetrievalData, corpus_text: CorpusText) -> RowTexts:
        return RowTexts(
            TokenSource.of_corpus(self.model, data, self.prompts["document"], corpus_text)
        )

    def _encode_rows(self, texts: RowTexts, role: Role, contents: str) -> Embeddings:
        shards = Shards.of(len(texts))
        if len(texts) == 0:
            return Embeddings.of(np.empty((0, self.dimension), dtype=np.float32))
        if not self.use_cache:
            self._find_ids(texts, role, make=False)
            parts = partial(self._parts, texts, role, shards.size)
            return Embeddings.of(gather_rows(parts, len(texts), self.dimension, shards.size))

        def write(folder: Path, names: list[str]) -> None:
            self._find_ids(texts, role, make=texts.rows is None)
            parts = self._parts(
                texts, role, shards.size, *(shards.rows(shard_number(name)) for name in names)
            )
            for name, part in zip(names, parts, strict=True):
                write_shard(folder / name, part, self.stored_as)

        key = self._key(
            f"shards of {shards.size}", role, texts.source.corpus_text, contents, roles=[role]
        )
        about = {
            "holds": f"embeddings of {contents}, {texts.source.corpus_text}",
            "model": self._fingerprints[1],
            "prompt": self.prompts[role],
            "tokens_at_most": self._length(role) if self._length(role) != np.inf else None,
            "precision": self.precision,
            "stored_as": self.stored_as,
            "rows": len(texts),
            "rows_per_file": shards.size,
            "dimension": self.dimension,
        }
        home = grown_by_all(KIND, key, shards.names(SUFFIX), write, about)
        return Embeddings.open(home, shards)

    def _find_ids(self, texts: RowTexts, role: Role, make: bool) -> None:
        """Open the stored token ids of the table, if there are any; all processes call this to make them."""
        if self._has_token_path(role):
            texts.store = (
                texts.source.store(self._shows_progress) if make else texts.source.stored()
            )

    def _has_token_path(self, role: Role) -> bool:
        prompt = self.prompts[role]
        if (role, prompt) not in self._token_paths:
            self._token_paths[role, prompt] = has_token_path(self.model, role, prompt)
        return self._token_paths[role, prompt]

    def _parts(
        self, texts: RowTexts, role: Role, size: int, *ranges: slice
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the embeddings of some ranges of texts, each of which starts at a shard, shard by shard."""
        unit, hidden = PLURALS[role], process_index() > 0 or not self._shows_progress
        total = sum(part.stop - part.start for part in ranges)
        with progress(f"encoding {unit}", total, unit, hidden=hidden, rate=True) as bar:
            for part in ranges:
                for start in range(part.start, part.stop, size):
                    yield self._vectors(
                        texts, slice(start, min(start + size, part.stop)), role, bar.update
                    )

    def _vectors(
        self, texts: RowTexts, part: slice, role: Role, done: Callable[[int], object]
    ) -> NDArray[np.float32]:
        """Embed some texts: float32 ``[len(part), dimension]``, rows of length 1; ``done`` counts them."""
        try:
            with autocast(self.precision, self.device):
                if self._has_token_path(role):
                    raw = self._embed_ids(texts.ids(part), role, done)
                else:
                    raw = self._embed_texts(texts.texts(part), role, done)
        except Exception as error:
            if (
                not isinstance(error, REFUSED_TEXTS) and type(error) is not Exception
            ):  # tokenizers knows no other
                raise
            given = texts.texts(part)
            reason = shortened((str(error).strip().splitlines() or [type(error).__name__])[0])
            which = (
                f"the {role} {shown(given[0])}"
                if len(given) == 1
                else f"one of {len(given):,} {PLURALS[role]}"
            )
            raise ModelError(
                f"the model cannot encode {which}: {reason}; its files may not belong together"
            ) from error
        bad: IntArray = np.flatnonzero(~np.isfinite(raw).all(axis=1))
        wrong = "holds values that are no numbers"
        if not bad.size:
            bad, wrong = normalise(raw), "is too long or too short to be brought to length 1"
        if bad.size:
            raise ModelError(
                f"the model's embedding of the {role} {texts.texts(part)[bad[0]][:60]!r} {wrong} ({bad.size:,} of "
                f"{len(raw):,} texts; precision {self.precision}); use precision=fp32, or another copy of the model"
            )
        return raw

    def _embed_ids(
        self, ids: list[TokenIds], role: Role, done: Callable[[int], object]
    ) -> NDArray[np.float32]:
        """Embed texts by their token ids, in batches of a bounded number of tokens."""
        embeddings = np.empty((len(ids), self.dimension), dtype=np.float32)
        lengths = np.array([len(each) for each in ids], dtype=np.int64)
        in_prompt = prompt_length(self.model, self.prompts[role])
        self.model.eval()
        with torch.inference_mode(), packing(self.model):
            most = self.batch_size * TOKENS_PER_TEXT
            for batch in token_batches(lengths, most, pays_for_padding(self.model)):
                found = embed_tokens(
                    self.model, [ids[number] for number in batch.tolist()], in_prompt
                )
                embeddings[batch] = (
                    found[:, : self.dimension].float().cpu().numpy()
                )  # the first, for truncate_dim
                done(len(batch))
        return embeddings

    def _embed_texts(
        self, texts: list[str], role: Role, done: Callable[[int], object]
    ) -> NDArray[np.float32]:
        """Let sentence-transformers embed texts whose tokens do not say everything."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        options = {
            "batch_size": self.batch_size,
            "show_progress_bar": False,
            "convert_to_numpy": True,
        }
        counting = self.model[-1].register_forward_hook(
            lambda *called: done(len(called[-1]["sentence_embedding"]))
        )
        try:
            raw = encode(texts, prompt=self.prompts[role], truncate_dim=None, **options)
        finally:
            counting.remove()
        return np.array(raw, dtype=np.float32).reshape(len(texts), self.dimension)


def open_encoder(
    model: str | Path,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> Encoder:
    """Load a model for encoding, with a run's lengths or else its own unless others are given; prompts likewise.

    Warns of the prompts that a well-known model lacks.
    """
    name, loaded = str(model), load_model(model, pick_device())
    given = {"max_query_length": max_query_length, "max_passage_length": max_passage_length}
    chosen = {name: length for name, length in given.items() if length is not None}
    if lengths := {**run_lengths(name), **chosen}:
        whole = {**lengths_of(loaded), **lengths}
        set_lengths(loaded, whole["max_query_length"], whole["max_passage_length"], set(chosen))
    set_prompts(loaded, query_prompt, document_prompt)
    warn_of_prompts(loaded.prompts, name, query_prompt, document_prompt)
    return Encoder(loaded, precision)


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()


def gather_rows(
    parts: Callable[[slice], Iterator[NDArray[np.float32]]], count: int, dimension: int, unit: int
) -> NDArray[np.float32]:
    """Compute rows, each process a range, and return them whole in every process: float32 ``[count, dimension]``.

    Args:
        parts: computes a range of rows, which starts at a unit, unit by unit.
        count: how many rows there are.
        dimension: length of a row.
        unit: rows of a unit.
    """
    ranges, rows = shares(count, unit), np.empty((count, dimension), dtype=np.float32)
    own = parts(own_share(count, unit))
    most = max(share.stop - share.start for share in ranges)
    for first in range(0, most, unit):
        for share, part in zip(ranges, everywhere(lambda: next(own, None)), strict=True):
            if part is not None:
                rows[share.start + first : share.start + first + len(part)] = part
    return rows
