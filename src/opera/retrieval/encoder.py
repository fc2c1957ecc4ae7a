"""Encode texts as unit float32 vectors, cached on disk and memory-mapped."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.config.encoding import EncodingSettings
from opera.core.arrays import IntArray
from opera.core.errors import ModelError
from opera.core.processes import cached_by_all, process_count, process_index
from opera.core.progress import progress
from opera.core.reproducible import is_reproducible
from opera.core.terminal import shortened, shown
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision, autocast, pick_device, resolve_precision
from opera.retrieval.frozen import CHUNK_ROWS, embed_rows, lookup_of
from opera.retrieval.models import fingerprints, is_static, lengths_of, load_model, set_lengths
from opera.retrieval.prompts import ROLES, Role, as_option, prompt_for, set_prompts, warn_of_missing_prompts
from opera.retrieval.run_model import run_lengths
from opera.retrieval.shards import gather_rows, save_shared_rows
from opera.runs.folder import holds_run

log = logging.getLogger("opera")

PLURALS: dict[Role, str] = {"query": "queries", "document": "documents"}
BATCHES_PER_CHUNK = 32
VECTORS_FILE = "vectors.npy"
MEMORY_LIMIT = 2**30
"""Bytes of embeddings that processes send each other; more are searched by the process that computed them."""


class Encoder:
    """A model with everything that decides the embedding of a text.

    Several processes share the encoding of a corpus or of queries, so all of them call for it. Each encodes whole
    chunks, so the bytes are those of one process.

    Attributes:
        model: the SentenceTransformer.
        device: the device it computes on.
        precision: ``fp32``, ``bf16`` or ``fp16``, for computing; embeddings are always float32.
        prompts: what goes before a text, by role; empty for nothing.
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
        self._shows_progress = show_progress
        self.device = model.device.type
        self.precision = resolve_precision(precision, self.device, not is_static(model))
        self.prompts: dict[Role, str] = {role: prompt_for(model, role) for role in ROLES}

    def without_prompts(self) -> Encoder:
        """The same encoder without prompts."""
        plain = copy.copy(self)
        plain.prompts = dict.fromkeys(ROLES, "")
        return plain

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model, with the prompts that it holds."""
        return self._fingerprints[0]

    @property
    def _chunk(self) -> int:
        """Texts per call of the model, which sorts them by length before it cuts batches: what decides the bytes."""
        return self.batch_size * BATCHES_PER_CHUNK

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        return int(self.model.get_embedding_dimension())

    def encode(self, texts: list[str], role: Role) -> NDArray[np.float32]:
        """Encode a few texts: float32 ``[len(texts), dimension]``, rows of length 1.

        Raises:
            ModelError: if the model cannot encode a text, or an embedding holds a value that is no number.
        """
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        options = {"batch_size": self.batch_size, "show_progress_bar": False, "convert_to_numpy": True}
        try:
            with autocast(self.precision, self.device):
                raw = encode(texts, prompt=self.prompts[role], truncate_dim=None, **options)
        except (IndexError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise self._cannot_encode(error, texts, role) from error
        except Exception as error:
            if type(error) is not Exception:  # tokenizers knows no other
                raise
            raise self._cannot_encode(error, texts, role) from error
        embeddings = np.asarray(raw, dtype=np.float32)
        self._check_finite(embeddings, texts, role)
        lengths = np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
        return np.asarray(embeddings / lengths, dtype=np.float32)

    def encode_corpus(self, data: RetrievalData, corpus_text: CorpusText = "title_text") -> NDArray[np.float32]:
        """Encode the whole corpus, or read it from the cache: float32 ``[documents, dimension]``."""
        return self._encode_rows(data.corpus, None, "document", corpus_text, f"{data.fingerprint}/corpus")

    def encode_queries(self, data: RetrievalData, rows: IntArray) -> NDArray[np.float32]:
        """Encode some rows of the query table, or read them from the cache: float32 ``[len(rows), dimension]``."""
        return self._encode_rows(data.queries, rows, "query", "text", f"{data.fingerprint}/queries/{rows_digest(rows)}")

    def keeps(self, count: int) -> bool:
        """Whether the embeddings of that many documents are kept whole: in the cache, or in memory to be shared."""
        if self.use_cache:
            return True
        few = count * self.dimension * 4 < MEMORY_LIMIT
        return few and process_count() > 1 and lookup_of(self.model) is None

    def document_parts(
        self, data: RetrievalData, corpus_text: CorpusText, share: slice
    ) -> Iterator[NDArray[np.float32]]:
        """Encode a range of the corpus in this process alone, part by part, and keep nothing.

        The bytes are those of :meth:`encode_corpus`: where the range cuts a chunk, all of the chunk is encoded.
        """
        if lookup_of(self.model) is not None:
            for start in range(share.start, share.stop, CHUNK_ROWS):
                yield embed_rows(self.model, "document", np.arange(start, min(start + CHUNK_ROWS, share.stop)))
        elif share.stop > share.start:
            first = share.start // self._chunk * self._chunk
            stop = min(-(-share.stop // self._chunk) * self._chunk, len(data.corpus))
            texts = partial(data.corpus.texts, corpus_text=corpus_text)
            for part in self._parts(texts, "document", slice(first, stop)):
                yield part[max(0, share.start - first) : share.stop - first]
                first += len(part)

    def cached(self, kind: str, *key: str, write: Callable[[Path], object], roles: Iterable[Role] = ROLES) -> Path:
        """Return the folder of a cache entry that this model computed; ``write`` fills it where there is none.

        The entry depends on the prompts of ``roles`` alone, so that no other prompt of queries encodes documents again.
        All processes call this, and ``write``: see :func:`opera.core.processes.cached_by_all`.
        """
        prompts = [self.prompts[role] for role in roles]
        arithmetic = f"{self.precision} reproducible" if is_reproducible() else self.precision
        parts = (self._fingerprints[1], arithmetic, *prompts, *key)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return cached_by_all(kind, digest[:32], write)

    @cached_property
    def _fingerprints(self) -> tuple[str, str]:
        return fingerprints(self.model)

    def _encode_rows(
        self, table: TextTable, rows: IntArray | None, role: Role, corpus_text: CorpusText, key: str
    ) -> NDArray[np.float32]:
        if lookup_of(self.model) is not None:
            return embed_rows(self.model, role, rows)
        count = len(table) if rows is None else len(rows)
        parts = partial(self._parts, lambda part: table.texts(part if rows is None else rows[part], corpus_text), role)

        def write(folder: Path) -> None:
            save_shared_rows(folder / VECTORS_FILE, parts, count, self.dimension, self._chunk)

        if self.use_cache:
            home = self.cached("vectors", role, corpus_text, key, write=write, roles=[role])
            return np.asarray(np.load(home / VECTORS_FILE, mmap_mode="r"))
        return gather_rows(parts, count, self.dimension, self._chunk)

    def _parts(self, texts: Callable[[slice], list[str]], role: Role, share: slice) -> Iterator[NDArray[np.float32]]:
        """Yield the embeddings of a range of texts, which starts at a chunk, chunk by chunk."""
        unit, hidden = PLURALS[role], process_index() > 0 or not self._shows_progress
        with progress(f"encoding {unit}", share.stop - share.start, unit, hidden=hidden) as bar:
            counting = self.model[-1].register_forward_hook(lambda *called: bar.update(_batch_size(called[-1])))
            try:
                for start in range(share.start, share.stop, self._chunk):
                    yield self.encode(texts(slice(start, min(start + self._chunk, share.stop))), role)
            finally:
                counting.remove()

    def _cannot_encode(self, error: Exception, texts: list[str], role: Role) -> ModelError:
        reason = shortened((str(error).strip().splitlines() or [type(error).__name__])[0])
        which = f"the {role} {shown(texts[0])}" if len(texts) == 1 else f"one of {len(texts):,} {PLURALS[role]}"
        return ModelError(f"the model cannot encode {which}: {reason}; its files may not belong together")

    def _check_finite(self, embeddings: NDArray[np.float32], texts: list[str], role: Role) -> None:
        bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
        if bad.size:
            advice = "use precision=fp32, or another model" if self.precision == "fp16" else "use another model"
            raise ModelError(
                f"the model's embedding of the {role} {texts[bad[0]][:60]!r} holds values that are no numbers "
                f"({bad.size:,} of {len(texts):,} texts; precision {self.precision}); {advice}"
            )


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
    prompts: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
    set_prompts(loaded, query_prompt, document_prompt)
    if process_index() == 0 and not holds_run(Path(name)):
        decided = [role for role in ROLES if prompts[role] is not None]
        warn_of_missing_prompts(loaded.prompts, name, decided, as_option)
    return Encoder(loaded, precision)


def given_prompts(query: str | None, document: str | None) -> dict[str, Any]:
    """Check the prompts that a function was given, for :func:`open_encoder`.

    Raises:
        SettingError: for a prompt that is no text.
    """
    prompts = {"query_prompt": query, "document_prompt": document}
    given = {name: prompt for name, prompt in prompts.items() if prompt is not None}
    return EncodingSettings.parse(given).model_dump(exclude_unset=True)


def with_data_prompt(prompts: Mapping[str, Any], data: RetrievalData, model: str | Path) -> dict[str, Any]:
    """Add the query prompt that the data bring to those that the user gave, as a run on these data does.

    Args:
        prompts: those that the user gave, by the names of their settings.
        data: the data set.
        model: what the user passed; a run has decided on its prompts already.

    Raises:
        SettingError: for a prompt that no user could give.
    """
    if data.query_prompt is None or "query_prompt" in prompts or holds_run(Path(model)):
        return dict(prompts)
    if process_index() == 0:
        log.info("note: the data's query prompt %s is used; --query-prompt gives another", shown(data.query_prompt))
    return {**prompts, **given_prompts(data.query_prompt, None)}


def _batch_size(features: dict[str, Any]) -> int:
    """Texts of the batch that the model's last module has just put out."""
    return len(features["sentence_embedding"])


def rows_digest(rows: IntArray) -> str:
    """SHA-256 of row numbers, in hex."""
    return hashlib.sha256(np.asarray(rows, dtype=np.int64).tobytes()).hexdigest()
