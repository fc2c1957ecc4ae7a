"""Embed token ids: lists of texts, and the columns of a training batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from opera.encoder._packing import packed_features, packing, packs, padded_features
from opera.encoder._token_source import TokenIds

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
