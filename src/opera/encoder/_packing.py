"""Pack texts into one sequence without padding, for models that can read packs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from opera.core.environment import is_plain
from opera.core.rng import generator
from opera.core.terminal import log
from opera.encoder._attention import NAME, HashedDropout
from opera.encoder._token_source import KNOWN_MODULES, TokenIds

BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
"""Names that transformers uses for the bounds of packed texts; only attention reads them."""
TOLERANCE = 1e-3
"""Largest difference between packed and padded unit embeddings in float32. Rounding is a thousand
times smaller; attention to another text, or a wrong position, is a hundred times larger."""

_in_use: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
"""Locks by model, because packing changes the model for all threads."""
_packs_exactly: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether packing leaves a transformer's embeddings unchanged."""


def packs(model: SentenceTransformer) -> bool:
    """Whether a model now reads texts without padding, by :func:`packing` or flash attention."""
    transformer = getattr(model[0], "auto_model", None)
    by_opera = transformer is not None and transformer.config._attn_implementation == NAME
    return by_opera or bool(getattr(model[0], "can_flatten_inputs", False))


@contextmanager
def packing(model: SentenceTransformer) -> Iterator[None]:
    """Let a transformer on a CPU use OPERA's dropout, and if it can, OPERA's attention.

    Embeddings change only by rounding, which a test with three texts checks once per model. Threads
    that share a model take turns. ``OPERA_PLAIN`` and ``OPERA_REPRODUCIBLE`` switch
    both off.
    """
    transformer = getattr(model[0], "auto_model", None)
    on_cpu = model.device.type == "cpu" and not is_plain()
    if not isinstance(transformer, PreTrainedModel) or not on_cpu:
        yield
        return
    with _in_use.setdefault(transformer, RLock()):
        if packs(model):
            yield
            return
        attention = transformer.config._attn_implementation
        dropouts = [module for module in model.modules() if type(module) is nn.Dropout]
        if _can_pack(model, transformer):
            transformer.set_attn_implementation(NAME)
        for module in dropouts:
            module.__class__ = HashedDropout
        try:
            yield
        finally:
            for module in dropouts:
                module.__class__ = nn.Dropout
            transformer.set_attn_implementation(attention)


def _can_pack(model: SentenceTransformer, transformer: PreTrainedModel) -> bool:
    eligible = _may_pack(model, transformer)
    if eligible and transformer not in _packs_exactly:
        _packs_exactly[transformer] = _compare(model, transformer)
    if not (eligible and _packs_exactly[transformer]):
        _log_padding(type(transformer).__name__)
        return False
    return True


@cache
def _log_padding(name: str) -> None:
    log.info("note: OPERA cannot pack the texts of %s, and pads them to the longest text", name)


def packed_features(model: SentenceTransformer, token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    """Return the features of packed texts, in the form that sentence-transformers uses for flash
    attention.

    Args:
        model: a model that packs.
        token_lists: token ids of each text, int32, not empty.
    """
    lengths = np.array([len(ids) for ids in token_lists], dtype=np.int64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    ids = np.concatenate(token_lists).astype(np.int64)
    text_numbers = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    offsets, longest = torch.from_numpy(bounds.astype(np.int32)), int(lengths.max())
    return {
        "input_ids": torch.from_numpy(ids)[None],
        "position_ids": torch.from_numpy(positions + _first_position(model))[None],
        "seq_idx": torch.from_numpy(text_numbers)[None],
        **dict(zip(BOUNDS, (offsets, offsets, longest, longest), strict=True)),
    }


def padded_features(model: SentenceTransformer, token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    """Return the features of padded texts, on the tokenizer's padding side.

    Raises:
        ValueError: if no text has a token.
    """
    if not any(map(len, token_lists)):
        raise ValueError("the texts have no tokens")
    tokenizer: Any = model[0].tokenizer
    texts = [torch.from_numpy(ids).long() for ids in token_lists]
    padded = partial(pad_sequence, batch_first=True, padding_side=tokenizer.padding_side)
    return {
        "input_ids": padded(texts, padding_value=tokenizer.pad_token_id),
        "attention_mask": padded([torch.ones_like(ids) for ids in texts]),
    }


def _may_pack(model: SentenceTransformer, transformer: PreTrainedModel) -> bool:
    """Whether a model is a plain transformer with torch's attention in every layer."""
    config = transformer.config
    kinds = getattr(config, "layer_types", None) or []
    return (
        type(model[0]) is Transformer
        and getattr(model[0], "backend", "torch") == "torch"
        and all(type(module) in KNOWN_MODULES for module in list(model)[1:])
        and config._attn_implementation == "sdpa"
        and transformer.is_backend_compatible()
        and not config.is_encoder_decoder
        and all(kind == "full_attention" for kind in kinds)
        and not getattr(config, "attn_logit_softcapping", None)
        and model[0].tokenizer is not None
        and transformer.dtype == torch.float32
    )


def _compare(model: SentenceTransformer, transformer: PreTrainedModel) -> bool:
    """Try three texts of different lengths, packed and padded, in float32."""
    known: set[str] | None = getattr(model[0], "model_forward_params", None)
    if known is not None:
        known.update(BOUNDS)
    words = generator(0, "packing", 0).integers(
        5, min(100, model[0].auto_model.config.vocab_size), size=24
    )
    texts = [part.astype(np.int32) for part in np.split(words, [3, 10])]
    was_training, attention = model.training, transformer.config._attn_implementation
    model.eval()
    transformer.set_attn_implementation(NAME)
    try:
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            packed, padded = (
                nn.functional.normalize(model(inputs)["sentence_embedding"].float(), dim=-1)
                for inputs in (packed_features(model, texts), padded_features(model, texts))
            )
    except (TypeError, ValueError, LookupError, RuntimeError, AttributeError):
        return False  # the model does not accept these features
    finally:
        transformer.set_attn_implementation(attention)
        model.train(was_training)
    return bool((packed - padded).abs().max() < TOLERANCE)


def _first_position(model: SentenceTransformer) -> int:
    """Return the position of a text's first token. RoBERTa counts from its padding position + 1."""
    for module in model[0].auto_model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(
            getattr(module, "position_embeddings", None), nn.Embedding
        ):
            return padding + 1
    return 0
