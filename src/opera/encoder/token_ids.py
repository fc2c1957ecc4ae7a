"""Tokenise texts like sentence-transformers' ``preprocess``, but without padding."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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


def has_token_path(model: SentenceTransformer, task: Task | None = None, prompt: str = "") -> bool:
    """Whether the model needs only token ids, and :func:`token_ids` returns the right ones.

    This holds for static embeddings and for transformers with a fast tokenizer. It does not hold
    for chat templates, images, routers, query expansion, slow tokenizers, segments, or custom input
    modules. The function also compares the token ids of a few texts.
    """
    first: Any = model[0]
    if "preprocess" in vars(first) or type(model).preprocess is not SentenceTransformer.preprocess:
        return False
    if not all(type(module) in KNOWN_MODULES for module in list(model)[1:]):
        return False
    if type(first) is StaticEmbedding:
        return True
    if not _is_plain_transformer(first):
        return False
    features = model.preprocess(list(PROBES), prompt=prompt, task=task)
    if "token_type_ids" in features and not hasattr(first.config, "type_vocab_size"):
        return False  # GPT-2 adds the embedding of token 0 to each token
    expected = _library_ids(features)
    if expected is None:
        return False
    return all(map(np.array_equal, token_ids(model, PROBES, task, prompt), expected))


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
        model: a model with :func:`has_token_path`.
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
    length = _length(first, task)
    limit = {} if length is None else {"max_length": length}
    token_lists = first.processor(
        inputs,
        truncation="longest_first",
        return_attention_mask=False,
        return_token_type_ids=False,
        **limit,
    )["input_ids"]
    return [np.array(ids, dtype=np.int32) for ids in token_lists]


def prompt_length(model: SentenceTransformer, prompt: str) -> int | None:
    """Return the number of prompt tokens if the model's pooling excludes the prompt."""
    if not prompt or type(model[0]) is not Transformer:
        return None
    if all(getattr(module, "include_prompt", True) for module in model):
        return None
    length = model.preprocess([""], prompt=prompt).get("prompt_length")
    return None if length is None else int(length)


def vocabulary_size(model: SentenceTransformer) -> int:
    """Return the largest token id + 1. A vocabulary may have gaps, so it may have fewer tokens."""
    first: Any = model[0]
    tokenizer = first.tokenizer if type(first) is StaticEmbedding else first.processor
    return int(max(tokenizer.get_vocab().values(), default=-1)) + 1


def tokenisation_fingerprint(
    model: SentenceTransformer, task: Task | None = None, prompt: str = ""
) -> str:
    """Return a SHA-256 of the tokenizer, the prompt, the length and the truncation side, in hex.

    Training does not change it.
    """
    first: Any = model[0]
    options: list[Any] = []
    if type(first) is StaticEmbedding:
        state = json.loads(first.tokenizer.to_str())
    else:
        tokenizer = first.processor
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        state.update(truncation=None, padding=None)  # left from the last call
        length = _length(first, task) or tokenizer.model_max_length
        options += [length, tokenizer.truncation_side, tokenizer.split_special_tokens]
    text = json.dumps([state, options, prompt], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _length(first: Any, task: Task | None) -> int | None:
    return {"query": first.query_length, "document": first.document_length}[task] if task else None
