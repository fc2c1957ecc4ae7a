"""Embed the columns of a training batch: queries, positives, negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from opera.encoder.batches import token_batches
from opera.encoder.forward import embed_tokens, is_table, pays_for_padding
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


def embed_columns(
    model: nn.Module, columns: Sequence[Column], *, packs: bool = True
) -> list[Tensor]:
    """Embed columns of texts: a tensor ``[n, dimension]`` each, with gradients.

    A text that stands twice in the batch is embedded once. On a CPU texts of like length are embedded together, some
    thousand tokens at a time; on other devices all at once where texts are packed, and column by column elsewhere.

    Args:
        model: the model, or what wraps it for several processes.
        columns: the columns.
        packs: whether texts may be packed, with :func:`opera.encoder.packing.packing` open.
    """
    bare: SentenceTransformer = extract_model_from_parallel(model)
    padded = not packs or pays_for_padding(bare)
    if bare.device.type != "cpu" and padded:
        parts = [
            embed_tokens(bare, column.texts, column.prompt_length, packs=False, run=model)
            for column in columns
        ]
        return parts
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
    """Embed texts with their prompt's length, in batches: a tensor ``[n, dimension]``, in the order given."""
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
