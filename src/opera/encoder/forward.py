"""A model's embeddings of token ids: of some texts, and of the columns of a training batch."""

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
from opera.encoder.packing import embedded, packed_features, packs, padded_features
from opera.encoder.token_ids import TokenIds

TOKENS_AT_ONCE = 8_192
"""Tokens of a forward pass on a CPU: more do not make products faster, and leave its caches."""


class Column(NamedTuple):
    """The texts of a column of a batch.

    Attributes:
        texts: token ids of each.
        prompt_length: tokens of the prompt, for a pooling that leaves it out.
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
    """Embed texts that are token ids: a tensor ``[n, dimension]``, in the order given.

    Args:
        model: one with :func:`opera.encoder.token_ids.has_token_path`; gradients flow where they
            are on.
        token_lists: the ids of each text.
        prompt_length: tokens of the prompt, for a pooling that leaves it out.
        packed: whether to pack them, which :func:`opera.encoder.packing.packs` allows now.
        run: what to call in place of the model, such as one that wraps it for several processes.
    """
    return embedded(model, token_features(model, token_lists, prompt_length, packed=packed), run)


def token_features(
    model: SentenceTransformer,
    token_lists: Sequence[TokenIds],
    prompt_length: int | None,
    *,
    packed: bool,
) -> dict[str, Any]:
    """Return what a model takes for some texts: packed, padded, or as a table of tokens reads."""
    if is_table(model):
        starts = np.cumsum([0, *(len(ids) for ids in token_lists[:-1])], dtype=np.int64)
        joined = np.concatenate(token_lists).astype(np.int64)
        return {"input_ids": torch.from_numpy(joined), "offsets": torch.from_numpy(starts)}
    may_pack = packed and min(map(len, token_lists)) > 0
    features = (packed_features if may_pack else padded_features)(model, token_lists)
    return features if prompt_length is None else {**features, "prompt_length": prompt_length}


def pads(model: SentenceTransformer) -> bool:
    """Whether the texts of a batch cost as much as its longest now."""
    return not (is_table(model) or packs(model))


def is_table(model: SentenceTransformer) -> bool:
    """Whether a model looks each token up in a table, without any other layer before the mean."""
    return type(model[0]) is StaticEmbedding


def embed_columns(
    model: nn.Module, columns: Sequence[Column], *, may_pack: bool = True
) -> list[Tensor]:
    """Embed columns of texts: a tensor ``[n, dimension]`` each, with gradients.

    A text that stands twice in the batch is embedded once. On a CPU texts of like length are
    embedded together, some thousand tokens at a time; on other devices all at once where texts are
    packed, and column by column elsewhere.

    Args:
        model: the model, or what wraps it for several processes.
        columns: the columns.
        may_pack: whether texts may be packed: not where the model is compiled.
    """
    bare: SentenceTransformer = extract_model_from_parallel(model, keep_torch_compile=False)
    on_cpu, padded = bare.device.type == "cpu", pads(bare) or not (may_pack or is_table(bare))
    embed = partial(embed_tokens, bare, packed=not padded, run=model)
    if padded and not on_cpu:
        return [embed(column.texts, column.prompt_length) for column in columns]
    most = TOKENS_AT_ONCE if on_cpu and not is_table(bare) else 2**62
    place: dict[tuple[int | None, bytes], int] = {}
    parts = []
    for prompt_length in dict.fromkeys(column.prompt_length for column in columns):
        alike = [column.texts for column in columns if column.prompt_length == prompt_length]
        texts = list({ids.tobytes(): ids for column in alike for ids in column}.values())
        for batch in token_batches(np.array(list(map(len, texts))), most, padded):
            chosen = [texts[number] for number in batch]
            place |= {
                (prompt_length, ids.tobytes()): len(place) + number
                for number, ids in enumerate(chosen)
            }
            parts.append(embed(chosen, prompt_length))
    joined = torch.cat(parts)
    rows = [
        [place[column.prompt_length, ids.tobytes()] for ids in column.texts] for column in columns
    ]
    return [joined[torch.tensor(of_column, device=joined.device)] for of_column in rows]


def token_batches(lengths: IntArray, most_tokens: int, padded: bool) -> list[NDArray[np.int64]]:
    """Cut texts into batches: the longest first, so that memory that does not suffice shows at
    once.

    Args:
        lengths: int ``[n]``, tokens of each text.
        most_tokens: per batch. A text that has more is a batch of its own.
        padded: whether each text of a batch costs as much as its longest.

    Returns:
        Numbers of texts, int64, one array per batch; texts of one length stand in their order.
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
            stop = min(stop, with_tokens)  # a pack has no place for a text without tokens
        batches.append(order[start:stop])
        start = stop
    return batches
