"""A model's embeddings of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.encoder.packing import embedded, packed_features, packing, padded_features
from opera.encoder.token_ids import TokenIds


def embed_tokens(
    model: SentenceTransformer, token_lists: Sequence[TokenIds], prompt_length: int | None = None
) -> Tensor:
    """Embed texts that are token ids: a tensor ``[n, dimension]`` on the model's device, in the order given.

    Texts are packed where the model allows it (:func:`opera.encoder.packing.packing`, which a caller that goes backward
    keeps open until then), and padded to the longest elsewhere.

    Args:
        model: one with :func:`opera.encoder.token_ids.has_token_path`; gradients flow where they are on.
        token_lists: the ids of each text.
        prompt_length: tokens of the prompt, for a pooling that leaves it out.
    """
    if is_table(model):
        return embedded(model, _table_features(token_lists))
    with packing(model) as packed:
        if packed and min(len(ids) for ids in token_lists) == 0:
            packed = False
        features = (packed_features if packed else padded_features)(model, token_lists)
        if prompt_length is not None:
            features["prompt_length"] = prompt_length
        return embedded(model, features)


def pays_for_padding(model: SentenceTransformer) -> bool:
    """Whether the texts of a batch cost as much as its longest."""
    if is_table(model):
        return False
    with packing(model) as packed:
        return not packed


def is_table(model: SentenceTransformer) -> bool:
    """Whether a model looks each token up in a table, without any other layer before the mean."""
    return type(model[0]).__name__ == "StaticEmbedding"


def _table_features(token_lists: Sequence[TokenIds]) -> dict[str, Any]:
    lengths = [len(ids) for ids in token_lists]
    joined = np.concatenate(token_lists).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64)
    return {"input_ids": torch.from_numpy(joined), "offsets": torch.from_numpy(starts)}
