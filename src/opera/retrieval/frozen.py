"""Vectors that are computed once and never trained, and the module that looks them up for a model trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from opera.core.arrays import IntArray, normalise
from opera.core.errors import ModelError
from opera.encoder.embeddings import Vectors

CHUNK_ROWS = 65_536


@dataclass(frozen=True)
class FrozenVectors:
    """The vectors of a data set's texts, by row of its tables.

    Attributes:
        queries: float32 ``[queries, dimension]``, rows of length 1; may be memory-mapped.
        documents: float32 ``[documents, dimension]``, likewise.
    """

    queries: Vectors
    documents: Vectors

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.documents.shape[1])

    def of(self, role: str | None) -> Vectors:
        """Return the queries for the role ``query``, the documents for any other."""
        return self.queries if role == "query" else self.documents


class VectorLookup(InputModule):  # type: ignore[misc]
    """Reads row numbers, written as texts, and returns their frozen vectors.

    The vectors are neither parameters nor buffers: no checkpoint stores them, and a step reads its own rows only.

    Args:
        dimension: length of a vector.
        digest: SHA-256 of what the vectors were read from, for the model's fingerprint.

    Attributes:
        vectors: the vectors; ``None`` until they are known.
    """

    config_keys: ClassVar = ["dimension", "digest"]
    save_in_root = False

    def __init__(self, dimension: int, digest: str = "") -> None:
        super().__init__()
        self.dimension, self.digest = dimension, digest
        self.vectors: FrozenVectors | None = None

    def preprocess(
        self,
        inputs: Sequence[str],
        prompt: str | None = None,
        task: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Gather the vectors of some rows: ``{"sentence_embedding": float32 [rows, dimension]}``."""
        if self.vectors is None:
            raise RuntimeError("the vectors are not there yet")
        rows = np.fromiter(map(int, inputs), np.int64, len(inputs))
        return {"sentence_embedding": torch.from_numpy(self.vectors.of(task)[rows])}

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Pass the vectors on."""
        return features

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return self.dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration, without the vectors."""
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> Self:
        """Read the configuration; the vectors stay unknown."""
        return cls(**cls.load_config(model_name_or_path, kwargs.get("subfolder", "")))


def lookup_of(model: SentenceTransformer) -> VectorLookup | None:
    """Return the lookup of a model that trains on frozen vectors; ``None`` for a model that reads texts."""
    return model[0] if isinstance(model[0], VectorLookup) else None


def set_vectors(model: SentenceTransformer, vectors: FrozenVectors) -> None:
    """Give a model's lookup its vectors."""
    lookup = lookup_of(model)
    if lookup is None:
        raise TypeError("the model reads texts: it has no lookup")
    lookup.vectors = vectors


def embed_rows(model: SentenceTransformer, role: str, rows: IntArray | None) -> Vectors:
    """Embed rows of a table, default all, with a model that trains on frozen vectors.

    Returns:
        float32 ``[rows, dimension]``, of length 1. For a role that has nothing to train, the frozen vectors themselves.

    Raises:
        ModelError: if a vector holds a value that is no number.
    """
    lookup = lookup_of(model)
    if lookup is None or lookup.vectors is None:
        raise RuntimeError("the vectors are not there yet")
    frozen = lookup.vectors.of(role)
    count = len(frozen) if rows is None else len(rows)
    if not has_parameters(model, role):
        return frozen if rows is None else np.asarray(frozen[rows])
    embeddings = np.empty((count, lookup.dimension), dtype=np.float32)
    for start in range(0, count, CHUNK_ROWS):
        part = slice(start, min(start + CHUNK_ROWS, count))
        chunk = torch.from_numpy(np.array(frozen[part if rows is None else rows[part]])).to(
            model.device
        )
        with torch.inference_mode():
            moved = model({"sentence_embedding": chunk, "task": role})["sentence_embedding"]
        embeddings[part] = moved.float().cpu().numpy()
    if not np.isfinite(embeddings).all() or normalise(embeddings).size:
        raise ModelError(
            f"the adapter's {role} vectors hold values that are no numbers; train it with a lower --lr"
        )
    return embeddings


def has_parameters(model: SentenceTransformer, role: str) -> bool:
    """Whether anything that a role's embeddings pass through has parameters."""
    parts = (
        module.sub_modules[role] if hasattr(module, "sub_modules") else module for module in model
    )
    return any(True for part in parts for _ in part.parameters())
