"""Tokenise texts like sentence-transformers, but without padding, and store the ids on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import (
    Dropout,
    LayerNorm,
    Normalize,
    Pooling,
    StaticEmbedding,
)
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from opera.core.arrays import IntArray
from opera.core.cache import entry
from opera.core.processes import cached_by_all, from_main, process_index
from opera.core.progress import progress
from opera.data import RetrievalData, TextTable
from opera.data.texts import CorpusText
from opera.identity.model import cache_key, reading, tokenizer_facts

Task = Literal["query", "document"]
TokenIds = NDArray[np.int32]
"""The ids of one text with special tokens: int32 ``[tokens]``."""

KNOWN_FEATURES = {"input_ids", "attention_mask", "token_type_ids", "modality", "prompt_length"}
"""Features that ``preprocess`` may return for a model that needs only token ids."""
KNOWN_MODULES = (Pooling, Normalize, Dense, Dropout, LayerNorm)
"""Modules that may follow the first: they treat texts separately, and do not depend on the task."""
PACKED_FEATURES = {
    "position_ids",
    "seq_idx",
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
}
"""Features instead of the mask if sentence-transformers packs texts for flash attention."""
PROBES = (
    "",
    "a",
    "Two words, and 3 more.",
    "ünïcode ß 中文 🙂",
    " spaces\tand\nlines ",
    "long " * 40,
)
"""Texts to compare OPERA's token ids with those of sentence-transformers."""


def _library_ids(features: dict[str, Any]) -> list[NDArray[np.int64]] | None:
    """Return the ids of each text in sentence-transformers' features; ``None`` if there are other
    inputs.
    """
    ids, packed = features.get("input_ids"), "cu_seq_lens_q" in features
    if ids is None or features.keys() - KNOWN_FEATURES - (PACKED_FEATURES if packed else set()):
        return None
    if "token_type_ids" in features and features["token_type_ids"].any():
        return None
    if packed:
        return np.split(ids[0].numpy(), features["cu_seq_lens_q"][1:-1].tolist())
    if "attention_mask" not in features:
        return None
    masks = features["attention_mask"].numpy().astype(bool)
    return [row[mask] for row, mask in zip(ids.numpy(), masks, strict=True)]


def _is_plain_transformer(first: Any) -> bool:
    return (
        type(first) is Transformer
        and isinstance(first.model, PreTrainedModel)  # ONNX graphs have other inputs
        and isinstance(first.processor, PreTrainedTokenizerFast)
        and first.modality_config.keys() == {"text"}
        and first.modality_config["text"]["method"] == "forward"
        and first.transformer_task == "feature-extraction"
        and first.query_expansion is None
        and not first.processing_kwargs
    )


