"""Which models read texts packed behind each other, without padding; and the features of a pack."""

from __future__ import annotations

import logging
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
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from opera.core.environment import is_reproducible
from opera.core.rng import generator
from opera.encoder.attention import NAME, HashedDropout
from opera.encoder.token_ids import TokenIds

log = logging.getLogger("opera")

BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")
"""What transformers calls the bounds of packed texts, for attention alone."""
READERS = ("Pooling", "Normalize", "Dense", "Dropout", "LayerNorm")
"""Modules of sentence-transformers that may follow the transformer: all but the first see whole
embeddings."""
TOLERANCE = 1e-3
"""Largest difference of a packed text's unit embedding in float32: rounding is a thousand times
smaller, a text that sees its neighbour or another position a hundred times larger."""

_in_use: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
"""Held by the thread that packs with a model: another would find it changed, or changed back."""
_packs_exactly: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether a model's embeddings of packed texts are those of padded ones, by its transformer."""


def packs(model: SentenceTransformer) -> bool:
    """Whether a model takes packed texts now: inside :func:`packing`, or by flash attention."""
    transformer = getattr(model[0], "auto_model", None)
    by_opera = transformer is not None and transformer.config._attn_implementation == NAME
    return by_opera or bool(getattr(model[0], "can_flatten_inputs", False))


@contextmanager
def packing(model: SentenceTransformer) -> Iterator[None]:
    """Inside, a transformer on a CPU runs OPERA's dropout, and its attention if it can be packed.

    Results are those of the model's own attention to rounding; that is tried once per model, with
    three texts. Threads that share a model take turns. ``OPERA_REPRODUCIBLE`` keeps to torch's own
    kernels.
    """
    transformer = getattr(model[0], "auto_model", None)
    on_cpu = model.device.type == "cpu" and not is_reproducible()
    if not isinstance(transformer, PreTrainedModel) or not on_cpu:
        yield
        return
    with _in_use.setdefault(transformer, RLock()):
        yield from _packing(model, transformer)


def _packing(model: SentenceTransformer, transformer: PreTrainedModel) -> Iterator[None]:
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
    may = _may_pack(model, transformer)
    if may and transformer not in _packs_exactly:
        _packs_exactly[transformer] = _compare(model, transformer)
    if not (may and _packs_exactly[transformer]):
        _say_that_it_pads(type(transformer).__name__)
        return False
    return True


@cache
def _say_that_it_pads(name: str) -> None:
    log.info("note: %s reads texts padded to the longest of a batch; OPERA cannot pack them", name)


def packed_features(model: SentenceTransformer, token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    """Return the features of texts behind each other, as sentence-transformers gives them to flash
    attention.

    Args:
        model: a model that packs.
        token_lists: token ids of each text, int32; none empty.
    """
    lengths = np.array([len(ids) for ids in token_lists], dtype=np.int64)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
    joined, text = (
        np.concatenate(token_lists).astype(np.int64),
        np.repeat(np.arange(len(lengths)), lengths),
    )
    cut, longest = torch.from_numpy(bounds.astype(np.int32)), int(lengths.max())
    return {
        "input_ids": torch.from_numpy(joined)[None],
        "position_ids": torch.from_numpy(places + _first_position(model))[None],
        "seq_idx": torch.from_numpy(text.astype(np.int32))[None],
        **dict(zip(BOUNDS, (cut, cut, longest, longest), strict=True)),
    }


def padded_features(model: SentenceTransformer, token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    """Return the features of texts padded to the longest, on the side that the model's tokenizer
    pads.

    Raises:
        ValueError: if no text has a token.
    """
    if not any(map(len, token_lists)):
        raise ValueError("texts without a single token")
    tokenizer: Any = model[0].tokenizer
    texts = [torch.from_numpy(ids).long() for ids in token_lists]
    padded = partial(pad_sequence, batch_first=True, padding_side=tokenizer.padding_side)
    return {
        "input_ids": padded(texts, padding_value=tokenizer.pad_token_id),
        "attention_mask": padded([torch.ones_like(ids) for ids in texts]),
    }


def _may_pack(model: SentenceTransformer, transformer: PreTrainedModel) -> bool:
    """Whether a model is of the kind that packs: a plain transformer with torch's attention in
    every layer.
    """
    config = transformer.config
    kinds = getattr(config, "layer_types", None) or []
    return (
        type(model[0]) is Transformer
        and getattr(model[0], "backend", "torch") == "torch"
        and all(type(module).__name__ in READERS for module in list(model)[1:])
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
    trained, attention = model.training, transformer.config._attn_implementation
    model.eval()
    transformer.set_attn_implementation(NAME)
    try:
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            packed, padded = (
                nn.functional.normalize(embedded(model, features(model, texts)).float(), dim=-1)
                for features in (packed_features, padded_features)
            )
    except (
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        RuntimeError,
        AttributeError,
    ):  # it takes no such features
        return False
    finally:
        transformer.set_attn_implementation(attention)
        model.train(trained)
    return bool((packed - padded).abs().max() < TOLERANCE)


def embedded(
    model: SentenceTransformer, features: dict[str, Any], run: nn.Module | None = None
) -> Tensor:
    """Run a model on its device, or ``run``, which wraps it: a tensor ``[n, dimension]``."""
    moved = {
        name: part.to(model.device) if isinstance(part, Tensor) else part
        for name, part in features.items()
    }
    embeddings: Tensor = (run or model)(moved)["sentence_embedding"]
    return embeddings


def _first_position(model: SentenceTransformer) -> int:
    """Position of a text's first token: RoBERTa's models count from behind the one of padding."""
    for module in model[0].auto_model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(
            getattr(module, "position_embeddings", None), nn.Embedding
        ):
            return padding + 1
    return 0
