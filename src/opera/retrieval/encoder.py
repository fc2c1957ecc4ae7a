"""Encode texts as float32 vectors, which are cached on disk and memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray, slices
from opera.core.errors import ModelError, SettingError
from opera.core.processes import (
    cached_by_all,
    everywhere,
    process_index,
    process_range,
)
from opera.core.progress import progress
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.encoder import TokenModel, TokenSource
from opera.identity.model import (
    cache_key,
    computation_key,
    fingerprint,
    may_cache,
    reading,
)
from opera.retrieval.device import (
    Precision,
    autocast,
    pick_device,
    resolve_precision,
)
from opera.retrieval.kinds import KindName, encoding_kind_of
from opera.retrieval.kinds.dense import is_static, reads_vectors
from opera.retrieval.locate import Model, model_title, run_passages
from opera.retrieval.models import adds_head, lengths_of, load_model, set_lengths
from opera.retrieval.nearest import BestDocuments
from opera.retrieval.passages import DocumentVectors, Passages, advised_passage, split_corpus
from opera.retrieval.prompts import (
    LENGTH_SETTINGS,
    ROLES,
    Role,
    length_limit,
    prompt_for,
    set_prompts,
    warn_of_missing_prompts,
)
from opera.retrieval.vectors import Shards, Vectors

EmbeddingParts: TypeAlias = dict[str, list[Any]]
"""Embeddings of corpora in memory, part by part, by model and texts."""
PLURALS: dict[Role, str] = {"query": "queries", "document": "documents"}
TOKENS_PER_TEXT = 128
"""A batch holds ``batch_size`` texts of this length, or the same number of tokens."""
SPECIAL_TOKENS = 2
"""Tokens that most tokenizers add to a text."""
Lookup: TypeAlias = "Callable[[IntArray], list[NDArray[np.int32]]]"
"""Returns the token ids of rows."""
ARRAYS_FILE = "arrays.npz"
CHUNK_BYTES = 2**26
"""Size of the embeddings of pairs read at once: half are queries, half documents."""


class Encoder:
    """A model with everything that decides the embedding of a text and the score of a document.

    If the similarity is the cosine, OPERA scales embeddings to length 1. For any other similarity
    they keep the length that the model gives them.

    Several processes share the encoding of a corpus or of queries, so all of them must make the
    call. Each process encodes complete shards, so their number does not change the result.

    Attributes:
        model: a model of a kind that encodes queries and documents apart.
        kind: its kind, which decides what an embedding is.
        device: the device of the model.
        precision: ``fp32``, ``bf16`` or ``fp16`` for computing; embeddings are always float32.
        use_cache: whether embeddings of a data set are cached on disk.
        memory: embeddings of corpora in memory, used without the disk cache; ``None`` for none.
        prompts: the text before a query or document, by role; empty for none.
        passage_tokens: the most tokens of a passage. A longer document is split, and ranked by its
            best passage. ``None`` if documents stay whole.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        precision: Precision = "auto",
        batch_size: int = 128,
        use_cache: bool = True,
        show_progress: bool = True,
        memory: EmbeddingParts | None = None,
        passage_tokens: int | None = None,
    ) -> None:
        self.kind = encoding_kind_of(model)
        self.model, self._token_model, self.batch_size = model, TokenModel(model), batch_size
        self.use_cache = use_cache and may_cache(model)
        self.memory, self.passage_tokens = memory, passage_tokens
        self._passages: dict[str, Passages] = {}
        self._shows_progress = show_progress
        self.device = model.device.type
        self.precision = resolve_precision(precision, self.device, not is_static(model))
        self.prompts: dict[Role, str] = {role: prompt_for(model, role) for role in ROLES}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model, with its prompts and lengths."""
        return hashlib.sha256("\0".join(self._identity(ROLES)).encode()).hexdigest()

    @property
    def dimension(self) -> int:
        """Number of values of an embedding."""
        return int(self.model.get_embedding_dimension())

    @property
    def similarity(self) -> str:
        """The model's ``similarity_fn_name``, which ranks documents."""
        return str(self.model.similarity_fn_name)

    @property
    def settings(self) -> dict[str, Any]:
        """The model's similarity, lengths and prompts, which its folder stores."""
        lengths = {
            setting: length_limit(self.model, role) for role, setting in LENGTH_SETTINGS.items()
        }
        prompts = {f"{role}_prompt": self.prompts[role] for role in ROLES}
        return {"similarity": self.similarity, **lengths, **prompts}

    def encode(self, texts: list[str], role: Role) -> Any:
        """Encode a few texts; for a dense model: float32 ``[len(texts), dimension]``.

        Raises:
            ModelError: if an embedding is not finite.
        """
        table = TextTable.from_texts({str(number): text for number, text in enumerate(texts)})
        source = TokenSource(self.model, table, "", role, self.prompts[role], "text")
        tokens = source.tokenise if source.suffices else None
        return self._vectors(source, np.arange(len(texts)), tokens, lambda _: None)

    def passages(self, data: RetrievalData) -> Passages | None:
        """Return the passages of the documents; ``None`` if documents stay whole."""
        if self.passage_tokens is None:
            return None
        digest = f"{data.fingerprint}/corpus"
        if digest not in self._passages:
            passages = split_corpus(data.corpus, digest, self.model, self.passage_tokens)
            self._passages[digest] = passages
        return self._passages[digest]

    def encode_corpus(
        self, data: RetrievalData, corpus_text: CorpusText = "title_text"
    ) -> DocumentVectors:
        """Encode the corpus, or read it from the cache."""
        passages, source = self.passages(data), self._source(data, "document", corpus_text)
        return DocumentVectors(
            self._encode_rows(source), None if passages is None else passages.starts
        )

    def nearest(self, queries: Any, data: RetrievalData, depth: int) -> BestDocuments:
        """Return a search by the model's similarity for embeddings of queries."""
        passages = self.passages(data)
        doc_rows = None if passages is None else passages.doc_rows
        how = depth, self.device, self.similarity, doc_rows
        return self.kind.nearest(queries, data.corpus, *how)

    def encode_queries(self, data: RetrievalData, rows: IntArray) -> Vectors:
        """Encode rows of the query table, or read the cache: float32 ``[n, dimension]``."""
        return self._encode_rows(self._source(data, "query"), rows)

    def document_parts(
        self, data: RetrievalData, corpus_text: CorpusText
    ) -> Iterator[tuple[int, Any]]:
        """Yield this process's part of the corpus, from :attr:`memory` if it is there.

        Each item is the number of a part's first row and its embeddings.
        """
        source = self._source(data, "document", corpus_text)
        shards = self._shards(len(source.table))
        share = process_range(shards.count, shards.size)
        rows = _cut(np.arange(share.start, share.stop), shards.size)
        first_rows = [int(part[0]) for part in rows]
        encoding = self._parts(source, rows, self._lookup(source))
        if self.memory is None:
            yield from zip(first_rows, encoding, strict=True)
            return
        key = self.key(corpus_text, source.digest, roles=["document"])
        encoded: list[Any] = []
        parts = self.memory.get(key, encoding)
        for first_row, embeddings in zip(first_rows, parts, strict=True):
            encoded.append(embeddings)
            yield first_row, embeddings
        self.memory[key] = encoded

    def key(self, *parts: str, roles: Collection[Role] = ROLES) -> str:
        """Return the key of a cache entry of this model.

        The key depends only on the prompts and lengths of ``roles``. So a new query prompt does not
        encode the documents again.
        """
        computed = computation_key(self.precision, self.device)
        return cache_key([*self._identity(roles), computed, *parts])

    def _identity(self, roles: Collection[Role]) -> list[str]:
        readings = [reading(self.model, role, self.prompts[role]) for role in roles]
        if self.passage_tokens is not None and "document" in roles:
            readings.append(f"passages of {self.passage_tokens} tokens")
        return [self._fingerprint, *readings]

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.model)

    def _source(
        self, data: RetrievalData, role: Role, corpus_text: CorpusText = "title_text"
    ) -> TokenSource:
        source = TokenSource.of(self.model, data, role, self.prompts[role], corpus_text)
        passages = self.passages(data) if role == "document" else None
        if passages is None:
            return source
        return replace(source, table=passages.table, digest=passages.digest)

    def _lookup(self, source: TokenSource, reads: int = 0) -> Lookup | None:
        """Return a function from rows to token ids; ``None`` if the model needs more than these.

        ``reads`` is the number of texts that will be read, see :meth:`TokenSource.lookup`.
        """
        return source.lookup(reads, self._shows_progress) if source.suffices else None

    def _encode_rows(self, source: TokenSource, rows: IntArray | None = None) -> Vectors:
        """Encode rows of a table, by default all, or read them from the cache."""
        numbers = np.arange(len(source.table)) if rows is None else np.asarray(rows)
        shards, role = self._shards(len(numbers)), source.task
        if not len(numbers):
            return self.encode([""], role)[:0]
        if not self.use_cache:
            tokens = self._lookup(source)
            return self.kind.join(
                gather_parts(
                    lambda share: self._parts(source, _cut(numbers[share], shards.size), tokens),
                    len(numbers),
                    shards.size,
                )
            )

        def write(folder: Path, names: list[str]) -> None:
            tokens = self._lookup(source, len(numbers) if rows is None else 0)
            parts = [numbers[shards.rows(int(Path(name).stem))] for name in names]
            for name, vectors in zip(names, self._parts(source, parts, tokens), strict=True):
                self.kind.write(folder / name, vectors)

        contents = source.digest if rows is None else f"{source.digest}/{rows_digest(rows)}"
        key = [f"shards of {shards.size}", role, source.corpus_text, contents]
        names = shards.names(self.kind.suffix)
        folder = cached_by_all("vectors", self.key(*key, roles=[role]), write, names)
        return self.kind.stored(folder, shards)

    def _shards(self, count: int) -> Shards:
        return Shards.of(count, self.kind.most_rows)

    def _parts(
        self, source: TokenSource, parts: list[IntArray], tokens: Lookup | None
    ) -> Iterator[Any]:
        """Yield the embeddings of rows, part by part."""
        hidden = process_index() > 0 or not self._shows_progress
        reads_passages = source.task == "document" and self.passage_tokens is not None
        unit = "passages" if reads_passages else PLURALS[source.task]
        with progress(f"encoding {unit}", sum(map(len, parts)), unit, hidden=hidden) as bar:
            for rows in parts:
                yield self._vectors(source, rows, tokens, bar.update)

    def _texts(self, source: TokenSource, rows: IntArray) -> list[str]:
        """Return the texts of rows; for a model that reads vectors, the row numbers as texts."""
        if reads_vectors(self.model):
            return [str(row) for row in rows.tolist()]
        return source.table.texts(rows, source.corpus_text)

    def _vectors(
        self,
        source: TokenSource,
        rows: IntArray,
        tokens: Lookup | None,
        done: Callable[[int], object],
    ) -> Any:
        """Embed rows of a table. ``done`` receives counts for progress."""
        role = source.task
        with autocast(self.precision, self.device):
            if tokens is None:
                texts = self._texts(source, rows)
                raw = self.kind.encode(self.model, texts, role, self.prompts[role], self.batch_size)
                done(len(rows))
            else:
                most_tokens = self.batch_size * TOKENS_PER_TEXT
                raw = self._token_model.embed(tokens(rows), source.prompt_length, most_tokens, done)
        bad, problem = self.kind.unusable(raw), "holds NaN or infinite values"
        if not bad.size and self.similarity == "cosine":
            raw, bad = self.kind.normalise(raw)
            problem = "is too long or too short to scale to length 1"
        if bad.size:
            text = self._texts(source, rows[bad[:1]])[0]
            raise ModelError(
                f"the model's embedding of the {role} {text[:60]!r} {problem} "
                f"({bad.size:,} of {len(rows):,} texts; precision {self.precision}); use "
                "precision=fp32, or another copy of the model"
            )
        return raw


