"""Encode texts as unit float32 vectors, cached on disk and memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray, normalise
from opera.core.environment import is_reproducible
from opera.core.errors import ModelError
from opera.core.processes import (
    cached_by_all,
    everywhere,
    grown_by_all,
    own_share,
    process_index,
)
from opera.core.progress import progress
from opera.core.terminal import shortened, shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.encoder.embeddings import (
    SUFFIX,
    Embeddings,
    Shards,
    Vectors,
    shard_number,
    write_shard,
)
from opera.encoder.forward import embed_tokens, pays_for_padding, token_batches
from opera.encoder.packing import packing
from opera.encoder.token_ids import TokenIds, has_token_path, prompt_length
from opera.encoder.token_store import TokenSource, TokenStore
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.locate import run_lengths
from opera.retrieval.models import (
    fingerprint,
    is_static,
    lengths_of,
    load_model,
    reads_vectors,
    set_lengths,
)
from opera.retrieval.prompts import ROLES, Role, prompt_for, set_prompts, warn_of_prompts

PLURALS: dict[Role, str] = {"query": "queries", "document": "documents"}
TOKENS_PER_TEXT = 128
"""A batch holds ``batch_size`` texts of this length, or as many tokens in fewer or more texts."""
SEARCH_MEMORY = 2**28
"""Bytes that a search may take by default, besides queries, results and what reads the corpus."""
CHUNK_BYTES = 2**26
"""Of embeddings of pairs read at once: half are queries, half documents."""
REFUSED_TEXTS = (IndexError, TypeError, ValueError, KeyError, AttributeError)
"""What models raise that cannot encode a text."""


@dataclass
class RowTexts:
    """Texts on their way into a model: ``rows`` of a table, default all.

    Attributes:
        source: the table, and how it is tokenised.
        rows: int ``[n]``.
        as_ids: whether token ids say all that the model reads.
        store: the ids of all rows of the table, where they are kept.
    """

    source: TokenSource
    rows: IntArray | None = None
    as_ids: bool = False
    store: TokenStore | None = None

    def __post_init__(self) -> None:
        self.as_ids = has_token_path(self.source.model, self.source.task, self.source.prompt)

    def __len__(self) -> int:
        return len(self.source.table) if self.rows is None else len(self.rows)

    def find_ids(self, show_progress: bool, make: bool) -> None:
        """Open the kept token ids; with ``make``, which all processes pass, keep them first."""
        if self.as_ids:
            self.store = self.source.store(show_progress) if make else self.source.stored()

    def texts(self, part: slice) -> list[str]:
        """Return some of them; for a model that reads vectors, the numbers of their rows."""
        if reads_vectors(self.source.model):
            return [str(row) for row in self._numbers(part).tolist()]
        return self.source.table.texts(self._numbers(part), self.source.corpus_text)

    def ids(self, part: slice) -> list[TokenIds]:
        """Return the token ids of some of them, prompt in front."""
        rows = self._numbers(part)
        return self.source.tokenise(rows) if self.store is None else self.store.rows(rows)

    def _numbers(self, part: slice) -> IntArray:
        return np.arange(part.start, part.stop) if self.rows is None else self.rows[part]


class Encoder:
    """A model with everything that decides the embedding of a text.

    Several processes share the encoding of a corpus or of queries, so all of them call for it. Each
    encodes whole shards, so the bytes are those of one process.

    Attributes:
        model: the SentenceTransformer.
        device: the device it computes on.
        precision: ``fp32``, ``bf16`` or ``fp16``, for computing; embeddings are always float32.
        use_cache: whether embeddings of a data set are kept on disk.
        search_memory: bytes that a search by its embeddings may take.
        prompts: what goes before a text, by role; empty for nothing.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        precision: Precision = "auto",
        batch_size: int = 128,
        use_cache: bool = True,
        show_progress: bool = True,
        search_memory: int = SEARCH_MEMORY,
    ) -> None:
        self.model, self.batch_size, self.use_cache = model, batch_size, use_cache
        self.search_memory = search_memory
        self._shows_progress = show_progress
        self.device = model.device.type
        self.precision = resolve_precision(precision, self.device, not is_static(model))
        self.prompts: dict[Role, str] = {role: prompt_for(model, role) for role in ROLES}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model, with its prompts and lengths."""
        return self._digest([self._model_digest], ROLES)

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self.model.get_embedding_dimension())

    def encode(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        """Encode a few texts: float32 ``[len(texts), dimension]``, rows of length 1.

        Raises:
            ModelError: if the model cannot encode a text, or an embedding is not finite.
        """
        table = TextTable.from_texts({str(number): text for number, text in enumerate(texts)})
        source = TokenSource(self.model, table, "", role, self.prompts[role], "text")
        return self._vectors(RowTexts(source), slice(0, len(texts)), lambda count: None)

    def encode_corpus(
        self, data: RetrievalData, corpus_text: CorpusText = "title_text"
    ) -> Embeddings:
        """Encode the corpus, or open it in the cache: float32 ``[documents, dimension]``."""
        return self._encode_rows(self._documents(data, corpus_text), f"{data.fingerprint}/corpus")

    def encode_queries(self, data: RetrievalData, rows: IntArray) -> Embeddings:
        """Encode rows of the query table, or open them in the cache: float32 ``[n, dimension]``."""
        source = TokenSource.of_queries(self.model, data, self.prompts["query"])
        contents = f"{data.fingerprint}/queries/{rows_digest(rows)}"
        return self._encode_rows(RowTexts(source, rows), contents)

    def document_parts(
        self, data: RetrievalData, corpus_text: CorpusText
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Encode this process's share of the corpus, and keep nothing: parts and first rows."""
        documents, size = self._documents(data, corpus_text), Shards.of(len(data.corpus)).size
        documents.find_ids(self._shows_progress, make=False)
        share = own_share(len(documents), size)
        return zip(
            range(share.start, share.stop, size),
            self._parts(documents, size, share),
            strict=True,
        )

    def cached(
        self, kind: str, *key: str, write: Callable[[Path], object], roles: Iterable[Role] = ROLES
    ) -> Path:
        """Return the folder of a cache entry that this model computed; ``write`` fills a new one.

        The entry depends on the prompts and lengths of ``roles`` alone, so that another prompt of
        queries encodes no document again. All processes call this, and ``write``.
        """
        return cached_by_all(kind, self._key(*key, roles=roles), write)

    def _key(self, *key: str, roles: Iterable[Role]) -> str:
        arithmetic = self.precision + " reproducible" * is_reproducible()
        return self._digest([self._model_digest, arithmetic, *key], roles)[:32]

    def _digest(self, parts: Iterable[str], roles: Iterable[Role]) -> str:
        reading = [f"{self.prompts[role]}\0{self._length(role)}" for role in roles]
        return hashlib.sha256("\0".join([*parts, *reading]).encode()).hexdigest()

    def _length(self, role: Role) -> int | None:
        """Tokens of a text that the model reads; ``None`` for all of them."""
        own = getattr(self.model[0], f"{role}_length", None)
        return own if own is not None else getattr(self.model, "max_seq_length", None)

    @cached_property
    def _model_digest(self) -> str:
        return fingerprint(self.model)

    def _documents(self, data: RetrievalData, corpus_text: CorpusText) -> RowTexts:
        prompt = self.prompts["document"]
        return RowTexts(TokenSource.of_corpus(self.model, data, prompt, corpus_text))

    def _encode_rows(self, texts: RowTexts, contents: str) -> Embeddings:
        shards, role, shows = Shards.of(len(texts)), texts.source.task, self._shows_progress
        if len(texts) == 0:
            return Embeddings.of(np.empty((0, self.dimension), dtype=np.float32))
        if not self.use_cache:
            texts.find_ids(shows, make=False)
            parts = partial(self._parts, texts, shards.size)
            return Embeddings.of(gather_rows(parts, len(texts), shards.size))

        def write(folder: Path, names: list[str]) -> None:
            texts.find_ids(shows, make=texts.rows is None)
            ranges = [shards.rows(shard_number(name)) for name in names]
            parts = self._parts(texts, shards.size, *ranges)
            for name, part in zip(names, parts, strict=True):
                write_shard(folder / name, part)

        key = [f"shards of {shards.size}", role, texts.source.corpus_text, contents]
        about = {
            "holds": f"embeddings of {contents}, {texts.source.corpus_text}",
            "model": self._model_digest,
            "prompt": self.prompts[role],
            "tokens_at_most": self._length(role) if self._length(role) != np.inf else None,
            "precision": self.precision,
            "rows": len(texts),
            "rows_per_file": shards.size,
            "dimension": self.dimension,
        }
        names = shards.names(SUFFIX)
        home = grown_by_all("vectors", self._key(*key, roles=[role]), names, write, about)
        return Embeddings.open(home, shards)

    def _parts(self, texts: RowTexts, size: int, *ranges: slice) -> Iterator[NDArray[np.float32]]:
        """Yield the embeddings of some ranges, each of which starts at a shard, shard by shard."""
        hidden, unit = process_index() > 0 or not self._shows_progress, PLURALS[texts.source.task]
        total = sum(part.stop - part.start for part in ranges)
        with progress(f"encoding {unit}", total, unit, hidden=hidden, rate=True) as bar:
            for part in ranges:
                for start in range(part.start, part.stop, size):
                    shard = slice(start, min(start + size, part.stop))
                    yield self._vectors(texts, shard, bar.update)

    def _vectors(
        self, texts: RowTexts, part: slice, done: Callable[[int], object]
    ) -> NDArray[np.float32]:
        """Embed texts: float32 ``[len(part), dimension]``, of length 1; ``done`` counts them."""
        role = texts.source.task
        try:
            with autocast(self.precision, self.device):
                if texts.as_ids:
                    raw = self._embed_ids(texts.ids(part), role, done)
                else:
                    raw = self._embed_texts(texts.texts(part), role, done)
        except Exception as error:
            # the type of tokenizers' own errors is Exception
            if not isinstance(error, REFUSED_TEXTS) and type(error) is not Exception:
                raise
            given = texts.texts(part)
            reason = shortened((str(error).strip().splitlines() or [type(error).__name__])[0])
            one = f"the {role} {shown(given[0])}"
            which = one if len(given) == 1 else f"one of {len(given):,} {PLURALS[role]}"
            raise ModelError(
                f"the model cannot encode {which}: {reason}; its files may not belong together"
            ) from error
        bad: IntArray = np.flatnonzero(~np.isfinite(raw).all(axis=1))
        wrong = "holds values that are no numbers"
        if not bad.size:
            bad, wrong = normalise(raw), "is too long or too short to be brought to length 1"
        if bad.size:
            raise ModelError(
                f"the model's embedding of the {role} {texts.texts(part)[bad[0]][:60]!r} {wrong} "
                f"({bad.size:,} of {len(raw):,} texts; precision {self.precision}); use "
                "precision=fp32, or another copy of the model"
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
                given = [ids[number] for number in batch.tolist()]
                found = embed_tokens(self.model, given, in_prompt)
                # the first dimensions, for truncate_dim
                embeddings[batch] = found[:, : self.dimension].float().cpu().numpy()
                done(len(batch))
        return embeddings

    def _embed_texts(
        self, texts: list[str], role: Role, done: Callable[[int], object]
    ) -> NDArray[np.float32]:
        """Let sentence-transformers embed texts whose tokens do not say everything."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        options = {
            "batch_size": len(texts) if is_static(self.model) else self.batch_size,
            "show_progress_bar": False,
            "convert_to_numpy": True,
        }
        raw = encode(texts, prompt=self.prompts[role], truncate_dim=None, **options)
        done(len(texts))
        return np.array(raw, dtype=np.float32).reshape(len(texts), self.dimension)


def open_encoder(
    model: str | Path,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> Encoder:
    """Load a model with the lengths and prompts that are given, else a run's, else its own.

    Warns of the prompts that a well-known model lacks.
    """
    name, loaded = str(model), load_model(model, pick_device())
    given = {"max_query_length": max_query_length, "max_passage_length": max_passage_length}
    chosen = {name: length for name, length in given.items() if length is not None}
    if lengths := {**run_lengths(name), **chosen}:
        set_lengths(loaded, {**lengths_of(loaded), **lengths}, chosen)
    set_prompts(loaded, query_prompt, document_prompt)
    warn_of_prompts(loaded.prompts, name, query_prompt, document_prompt)
    return Encoder(loaded, precision)


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()


def gather_rows(
    parts: Callable[[slice], Iterator[NDArray[np.float32]]], count: int, unit: int
) -> NDArray[np.float32]:
    """Let each process compute a range of rows, of whole units; return all rows in each of them."""
    shares = everywhere(lambda: list(parts(own_share(count, unit))))
    return np.concatenate([part for share in shares for part in share])


def pair_similarities(
    pairs: TrainingPairs, query_embeddings: Vectors, document_embeddings: Vectors
) -> NDArray[np.float32]:
    """Compute s(e_q, e_d) of every pair: float32 ``[N]``.

    Args:
        pairs: the N training pairs.
        query_embeddings: float32 ``[n, dimension]``, rows of length 1; may be shards on disk.
        document_embeddings: float32 ``[documents, dimension]``, in the same way.
    """
    similarity = np.empty(pairs.n_pairs, dtype=np.float32)
    size = max(1, CHUNK_BYTES // (2 * 4 * query_embeddings.shape[1]))
    for start in range(0, pairs.n_pairs, size):
        part = slice(start, start + size)
        queries = query_embeddings[pairs.pair_query[part]]
        documents = document_embeddings[pairs.pair_doc[part]]
        similarity[part] = np.einsum("pd,pd->p", queries, documents)
    return similarity
