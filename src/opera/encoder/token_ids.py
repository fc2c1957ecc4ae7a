"""Token ids of texts, as sentence-transformers' ``preprocess`` makes them, without padding."""

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
"""The ids of one text, special tokens included: int32 ``[tokens]``."""

KNOWN_FEATURES = {"input_ids", "attention_mask", "token_type_ids", "modality", "prompt_length"}
"""What ``preprocess`` may return of a model whose token ids say everything."""
KNOWN_MODULES = (Pooling, Normalize, Dense, Dropout, LayerNorm)
"""What may follow the first module: each text by itself, whatever the task."""
PACKED_FEATURES = {
    "position_ids",
    "seq_idx",
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
}
"""What it returns besides, and in place of the mask, where the library packs texts for flash
attention."""
PROBES = (
    "",
    "a",
    "Two words, and 3 more.",
    "ünïcode ß 中文 🙂",
    " spaces\tand\nlines ",
    "long " * 40,
)
"""Texts that are read both ways before the short way to their token ids is trusted."""


def has_token_path(model: SentenceTransformer, task: Task | None = None, prompt: str = "") -> bool:
    """Whether token ids alone say how the model reads texts, and :func:`token_ids` makes the same
    ones.

    That holds for a transformer with a fast tokenizer and for a static embedding. It does not for
    chat templates, for images, routers, query expansion, slow tokenizers, segments, or an input
    module of somebody's own. A few texts are tokenised both ways, so that no tokenizer is trusted
    by its name.
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
    """The ids of each text among the library's features; ``None`` if there is more to a text than
    ids.
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
    return [
        row[real]
        for row, real in zip(
            ids.numpy(), features["attention_mask"].numpy().astype(bool), strict=True
        )
    ]


def _is_plain_transformer(first: Any) -> bool:
    return (
        type(first) is Transformer
        and isinstance(first.model, PreTrainedModel)  # not ONNX, whose graph has inputs of its own
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
    """Tokenise texts: the prompt in front, cut at the length of the task, with the model's special
    tokens.

    Args:
        model: one with :func:`has_token_path`.
        texts: what to tokenise, all at once; the tokenizer uses threads of its own.
        task: ``query`` or ``document`` for the length that the model keeps for it; ``None`` for its
            own limit.
        prompt: text before each.

    Returns:
        One array per text. A static embedding's may be empty.
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
    """How many tokens a prompt has, for models whose pooling leaves it out; ``None`` without one,
    or if none asks.
    """
    if not prompt or type(model[0]) is not Transformer:
        return None
    if all(getattr(module, "include_prompt", True) for module in model):
        return None
    length = model.preprocess([""], prompt=prompt).get("prompt_length")
    return None if length is None else int(length)


def vocabulary_size(model: SentenceTransformer) -> int:
    """One more than the largest token id, which may be more than there are tokens: a vocabulary may
    have gaps.
    """
    first: Any = model[0]
    tokenizer = first.tokenizer if type(first) is StaticEmbedding else first.processor
    return int(max(tokenizer.get_vocab().values(), default=-1)) + 1


def tokenisation_fingerprint(
    model: SentenceTransformer, task: Task | None = None, prompt: str = ""
) -> str:
    """SHA-256 of all that decides the ids of a text, in hex. Weights are not part of it, so
    training changes nothing.

    It changes with the tokenizer, the prompt, the length and the side that is cut.
    """
    first: Any = model[0]
    rest: list[Any] = []
    if type(first) is StaticEmbedding:
        known = json.loads(first.tokenizer.to_str())
    else:
        tokenizer = first.processor
        known = json.loads(tokenizer.backend_tokenizer.to_str())
        known.update(truncation=None, padding=None)  # those of the last call
        length = _length(first, task) or tokenizer.model_max_length
        rest += [length, tokenizer.truncation_side, tokenizer.split_special_tokens]
    return hashlib.sha256(json.dumps([known, rest, prompt], sort_keys=True).encode()).hexdigest()


def _length(first: Any, task: Task | None) -> int | None:
    return {"query": first.query_length, "document": first.document_length}[task] if task else None
