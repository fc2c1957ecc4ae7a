"""Embed token ids: lists of texts, and the columns of a training batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from opera.core.arrays import IntArray
from opera.encoder.packing import packed_features, packs, padded_features
from opera.encoder.token_ids import TokenIds

TOKENS_AT_ONCE = 4_096
"""Tokens of a forward pass on a CPU. More exceed the processor's caches and are slower."""


class Column(NamedTuple):
    """The texts of a column of a batch.

    Attributes:
        texts: token ids of each text.
        prompt_length: tokens of the prompt, for a pooling that excludes the prompt.
    """

    texts: Sequence[TokenIds]
    prompt_length: int | None = None


def embed_tokens(
    model: SentenceTransformer,
    token_lists: Sequence[TokenIds],
    prompt_length: int | None = None,
    *,
    packed: bool = False,
    run: nn.Module | None = None,
) -> Tensor:
    """Embed texts from their token ids: a tensor ``[n, dimension]``.

    Args:
        model: a model with :func:`opera.encoder.token_ids.has_token_path`.
        token_lists: the ids of each text.
        prompt_length: tokens of the prompt, for a pooling that excludes the prompt.
        packed: whether to pack the texts; requires :func:`opera.encoder.packing.packs`.
        run: a wrapper to call instead of the model, such as for several processes.
    """
    features = token_features(model, token_lists, prompt_length, packed=packed)
    return (run or model)(features)["sentence_embedding"]


def token_features(
    model: SentenceTransformer,
    token_lists: Sequence[TokenIds],
    prompt_length: int | None,
    *,
    packed: bool,
) -> dict[str, Any]:
    """Return the model's inputs for texts, on its device: packed, padded, or for a static
    embedding."""
    if is_table(model):
        starts = np.cumsum([0, *(len(ids) for ids in token_lists[:-1])], dtype=np.int64)
        ids = torch.from_numpy(np.concatenate(token_lists).astype(np.int64))
        features: dict[str, Any] = {"input_ids": ids, "offsets": torch.from_numpy(starts)}
    elif packed and min(map(len, token_lists)) > 0:
        features = packed_features(model, token_lists)
    else:
        features = padded_features(model, token_lists)
    if prompt_length is not None:
        features["prompt_length"] = prompt_length
    return {
        name: value.to(model.device) if isinstance(value, Tensor) else value
        for name, value in features.items()
    }


def pads(model: SentenceTransformer) -> bool:
    """Whether the model pads the texts of a batch to the longest."""
    return not (is_table(model) or packs(model))


def is_table(model: SentenceTransformer) -> bool:
    """Whether a model is a static embedding: the mean of a table's rows."""
    return type(model[0]) is StaticEmbedding


def embed_columns(
    model: nn.Module, columns: Sequence[Column], *, may_pack: bool = True
) -> list[Tensor]:
    """Embed columns of texts: a tensor ``[n, dimension]`` per column, with gradients.

    Repeated texts are embedded once. On a CPU, a forward pass has texts of similar length and at
    most :data:`TOKENS_AT_ONCE` tokens. On other devices, one pass embeds all packed texts, or one
    column of padded texts.

    Args:
        model: the model, or its wrapper for several processes.
        columns: the columns.
        may_pack: whether texts may be packed; a compiled model does not allow it.
    """
    bare: SentenceTransformer = extract_model_from_parallel(model, keep_torch_compile=False)
    on_cpu, padded = bare.device.type == "cpu", pads(bare) or not (may_pack or is_table(bare))
    embed = partial(embed_tokens, bare, packed=not padded, run=model)
    if padded and not on_cpu:
        return [embed(column.texts, column.prompt_length) for column in columns]
    most = TOKENS_AT_ONCE if on_cpu and not is_table(bare) else 2**62
    row_of_text: dict[tuple[int | None, bytes], int] = {}
    parts = []
    for prompt_length in dict.fromkeys(column.prompt_length for column in columns):
        lists = [column.texts for column in columns if column.prompt_length == prompt_length]
        texts = list({ids.tobytes(): ids for token_lists in lists for ids in token_lists}.values())
        for batch in token_batches(np.array(list(map(len, texts))), most, padded):
            batch_texts = [texts[number] for number in batch]
            row_of_text |= {
                (prompt_length, ids.tobytes()): len(row_of_text) + number
                for number, ids in enumerate(batch_texts)
            }
            parts.append(embed(batch_texts, prompt_length))
    embeddings = torch.cat(parts)
    rows = [
        [row_of_text[column.prompt_length, ids.tobytes()] for ids in column.texts]
        for column in columns
    ]
    return [embeddings[torch.tensor(numbers, device=embeddings.device)] for numbers in rows]


def token_batches(lengths: IntArray, most_tokens: int, padded: bool) -> list[NDArray[np.int64]]:
    """Cut texts into batches, longest first, so that a lack of memory shows at once.

    Args:
        lengths: int ``[n]``, tokens of each text.
        most_tokens: per batch. A text with more tokens is a batch by itself.
        padded: whether a batch is padded to its longest text.

    Returns:
        Numbers of texts, an int64 array per batch. Texts of equal length keep their order.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    ordered = np.maximum(np.asarray(lengths, dtype=np.int64)[order], 1)
    total = np.concatenate([[0], np.cumsum(ordered)])
    with_tokens = int(np.count_nonzero(lengths))
    batches, start = [], 0
    while start < len(order):
        if padded:
            room = most_tokens // int(ordered[start])
        else:
            room = int(np.searchsorted(total, total[start] + most_tokens, side="right")) - 1 - start
        stop = start + max(1, room)
        if start < with_tokens:
            stop = min(stop, with_tokens)  # a pack cannot hold texts without tokens
        batches.append(order[start:stop])
        start = stop
    return batches
