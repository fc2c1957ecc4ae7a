"""Embed token ids: lists of texts, and the columns of a training batch.

Texts are packed into one sequence without padding, for models that can read packs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from opera.core.processor import torch_computes_all
from opera.core.rng import generator
from opera.core.terminal import log
from opera.encoder._attention import NAME, HashedDropout
from opera.encoder._token_source import KNOWN_MODULES, TokenIds

TOKENS_AT_ONCE = 4_096
"""Tokens of a forward pass on a CPU. More exceed the processor's caches and are slower."""
NO_LIMIT = 2**62

Column = tuple[Sequence[TokenIds], int | None]
"""The token ids of the texts of a column of a batch, and the number of tokens of the prompt, if the
pooling excludes the prompt."""


class TokenModel:
    """A SentenceTransformer that embeds token ids instead of texts.

    Args:
        model: a model with :attr:`TokenSource.suffices`, or its wrapper for several processes.
        may_pack: whether texts may be packed; a compiled model does not allow it.
    """

    def __init__(self, model: nn.Module, *, may_pack: bool = True) -> None:
        self._wrapper, self._may_pack = model, may_pack
        self._model: SentenceTransformer = extract_model_from_parallel(
            model, keep_torch_compile=False
        )
        self._is_static = type(self._model[0]) is StaticEmbedding
        self._on_cpu = self._model.device.type == "cpu"

    def packing(self) -> AbstractContextManager[None]:
        """Use OPERA's dropout and attention in the block, if the model can."""
        return packing(self._model) if self._may_pack else nullcontext()

    @property
    def pads(self) -> bool:
        """Whether the model pads the texts of a batch to the longest."""
        return not (self._is_static or (self._may_pack and packs(self._model)))

    def features(self, texts: Sequence[TokenIds], prompt_length: int | None) -> dict[str, Any]:
        """Return the model's inputs for the texts of a column, on its device."""
        if self._is_static:
            starts = np.cumsum([0, *(len(ids) for ids in texts[:-1])], dtype=np.int64)
            ids = torch.from_numpy(np.concatenate(texts).astype(np.int64))
            features: dict[str, Any] = {"input_ids": ids, "offsets": torch.from_numpy(starts)}
        elif self.pads or min(map(len, texts)) == 0:
            features = padded_features(self._model, texts)
        else:
            features = packed_features(self._model, texts)
        if prompt_length is not None:
            features["prompt_length"] = prompt_length
        return {
            name: value.to(self._model.device) if isinstance(value, Tensor) else value
            for name, value in features.items()
        }

    def embed(
        self,
        texts: Sequence[TokenIds],
        prompt_length: int | None,
        most_tokens: int,
        done: Callable[[int], object],
    ) -> NDArray[np.float32]:
        """Embed texts without gradients: float32 ``[n, dimension]``.

        Args:
            texts: the token ids of each text.
            prompt_length: tokens of the prompt, for a pooling that excludes the prompt.
            most_tokens: most tokens of a forward pass; on a CPU at most :data:`TOKENS_AT_ONCE`.
            done: receives the number of texts of each pass.
        """
        dimension = int(self._model.get_embedding_dimension())
        embeddings = np.empty((len(texts), dimension), dtype=np.float32)
        self._model.eval()
        with torch.inference_mode(), self.packing():
            for batch in self._batches(texts, most_tokens):
                vectors = self._pass([texts[number] for number in batch.tolist()], prompt_length)
                # a model with truncate_dim uses only the first dimensions
                embeddings[batch] = vectors[:, :dimension].float().cpu().numpy()
                done(len(batch))
        return embeddings

    def embed_columns(self, columns: Sequence[Column]) -> list[Tensor]:
        """Embed columns of texts: a tensor ``[n, dimension]`` per column, with gradients.

        Repeated texts are embedded once. On a CPU, a forward pass has texts of similar length and
        at most :data:`TOKENS_AT_ONCE` tokens. On other devices, one pass embeds all packed texts,
        or one column of padded texts.
        """
        if self.pads and not self._on_cpu:
            return [self._pass(*column) for column in columns]
        ids_of_text = {
            (prompt_length, ids.tobytes()): ids for texts, prompt_length in columns for ids in texts
        }
        parts, row_of_text = [], dict[tuple[int | None, bytes], int]()
        for prompt_length in dict.fromkeys(prompt_length for _, prompt_length in columns):
            keys = [key for key in ids_of_text if key[0] == prompt_length]
            texts = [ids_of_text[key] for key in keys]
            for batch in self._batches(texts, NO_LIMIT):
                for number in batch:
                    row_of_text[keys[number]] = len(row_of_text)
                parts.append(self._pass([texts[number] for number in batch], prompt_length))
        embeddings = torch.cat(parts)
        rows = [
            [row_of_text[prompt_length, ids.tobytes()] for ids in texts]
            for texts, prompt_length in columns
        ]
        return [embeddings[torch.tensor(numbers, device=embeddings.device)] for numbers in rows]

    def _pass(self, texts: Sequence[TokenIds], prompt_length: int | None) -> Tensor:
        """Embed texts in one forward pass: a tensor ``[n, dimension]``."""
        return self._wrapper(self.features(texts, prompt_length))["sentence_embedding"]

    def _batches(self, texts: Sequence[TokenIds], most_tokens: int) -> list[NDArray[np.int64]]:
        if self._on_cpu and not self._is_static:
            most_tokens = min(most_tokens, TOKENS_AT_ONCE)
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        return token_batches(lengths, most_tokens, self.pads)


def token_batches(
    lengths: NDArray[np.int64], most_tokens: int, padded: bool
) -> list[NDArray[np.int64]]:
    """Cut texts into batches, longest first, so that a lack of memory shows at once.

    Args:
        lengths: int64 ``[n]``, tokens of each text.
        most_tokens: per batch. A text with more tokens is a batch by itself.
        padded: whether a batch is padded to its longest text.

    Returns:
        Numbers of texts, an int64 array per batch. Texts of equal length keep their order.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = np.maximum(lengths[order], 1)
    total = np.concatenate([[0], np.cumsum(ordered)])
    batches, start = [], 0
    while start < len(order):
        if padded:
            room = most_tokens // int(ordered[start])
        else:
            room = int(np.searchsorted(total, total[start] + most_tokens, side="right")) - 1 - start
        stop = start + max(1, room)
        batches.append(order[start:stop])
        start = stop
    return batches


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
    that share a model take turns. ``OPERA_PLAIN``, ``OPERA_REPRODUCIBLE`` and an unknown processor
    switch both off.
    """
    transformer = getattr(model[0], "auto_model", None)
    on_cpu = model.device.type == "cpu" and not torch_computes_all()
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
    texts = [text.astype(np.int32) for text in np.split(words, [3, 10])]
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