def open_encoder(
    model: Model,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    passages: int | None = None,
    kind: KindName | None = None,
    as_in_training: bool = False,
) -> Encoder:
    """Load a model and set how it reads texts; ``None`` keeps the setting of the model or its run.

    With ``as_in_training``, the similarity is that of training. Warns if a well-known model lacks
    its prompts.
    """
    if adds_head(model, kind):
        raise SettingError(
            f"kind={kind}: adds a new head to {model_title(model)}, which only training can set; "
            f"train it with opera train --kind {kind}"
        )
    loaded = load_model(model, pick_device(), kind)
    lengths = {"max_query_length": max_query_length, "max_passage_length": max_passage_length}
    if chosen := {name: length for name, length in lengths.items() if length is not None}:
        set_lengths(loaded, {**lengths_of(loaded), **chosen}, chosen)
    if as_in_training:
        use_trained_similarity(loaded)
    set_prompts(loaded, query_prompt, document_prompt)
    warn_of_missing_prompts(loaded.prompts, model, query_prompt, document_prompt)
    passages = run_passages(model) if passages is None else passages or None
    check_passages(loaded, passages)
    return Encoder(loaded, precision, passage_tokens=passages)


def use_trained_similarity(model: SentenceTransformer) -> None:
    """Give a model the similarity that training uses."""
    similarity = encoding_kind_of(model).trained_similarity
    if similarity is not None:
        model.similarity_fn_name = similarity


