"""A model's embeddings of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from opera.encoder.packing import embedded, packed_features, packing, padded_features
from opera.encoder.token_ids import TokenIds


def embed_tokens(
    model: SentenceTransformer,
    token_lists: Sequence[TokenIds],
    prompt_length: int | None = None,
    *,
    packs: bool = True,
    run: nn.Module | None = None,
) -> Tensor:
    """Embed texts that are token ids: a tensor ``[n, dimension]`` on the model's device, in the order given.

    Texts are packed where the model allows it (:func:`opera.encoder.packing.packing`, which a caller that goes backward
    keeps open until then), and padded to the longest elsewhere.

    Args:
        model: one with :func:`opera.encoder.token_ids.has_token_path`; gradients flow where they are on.
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
    """Return what a model takes for some texts: packed or padded, or for a table of tokens one behind the other."""
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
