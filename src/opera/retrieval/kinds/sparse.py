"""Sparse models, such as SPLADE: a weight per word of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import (
    SparseEncoder,
    SparseEncoderTrainer,
    SparseEncoderTrainingArguments,
)
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import Tensor

from opera.core.arrays import IntArray
from opera.retrieval.kinds.base import KINDS, encode_by_library
from opera.retrieval.kinds.ragged import RaggedKind
from opera.retrieval.kinds.rows import WORD_BYTES, SparseRows
from opera.retrieval.kinds.splade import in_blocks
from opera.retrieval.prompts import Role


class Sparse(RaggedKind):
    """A text is a vector with few values that are not 0; the score of a pair is their product."""

    name, title = "sparse", "sparse model"
    model_class, arguments_class = SparseEncoder, SparseEncoderTrainingArguments
    trainer_class = SparseEncoderTrainer
    similarities = ("dot", "cosine")
    rows_class, has_penalty = SparseRows, True

    @staticmethod
    def complete(model: Any) -> None:
        """Set the number of words of SPLADE, which is part of its configuration."""
        for module in model:
            if isinstance(module, SpladePooling) and module.embedding_dimension is None:
                module.embedding_dimension = model[0].auto_model.config.vocab_size

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
        role: Role,
        prompt: str,
        batch_size: int,
    ) -> SparseRows:
        """Return the weights of words in texts."""
        options = {"convert_to_tensor": True, "convert_to_sparse_tensor": True, "save_to_cpu": True}
        with in_blocks(model):
            weights = encode_by_library(model, texts, role, prompt, batch_size, **options)
        entries = weights.coalesce()
        rows, words = entries.indices().numpy()
        shape = len(texts), int(weights.shape[1])
        values = entries.values().float().numpy()
        return SparseRows(csr_array((values, (rows, words.astype(np.int32))), shape=shape))

    @staticmethod
    def adds_head(folder: Path, architectures: Sequence[str]) -> bool:
        """Whether the model gets a sparse autoencoder; a masked language model needs none."""
        is_masked = any(name.endswith("ForMaskedLM") for name in architectures)
        return (folder / "modules.json").is_file() or not is_masked

    @staticmethod
    def counts(rows: SparseRows) -> NDArray[np.int64]:
        """Count the texts that have each word, and the texts."""
        with_word = np.bincount(rows.matrix.indices, minlength=rows.shape[1])
        return np.append(with_word, len(rows))

    @staticmethod
    def facts(queries: NDArray[np.int64], documents: NDArray[np.int64]) -> dict[str, float]:
        """Return the mean number of words per text, and FLOPS: the mean number of words that a
        query and a document share."""
        fractions = queries[:-1] / max(1, queries[-1]), documents[:-1] / max(1, documents[-1])
        of_query, of_document = (float(fraction.sum()) for fraction in fractions)
        return {
            "words per query": of_query,
            "words per document": of_document,
            "FLOPS": float(fractions[0] @ fractions[1]),
            "bytes per document": WORD_BYTES * of_document,
        }

    @staticmethod
    def normalise(rows: SparseRows) -> tuple[SparseRows, IntArray]:
        """Scale rows to length 1; a text without words keeps no weight."""
        return rows.normalised(), np.empty(0, dtype=np.int64)


KINDS[Sparse.name] = Sparse