def token_ids(
    model: SentenceTransformer, texts: Sequence[str], task: Task | None = None, prompt: str = ""
) -> list[TokenIds]:
    """Tokenise texts with their prompt and special tokens, cut to the length of the task.

    Args:
        model: a model with :attr:`TokenSource.suffices`.
        texts: the texts; the tokenizer works on them in parallel.
        task: ``query`` or ``document``, for its length; ``None`` for the model's limit.
        prompt: put before every text.

    Returns:
        An array per text. Static embeddings may have texts without tokens.
    """
    inputs = [f"{prompt}{text}" for text in texts]
    first: Any = model[0]
    if not inputs:
        return []
    if type(first) is StaticEmbedding:
        encodings = first.tokenizer.encode_batch_fast(inputs, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
    length = getattr(first, f"{task}_length", None)
    limit = {} if length is None else {"max_length": length}
    token_lists = first.processor(
        inputs,
        truncation="longest_first",
        return_attention_mask=False,
        return_token_type_ids=False,
        **limit,
    )["input_ids"]
    return [np.array(ids, dtype=np.int32) for ids in token_lists]


def _largest_id(model: SentenceTransformer) -> int:
    """Return the largest token id. A vocabulary may have gaps, so it may have fewer tokens."""
    first: Any = model[0]
    tokenizer = first.tokenizer if type(first) is StaticEmbedding else first.processor
    return int(max(tokenizer.get_vocab().values(), default=-1))


KIND, LAYOUT = "tokens", "4"
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

    @property
    def suffices(self) -> bool:
        """Whether the model needs only token ids, and :meth:`tokenise` returns the right ones.

        This holds for static embeddings and for transformers with a fast tokenizer. It does not
        hold for chat templates, images, routers, query expansion, slow tokenizers, segments, or
        custom input modules. OPERA also compares the token ids of a few texts.
        """
        first, kind = self.model[0], type(self.model)
        if "preprocess" in vars(first) or kind.preprocess is not SentenceTransformer.preprocess:
            return False
        if not all(type(module) in KNOWN_MODULES for module in list(self.model)[1:]):
            return False
        if type(first) is StaticEmbedding:
            return True
        if not _is_plain_transformer(first):
            return False
        features = self.model.preprocess(list(PROBES), prompt=self.prompt, task=self.task)
        if "token_type_ids" in features and not hasattr(first.config, "type_vocab_size"):
            return False  # GPT-2 adds the embedding of token 0 to each token
        expected = _library_ids(features)
        if expected is None:
            return False
        probes = token_ids(self.model, PROBES, self.task, self.prompt)
        return all(map(np.array_equal, probes, expected))

    @property
    def prompt_length(self) -> int | None:
        """The number of prompt tokens if the model's pooling excludes the prompt."""
        if not self.prompt or type(self.model[0]) is not Transformer:
            return None
        if all(getattr(module, "include_prompt", True) for module in self.model):
            return None
        length = self.model.preprocess([""], prompt=self.prompt).get("prompt_length")
        return None if length is None else int(length)

    def tokenise(self, rows: IntArray | slice) -> list[TokenIds]:
        """Return the ids of rows."""
        texts = self.table.texts(rows, self.corpus_text)
        return token_ids(self.model, texts, self.task, self.prompt)

    @property
    def key(self) -> str:
        """Digest of all that decides the ids: texts, tokenizer, prompt and length.

        Training does not change it.
        """
        first: Any = self.model[0]
        tokenizer = first.tokenizer if type(first) is StaticEmbedding else first.processor
        how = tokenizer_facts(tokenizer) + reading(self.model, self.task, self.prompt)
        return cache_key([LAYOUT, how, self.digest, self.corpus_text])

    def store(self, key: str, show_progress: bool = True) -> TokenStore:
        """Open the ids of all rows; the main process tokenises if the cache has none.

        All processes must call this. The ``key`` is :attr:`key`, which takes a tenth of a second to
        compute.
        """
        return TokenStore(
            cached_by_all(KIND, key, lambda folder, _: self._write(folder, show_progress))
        )

    def lookup(self, reads: int, show_progress: bool = True) -> Tokens:
        """Return a function from rows to token ids; all processes must call this.

        The function reads the stored ids of all rows. If none are stored yet, and the caller reads
        fewer than a tenth of the rows, the function tokenises the rows on demand.

        Args:
            reads: the number of rows that will be read, with repetitions.
            show_progress: whether to show the progress of tokenising all rows.
        """
        key, few = self.key, reads * 10 < len(self.table)
        if few and not from_main(process_index() == 0 and entry(KIND, key) is not None):
            return self.tokenise
        return self.store(key, show_progress).rows

    def _write(self, folder: Path, show_progress: bool) -> None:
        """Write the offset of each row, and the joined ids of all rows, in the main process."""
        if process_index() > 0:
            return
        unit = "queries" if self.task == "query" else "documents"
        dtype = np.uint16 if _largest_id(self.model) < 2**16 else np.int32  # half the disk
        rows, lengths = len(self.table), [np.zeros(1, dtype=np.int64)]
        with (
            (folder / IDS).open("wb") as file,
            progress(f"tokenising {unit}", rows, "texts", hidden=not show_progress) as bar,
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
            self._ids = np.memmap(ids, dtype, mode="r").view(np.ndarray)

    def rows(self, rows: IntArray) -> list[TokenIds]:
        """Return the ids of rows, in the order of ``rows``: int32 ``[tokens]`` per row."""
        starts, ends = self._offsets[rows].tolist(), self._offsets[np.asarray(rows) + 1].tolist()
        return [
            self._ids[start:end].astype(np.int32) for start, end in zip(starts, ends, strict=True)
        ]
