"""Keeps the tokens of texts that a static model trains on, so that each text is tokenised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.retrieval.models import model_kind

MOST_TOKENS = 64_000_000
"""Tokens kept, 4 bytes each. Texts that come later are tokenised each time."""


@contextmanager
def tokens_kept(model: SentenceTransformer) -> Iterator[None]:
    """Keep tokens while a static model trains; other models tokenise as ever.

    A step of a static model is mostly tokenising. Its inputs are the same with and without this.
    """
    if model_kind(model) != "static":
        yield
        return
    first: Any = model[0]
    first.preprocess = TokenCache(first)
    try:
        yield
    finally:
        del first.preprocess  # the class's own shows again


class TokenCache:
    """Takes the place of ``StaticEmbedding.preprocess``.

    Args:
        module: the static embedding, for its tokenizer.
        most_tokens: how many tokens to keep.
    """

    def __init__(self, module: Any, most_tokens: int = MOST_TOKENS) -> None:
        self._module, self._room = module, most_tokens
        self._kept: dict[str, NDArray[np.int32]] = {}

    def __call__(self, inputs: Sequence[str], prompt: str | None = None, **unused: Any) -> dict[str, Tensor]:
        """Return ``input_ids``, int64, the tokens of all texts, and ``offsets``, int64, where each text starts."""
        texts = [f"{prompt}{text}" for text in inputs] if prompt else inputs
        absent = [text for text in dict.fromkeys(texts) if text not in self._kept]
        new = dict(zip(absent, self._tokenise(absent), strict=True))
        for text, tokens in new.items():
            if len(tokens) <= self._room:
                self._room -= len(tokens)
                self._kept[text] = tokens
        found = [self._kept[text] if text in self._kept else new[text] for text in texts]
        lengths = np.array([0, *(len(tokens) for tokens in found[:-1])], dtype=np.int64)
        joined = np.concatenate(found).astype(np.int64) if found else np.empty(0, np.int64)
        return {"input_ids": torch.from_numpy(joined), "offsets": torch.from_numpy(np.cumsum(lengths))}

    def _tokenise(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        encodings = self._module.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
