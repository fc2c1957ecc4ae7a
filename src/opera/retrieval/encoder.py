"""Texts to vectors: normalised, float32, kept in the cache and memory-mapped."""

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
from opera.core.files import make_once
from opera.data import RetrievalData, TextTable, cache_folder
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.models import is_static, load_model, model_fingerprint, set_lengths

Role = Literal["query", "document"]
CHUNK_BATCHES = 32
MOST_IN_MEMORY = 2**30


class Encoder:
    """A model with everything that decides what it makes of a text.

    Attributes:
        model: the SentenceTransformer.
        device: where it computes.
        precision: ``fp32``, ``bf16`` or ``fp16``: what it computes in; vectors are float32 always.
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
        """Length of a vector."""
        return int(self.model.get_embedding_dimension())

    def encode(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        """Encode a few texts: float32 ``[len(texts), dimension]``, rows of length 1."""
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        with autocast(self.precision, self.device):
            vectors = encode(
                texts,
                batch_size=self.batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                truncate_dim=None,
            )
        vectors = np.asarray(vectors, dtype=np.float32)
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), dtype=np.float32)

    def corpus(self, data: RetrievalData, choice: CorpusText = "title_text") -> NDArray[np.float32]:
        """Encode a whole corpus, from the cache where it is there: float32 ``[documents, dimension]``."""
        return self._rows(data.corpus, None, "document", choice, f"{data.fingerprint}/corpus", "documents")

    def queries(self, data: RetrievalData, rows: IntArray) -> NDArray[np.float32]:
        """Encode some queries, from the cache where they are there: float32 ``[len(rows), dimension]``."""
        key = f"{data.fingerprint}/queries/{rows_digest(rows)}"
        return self._rows(data.queries, rows, "query", "text", key, "queries")

    def cache_file(self, kind: str, *key: str, suffix: str) -> Path | None:
        """Return where to keep something this model makes, in a folder that exists; ``None`` for one without cache."""
        if not self.use_cache:
            return None
        digest = hashlib.sha256("\0".join((self.fingerprint, self.precision, *key)).encode()).hexdigest()
        path = cache_folder() / kind / f"{digest[:32]}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _rows(
        self, table: TextTable, rows: IntArray | None, role: Role, choice: CorpusText, key: str, what: str
    ) -> NDArray[np.float32]:
        count = len(table) if rows is None else len(rows)

        def texts(part: slice) -> list[str]:
            return table.texts(part if rows is None else rows[part], choice)

        def write(temporary: Path) -> None:
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, (count, self.dimension))
            self._fill(vectors, texts, role, what)
            vectors.flush()

        path = self.cache_file("vectors", role, choice, key, suffix=".npy")
        if path is None:
            vectors = _room_for(count, self.dimension)
            self._fill(vectors, texts, role, what)
            return vectors
        make_once(path, write)
        return np.asarray(np.load(path, mmap_mode="r"))

    def _fill(self, vectors: NDArray[np.float32], texts: Callable[[slice], list[str]], role: Role, what: str) -> None:
        chunk = self.batch_size * CHUNK_BATCHES
        with tqdm(total=len(vectors), desc=f"encoding {what}", unit=f" {what}", disable=self._hide_bar) as bar:
            for start in range(0, len(vectors), chunk):
                part = slice(start, min(start + chunk, len(vectors)))
                vectors[part] = self.encode(texts(part), role)
                bar.update(part.stop - part.start)


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of some row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()


def _room_for(rows: int, dimension: int) -> NDArray[np.float32]:
    """Return room for vectors that nobody keeps: in memory, or past a gigabyte in a file that goes with them."""
    if rows * dimension * 4 < MOST_IN_MEMORY:
        return np.empty((rows, dimension), dtype=np.float32)
    return np.memmap(tempfile.TemporaryFile(), np.float32, "w+", shape=(rows, dimension))


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
