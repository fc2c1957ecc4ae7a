"""Sparse models, such as SPLADE: a weight per word of the vocabulary."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import (
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder
from torch import Tensor

from opera.core.arrays import IntArray
from opera.retrieval.kinds.base import KINDS
from opera.retrieval.kinds.ragged import RaggedKind
from opera.retrieval.kinds.rows import SparseRows
from opera.retrieval.kinds.splade import in_blocks


class Sparse(RaggedKind):
    """A text is a vector with few values that are not 0; the score of a pair is their product."""

    name, title = "sparse", "sparse model"
    model_class, arguments_class = SparseEncoder, SparseEncoderTrainingArguments
    trainer_class = SparseEncoderTrainer
    similarities = ("dot", "cosine")
    rows_class = SparseRows

    @staticmethod
    def penalty(embeddings: Tensor) -> Tensor:
        """FLOPS: the sum over words of the squared mean weight (arXiv:2004.05665). A search
        multiplies about so many weights per query and document."""
        return (embeddings.abs().mean(0) ** 2).sum()

    @staticmethod
    def training(model: Any) -> AbstractContextManager[None]:
        """Compute the weights of SPLADE in blocks."""
        return in_blocks(model)

    @staticmethod
    def encode(
        model: Any,
        texts: list[str],
        role: Literal["query", "document"],
        prompt: str,
        batch_size: int,
    ) -> SparseRows:
        """Return the weights of words in texts."""
        encode = model.encode_query if role == "query" else model.encode_document
        with in_blocks(model):
            weights = encode(
                texts,
                prompt=prompt,
                batch_size=batch_size,
                show_progress_bar=False,
                convert_to_tensor=True,
                convert_to_sparse_tensor=True,
                save_to_cpu=True,
            )
        entries = weights.coalesce()
        rows, words = entries.indices().numpy()
        shape = len(texts), int(weights.shape[1])
        values = entries.values().float().numpy()
        return SparseRows(csr_array((values, (rows, words.astype(np.int32))), shape=shape))

    @staticmethod
    def has_head(model: Any, folder: Path) -> bool:
        """Whether the model has a sparse autoencoder; a masked language model needs none."""
        return any(isinstance(module, SparseAutoEncoder) for module in model)

    @staticmethod
    def normalise(rows: SparseRows) -> tuple[SparseRows, IntArray]:
        """Scale rows to length 1; a text without words keeps no weight."""
        return rows.normalised(), np.empty(0, dtype=np.int64)


KINDS[Sparse.name] = Sparse
