"""Encode texts as unit float32 vectors, cached on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from opera.core.arrays import IntArray
from opera.core.files import write_once
from opera.data import RetrievalData, TextTable, cache_folder
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.frozen import embed_rows, lookup_of
from opera.retrieval.models import is_static, load_model, model_fingerprint, set_lengths

Role = Literal["query", "document"]
BATCHES_PER_CHUNK = 32
MEMORY_LIMIT = 2**30
"""Embeddings without a cache that need more bytes than this go to a temporary file."""


class Encoder:
    """A model with everything that decides the embedding of a text.

    Attributes:
        model: the SentenceTransformer.
        device: the device it computes on.
        precision: ``fp32``, ``bf16`` or ``fp16``, for computing; embeddings are always float32.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        precision: Precision = "auto",
        batch_size: int = 128,
        use_cache: bool = True,
        show_progress: bool = True,
    ) -> None:
        self.model, self.batch_size, self.use_cache = model, batch_size, use_cache
        self._hide_bar = None if show_progress else True  # None: shown on a terminal only
        self.device = model.device.type
        self.precision = resolve_precision(precision, self.device, not is_static(model))
        self._fingerprint: str | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model."""
        if self._fingerprint is None:
            self._fingerprint = model_fingerprint(self.model)
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self.model.get_embedding_dimension())

    def encode(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        """Encode a few texts: float32 ``[len(texts), dimension]``, rows of length 1."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with autocast(self.precision, self.device):
            raw = encode(
                texts,
                batch_size=self.batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                truncate_dim=None,
            )
        embeddings = np.asarray(raw, dtype=np.float32)
        lengths = np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
        return np.asarray(embeddings / lengths, dtype=np.float32)

    def encode_corpus(self, data: RetrievalData, corpus_text: CorpusText = "title_text") -> NDArray[np.float32]:
        """Encode the whole corpus, or read it from the cache: float32 ``[documents, dimension]``."""
        return self._encode_rows(data.corpus, None, "document", corpus_text, f"{data.fingerprint}/corpus")

    def encode_queries(self, data: RetrievalData, rows: IntArray) -> NDArray[np.float32]:
        """Encode some rows of the query table, or read them from the cache: float32 ``[len(rows), dimension]``."""
        return self._encode_rows(data.queries, rows, "query", "text", f"{data.fingerprint}/queries/{rows_digest(rows)}")

    def cache_file(self, kind: str, *key: str, suffix: str) -> Path | None:
        """Return the cache file of something this model computed, in a folder that exists; ``None`` without a cache."""
        if not self.use_cache:
            return None
        digest = hashlib.sha256("\0".join((self.fingerprint, self.precision, *key)).encode()).hexdigest()
        path = cache_folder() / kind / f"{digest[:32]}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _encode_rows(
        self, table: TextTable, rows: IntArray | None, role: Role, corpus_text: CorpusText, key: str
    ) -> NDArray[np.float32]:
        if lookup_of(self.model) is not None:
            return embed_rows(self.model, role, rows)
        count = len(table) if rows is None else len(rows)

        def texts(part: slice) -> list[str]:
            return table.texts(part if rows is None else rows[part], corpus_text)

        def write(temporary: Path) -> None:
            embeddings = np.lib.format.open_memmap(temporary, "w+", np.float32, (count, self.dimension))
            self._fill(embeddings, texts, role)
            embeddings.flush()

        path = self.cache_file("vectors", role, corpus_text, key, suffix=".npy")
        if path is None:
            embeddings = _allocate(count, self.dimension)
            self._fill(embeddings, texts, role)
            return embeddings
        write_once(path, write)
        return np.asarray(np.load(path, mmap_mode="r"))

    def _fill(self, embeddings: NDArray[np.float32], texts: Callable[[slice], list[str]], role: Role) -> None:
        """Encode ``texts`` into ``embeddings``, chunk by chunk."""
        chunk, unit = self.batch_size * BATCHES_PER_CHUNK, "queries" if role == "query" else "documents"
        with tqdm(total=len(embeddings), desc=f"encoding {unit}", unit=f" {unit}", disable=self._hide_bar) as bar:
            for start in range(0, len(embeddings), chunk):
                part = slice(start, min(start + chunk, len(embeddings)))
                embeddings[part] = self.encode(texts(part), role)
                bar.update(part.stop - part.start)


def open_encoder(
    model: str | Path,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
) -> Encoder:
    """Load a model for encoding, with its own lengths unless others are given."""
    loaded = load_model(model, pick_device())
    lengths = {"max_query_length": max_query_length, "max_passage_length": max_passage_length}
    chosen = {name for name, value in lengths.items() if value is not None}
    if chosen:
        own = [getattr(loaded[0], name, None) for name in ("query_length", "document_length")]
        set_lengths(loaded, max_query_length or own[0], max_passage_length or own[1], chosen)
    return Encoder(loaded, precision)


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()


def _allocate(rows: int, dimension: int) -> NDArray[np.float32]:
    """Allocate uncached embeddings: in memory, or past a gigabyte in a temporary file deleted with the array."""
    if rows * dimension * 4 < MEMORY_LIMIT:
        return np.empty((rows, dimension), dtype=np.float32)
    return np.memmap(tempfile.TemporaryFile(), np.float32, "w+", shape=(rows, dimension))