def check_passages(model: SentenceTransformer, passages: int | None) -> None:
    """Check that a model reads complete passages, apart from long titles and prompts.

    Raises:
        SettingError: if it does not.
    """
    limit = length_limit(model, "document")
    if passages is None or limit is None or passages + SPECIAL_TOKENS <= limit:
        return
    raise SettingError(
        f"passages={passages}: the model reads {limit} tokens of a text, with title, prompt and "
        f"special tokens; pass --passages {advised_passage(limit)}"
    )


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()


def _cut(rows: IntArray, size: int) -> list[IntArray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def gather_parts(parts: Callable[[slice], Iterator[Any]], count: int, unit: int) -> list[Any]:
    """Let each process compute a range of complete units; return all parts in every process."""
    shares = everywhere(lambda: list(parts(process_range(count, unit))))
    return [part for share in shares for part in share]


def cached_arrays(
    kind: str, key: str, compute: Callable[[], Mapping[str, Any]]
) -> dict[str, NDArray[Any]]:
    """Return arrays from the cache; all processes must call this, and compute them together."""

    def write(folder: Path, _: list[str]) -> None:
        arrays = compute()
        if process_index() == 0:
            np.savez(folder / ARRAYS_FILE, **arrays)

    with np.load(cached_by_all(kind, key, write) / ARRAYS_FILE) as arrays:
        return dict(arrays)


def pair_similarities(
    pairs: TrainingPairs,
    query_embeddings: Vectors,
    documents: DocumentVectors,
    have_length_1: bool = True,
) -> NDArray[np.float32]:
    """Compute the cosine s(e_q, e_d) of every pair, with the document's best passage: float32
    ``[N]``.

    Args:
        pairs: the N training pairs.
        query_embeddings: float32 ``[n, dimension]``; may be shards on disk.
        documents: of the corpus; may be shards on disk.
        have_length_1: whether all embeddings have length 1.
    """
    similarity = np.empty(pairs.n_pairs, dtype=np.float32)
    size = max(1, CHUNK_BYTES // (2 * 4 * query_embeddings.shape[1]))
    for block in slices(pairs.n_pairs, size):
        queries = query_embeddings[pairs.pair_query[block]]
        _, similarity[block] = documents.best_rows(queries, pairs.pair_doc[block], have_length_1)
    return similarity
