"""Multi-vector models, such as ColBERT: one vector per token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import (
    MultiVectorEncoder,
    MultiVectorEncoderTrainer,
    MultiVectorEncoderTrainingArguments,
)
from sentence_transformers.util import maxsim
from torch import Tensor
from torch.nn import functional as F

from opera.core.arrays import IntArray
from opera.core.files import read_text
from opera.retrieval.kinds.base import KINDS, encode_by_library
from opera.retrieval.kinds.candidates import nearest_tokens
from opera.retrieval.kinds.ragged import RaggedKind
from opera.retrieval.kinds.rows import TokenRows
from opera.retrieval.locate import has_token_projection
from opera.retrieval.prompts import Role


class MultiVector(RaggedKind):
    """A text is a vector per token; the score of a pair is MaxSim: each token of the query takes
    its best match."""

    name, title = "multi-vector", "multi-vector model"
    model_class, arguments_class = MultiVectorEncoder, MultiVectorEncoderTrainingArguments
    trainer_class = MultiVectorEncoderTrainer
    similarities = ("maxsim", "meanmaxsim")
    rows_class, most_rows, output = TokenRows, 1024, "token_embeddings"
    search = staticmethod(nearest_tokens)

    @classmethod
    def forward(cls, model: Any, features: dict[str, Any]) -> Tensor:
        """Return the vectors of tokens, float ``[m, tokens, dimension + 1]``; the last value is 0
        for tokens that do not count, else 1."""
        outputs = model(features, task=features.get("task"))
        mask = outputs["attention_mask"].to(outputs[cls.output].dtype)[..., None]
        return torch.cat([outputs[cls.output] * mask, mask], -1)

    @staticmethod
    def join_columns(columns: Sequence[Tensor]) -> Tensor:
        """Return several columns, padded to the same number of tokens."""
        longest = max(column.shape[1] for column in columns)
        padded = [F.pad(column, (0, 0, 0, longest - column.shape[1])) for column in columns]
        return torch.cat(padded)

    @staticmethod
    def compare(model: Any, queries: Tensor, documents: Tensor) -> Tensor:
        """Return MaxSim, or with ``meanmaxsim`` its mean over the tokens of a query."""
        scores = maxsim(
            queries[..., :-1],
            documents[..., :-1],
            queries[..., -1],
            documents[..., -1],
            length_normalize=model.similarity_fn_name == "meanmaxsim",
        )
        without_tokens = ~documents[..., -1].bool().any(1)
        return scores.masked_fill(without_tokens, 0)  # as in a search

    @staticmethod
    def encode(
        model: Any,
        texts: list[str],
        role: Role,
        prompt: str,
        batch_size: int,
    ) -> TokenRows:
        """Return the vectors of tokens. With ``meanmaxsim``, those of a query are divided by their
        number, so that MaxSim is the mean over its tokens."""
        how = role, prompt, batch_size
        of_texts = encode_by_library(model, texts, *how, convert_to_numpy=True)
        dimension = int(model.get_embedding_dimension())
        vectors = [of_text if len(of_text) else np.zeros((1, dimension)) for of_text in of_texts]
        counts = np.array([len(of_text) for of_text in vectors])
        joined = np.concatenate(vectors).astype(np.float32)
        if role == "query" and model.similarity_fn_name == "meanmaxsim":
            joined /= np.repeat(counts, counts)[:, None].astype(np.float32)
        return TokenRows(joined.astype(np.float16), np.cumsum([0, *counts]))

    @staticmethod
    def adds_head(folder: Path, architectures: Sequence[str]) -> bool:
        """Whether the model gets a projection to vectors of tokens."""
        modules = folder / "modules.json"
        has_projection = modules.is_file() and "Dense" in read_text(modules)
        return not (has_projection or has_token_projection(architectures))

    @staticmethod
    def counts(rows: TokenRows) -> NDArray[np.int64]:
        """Count the vectors, the bytes and the texts."""
        return np.array([len(rows.vectors), rows.vectors.nbytes, len(rows)])

    @staticmethod
    def facts(queries: NDArray[np.int64], documents: NDArray[np.int64]) -> dict[str, float]:
        """Return the mean number of vectors per text."""
        return {
            "vectors per query": float(queries[0] / max(1, queries[-1])),
            "vectors per document": float(documents[0] / max(1, documents[-1])),
            "bytes per document": float(documents[1] / max(1, documents[-1])),
        }

    @staticmethod
    def normalise(rows: TokenRows) -> tuple[TokenRows, IntArray]:
        """Return the rows: a model scales its vectors itself."""
        return rows, np.empty(0, dtype=np.int64)


KINDS[MultiVector.name] = MultiVector
