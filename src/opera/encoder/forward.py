"""A model's embeddings of token ids: of some texts, and of the columns of a training batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from opera.core.arrays import IntArray
from opera.encoder.packing import embedded, packed_features, packing, padded_features
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
    packs: bool = True,
    run: nn.Module | None = None,
) -> Tensor:
    """Embed texts that are token ids: a tensor ``[n, dimension]`` on the model's device, in the
    order given.

    Texts are packed where the model allows it (:func:`opera.encoder.packing.packing`, which a
    caller that goes backward keeps open until then), and padded to the longest elsewhere.

    Args:
        model: one with :func:`opera.encoder.token_ids.has_token_path`; gradients flow where they
            are on.
        token_lists: the ids of each text.
        prompt_length: tokens of the prompt, for a pooling that leaves it out.
        packs: whether texts may be packed.
        run: what to call in place of the model, such as one that wraps it for several processes.
    """
    if is_table(model) or not packs:
        return embedded(model, token_features(model, token_lists, prompt_length, packed=False), run)
    with packing(model) as packed:
        return embedded(
            model, token_features(model, token_lists, prompt_length, packed=packed), run
        )


def token_features(
    model: SentenceTransformer,
    token_lists: Sequence[TokenIds],
    prompt_length: int | None,
    *,
    packed: bool,
) -> dict[str, Any]:
    """Return what a model takes for some texts: packed or padded, or for a table of tokens one
    behind the other.
    """
    if is_table(model):
        return _table_features(token_lists)
    may_pack = packed and min(len(ids) for ids in token_lists) > 0
    features = (
        packed_features(model, token_lists) if may_pack else padded_features(model, token_lists)
    )
    return features if prompt_length is None else {**features, "prompt_length": prompt_length}


def pays_for_padding(model: SentenceTransformer) -> bool:
    """Whether the texts of a batch cost as much as its longest."""
    if is_table(model):
        return False
    with packing(model) as packed:
        return not packed


def is_table(model: SentenceTransformer) -> bool:
    """Whether a model looks each token up in a table, without any other layer before the mean."""
    return type(model[0]) is StaticEmbedding


def _table_features(token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    starts = np.cumsum([0, *(len(ids) for ids in token_lists[:-1])], dtype=np.int64)
    joined = np.concatenate(token_lists).astype(np.int64)
    return {"input_ids": torch.from_numpy(joined), "offsets": torch.from_numpy(starts)}


def embed_columns(
    model: nn.Module, columns: Sequence[Column], *, packs: bool = True
) -> list[Tensor]:
    """Embed columns of texts: a tensor ``[n, dimension]`` each, with gradients.

    A text that stands twice in the batch is embedded once. On a CPU texts of like length are
    embedded together, some thousand tokens at a time; on other devices all at once where texts are
    packed, and column by column elsewhere.

    Args:
        model: the model, or what wraps it for several processes.
        columns: the columns.
        packs: whether texts may be packed, with :func:`opera.encoder.packing.packing` open.
    """
    bare: SentenceTransformer = extract_model_from_parallel(model)
    padded = not packs or pays_for_padding(bare)
    if bare.device.type != "cpu" and padded:
        return [
            embed_tokens(bare, column.texts, column.prompt_length, packs=False, run=model)
            for column in columns
        ]
    numbers: dict[tuple[bytes, int | None], int] = {}
    places = [
        [numbers.setdefault(_key(ids, column), len(numbers)) for ids in column.texts]
        for column in columns
    ]
    texts = {key: ids for column in columns for ids in column.texts for key in [_key(ids, column)]}
    distinct = [(texts[key], key[1]) for key in numbers]
    embeddings = _embed(model, bare, distinct, padded=padded, packs=packs)
    return [embeddings[torch.tensor(column, device=embeddings.device)] for column in places]


def _embed(
    model: nn.Module,
    bare: SentenceTransformer,
    texts: Sequence[tuple[TokenIds, int | None]],
    *,
    padded: bool,
    packs: bool,
) -> Tensor:
    """Embed texts with their prompt's length, in batches: a tensor ``[n, dimension]``, in the order
    given.
    """
    most = TOKENS_AT_ONCE if bare.device.type == "cpu" and not is_table(bare) else 2**62
    order, parts = [], []
    for prompt_length in dict.fromkeys(length for _, length in texts):
        chosen = np.array([at for at, (_, length) in enumerate(texts) if length == prompt_length])
        lengths = np.array([len(texts[at][0]) for at in chosen])
        for batch in token_batches(lengths, most, padded):
            rows = chosen[batch]
            order.append(rows)
            lists = [texts[at][0] for at in rows]
            parts.append(embed_tokens(bare, lists, prompt_length, packs=packs, run=model))
    place = torch.from_numpy(np.argsort(np.concatenate(order)))
    joined = torch.cat(parts)
    return joined[place.to(joined.device)]


def _key(ids: TokenIds, column: Column) -> tuple[bytes, int | None]:
    return ids.tobytes(), column.prompt_length


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
