"""Dense models: one vector per text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

from opera.core.arrays import IntArray, normalise
from opera.data import TextTable
from opera.retrieval.kinds.base import KINDS, EncodingKind, encode_by_library
from opera.retrieval.nearest import NearestDocuments
from opera.retrieval.prompts import Role
from opera.retrieval.vectors import Embeddings, Shards, write_shard

FloatRows = NDArray[np.float32]


class Dense(EncodingKind):
    """A text is one vector; the score of a pair is their cosine, or the model's similarity."""

    name, title = "dense", "dense model"
    model_class, arguments_class = SentenceTransformer, SentenceTransformerTrainingArguments
    trainer_class = SentenceTransformerTrainer
    similarities = ("cosine", "dot", "euclidean", "manhattan")
    trained_similarity = "cosine"

    @staticmethod
    def encode(
        model: Any,
        texts: list[str],
        role: Role,
        prompt: str,
        batch_size: int,
    ) -> FloatRows:
        """Return the vectors of texts: float32 ``[texts, dimension]``."""
        size = len(texts) if is_static(model) else batch_size
        options = {"convert_to_numpy": True, "truncate_dim": None}
        raw = encode_by_library(model, texts, role, prompt, size, **options)
        dimension = int(model.get_embedding_dimension())
        return np.array(raw, dtype=np.float32).reshape(len(texts), dimension)

    @staticmethod
    def unusable(rows: FloatRows) -> IntArray:
        """Return the rows that hold NaN or infinite values."""
        return np.flatnonzero(~np.isfinite(rows).all(axis=1))

    @staticmethod
    def normalise(rows: FloatRows) -> tuple[FloatRows, IntArray]:
        """Scale rows to length 1, in place."""
        return rows, normalise(rows)

    @staticmethod
    def join(parts: Sequence[FloatRows]) -> FloatRows:
        """Return the rows of all parts."""
        return np.concatenate(parts)

    @staticmethod
    def write(path: Path, rows: FloatRows) -> None:
        """Write rows as a file."""
        write_shard(path, rows)

    @staticmethod
    def stored(folder: Path, shards: Shards) -> Embeddings:
        """Map the rows in a folder's files into memory."""
        return Embeddings(folder, shards)

    @staticmethod
    def nearest(
        queries: FloatRows,
        documents: TextTable,
        depth: int,
        device: str,
        similarity: str,
        doc_rows: Any,
    ) -> NearestDocuments:
        """Return a search."""
        return NearestDocuments(queries, documents, depth, device, similarity, doc_rows)


def reads_vectors(model: Any) -> bool:
    """Whether the model reads vectors by row number instead of texts, as an adapter does."""
    return type(model[0]).__name__ == "VectorLookup"


def is_static(model: Any) -> bool:
    """Whether the model starts with a table of tokens or vectors instead of a transformer."""
    return type(model[0]).__name__ == "StaticEmbedding" or reads_vectors(model)


KINDS[Dense.name] = Dense
