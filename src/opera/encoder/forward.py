"""A model's embeddings of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.encoder.token_ids import TokenIds


def embed_tokens(
    model: SentenceTransformer, token_lists: Sequence[TokenIds], prompt_length: int | None = None
) -> Tensor:
    """Embed texts that are token ids: a tensor ``[n, dimension]`` on the model's device, in the order given.

    Args:
        model: one with :func:`opera.encoder.token_ids.has_token_path`; gradients flow where they are on.
        token_lists: the ids of each text.
        prompt_length: tokens of the prompt, for a pooling that leaves it out.
    """
    first: Any = model[0]
    lengths = np.array([len(ids) for ids in token_lists], dtype=np.int64)
    if type(first).__name__ == "StaticEmbedding":
        joined = np.concatenate(token_lists).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths[:-1])])
        features: dict[str, Any] = {"input_ids": torch.from_numpy(joined), "offsets": torch.from_numpy(offsets)}
    else:
        tokenizer = first.processor
        padded = np.full((len(lengths), lengths.max()), tokenizer.pad_token_id, dtype=np.int64)
        mask = np.zeros(padded.shape, dtype=np.int64)
        for row, ids in enumerate(token_lists):
            part = slice(-len(ids), None) if tokenizer.padding_side == "left" else slice(len(ids))
            padded[row, part], mask[row, part] = ids, 1
        features = {"input_ids": torch.from_numpy(padded), "attention_mask": torch.from_numpy(mask), "modality": "text"}
        if prompt_length is not None:
            features["prompt_length"] = prompt_length
    moved = {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in features.items()}
    embeddings: Tensor = model(moved)["sentence_embedding"]
    return embeddings


def pays_for_padding(model: SentenceTransformer) -> bool:
    """Whether the texts of a batch cost as much as its longest."""
    return type(model[0]).__name__ != "StaticEmbedding"
