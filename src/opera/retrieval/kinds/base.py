"""What every kind of model must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.trainer import BaseTrainer
from sentence_transformers.base.training_args import BaseTrainingArguments
from torch import Tensor

from opera.core.arrays import IntArray
from opera.core.errors import ModelError
from opera.core.terminal import shown
from opera.data import TextTable
from opera.retrieval.locate import model_type_in
from opera.retrieval.nearest import BestDocuments
from opera.retrieval.prompts import Role
from opera.retrieval.vectors import MOST_ROWS, SUFFIX, Shards

KindName = Literal["dense", "sparse", "multi-vector", "reranker"]


class Kind(ABC):
    """A kind of model. All members belong to the class: a kind has no state.

    Attributes:
        name: the value of ``--kind``.
        title: in messages, without an article.
        model_class: the class of its models.
        arguments_class: the class of its trainer's arguments.
        trainer_class: the class of its trainer.
    """

    name: ClassVar[KindName]
    title: ClassVar[str]
    model_class: ClassVar[type[BaseModel]]
    arguments_class: ClassVar[type[BaseTrainingArguments]]
    trainer_class: ClassVar[type[BaseTrainer]]


class EncodingKind(Kind):
    """A kind that encodes queries and documents apart.

    The embeddings of texts are *rows*: an array, or :class:`opera.retrieval.kinds.rows.Rows`.

    Attributes:
        suffix: of the files of embeddings on disk.
        most_rows: the most texts in a file.
        similarities: the similarities of models that OPERA can search.
        trained_similarity: the similarity of training; ``None`` for the model's.
        has_penalty: whether the loss has a :meth:`penalty`.
        output: the name of the embeddings in what a forward pass returns.
    """

    suffix: ClassVar[str] = SUFFIX
    most_rows: ClassVar[int] = MOST_ROWS
    similarities: ClassVar[tuple[str, ...]]
    trained_similarity: ClassVar[str | None] = None
    has_penalty: ClassVar[bool] = False
    output: ClassVar[str] = "sentence_embedding"

    @staticmethod
    def complete(model: Any) -> None:
        """Set what a loaded model otherwise finds out when it first encodes a text."""

    @classmethod
    def forward(cls, model: Any, features: dict[str, Any]) -> Tensor:
        """Return the embeddings of a column of a training batch, float ``[m, ...]``."""
        embeddings: Tensor = model(features)[cls.output]
        return embeddings

    @staticmethod
    def join_columns(columns: Sequence[Tensor]) -> Tensor:
        """Return the embeddings of several columns of a batch, one after the other."""
        return torch.cat(list(columns))

    @staticmethod
    def compare(model: Any, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the similarity of each query and document of a batch: float ``[m, M]``."""
        similarity: Tensor = model.similarity(queries, documents)
        return similarity

    @staticmethod
    def penalty(embeddings: Tensor) -> Tensor:
        """Return what training keeps small in the embeddings of a batch, if :attr:`has_penalty`."""
        raise NotImplementedError

    @staticmethod
    def training(model: Any) -> AbstractContextManager[None]:
        """Let a model train faster in the block, if it can."""
        return nullcontext()

    @staticmethod
    @abstractmethod
    def encode(
        model: Any,
        texts: list[str],
        role: Role,
        prompt: str,
        batch_size: int,
    ) -> Any:
        """Return the rows of texts."""

    @staticmethod
    def adds_head(folder: Path, architectures: Sequence[str]) -> bool:
        """Whether the kind adds weights that only training sets to a model of another kind.

        Args:
            folder: of the model.
            architectures: of its transformer, as its ``config.json`` names them.
        """
        return False

    @staticmethod
    def counts(rows: Any) -> NDArray[np.int64]:
        """Count what an index stores for rows; the counts of several rows are added."""
        return np.zeros(0, dtype=np.int64)

    @staticmethod
    def facts(queries: NDArray[np.int64], documents: NDArray[np.int64]) -> dict[str, float]:
        """Describe the size of an index by the :meth:`counts` of queries and documents."""
        return {}

    @staticmethod
    @abstractmethod
    def unusable(rows: Any) -> IntArray:
        """Return the rows that hold NaN or infinite values."""

    @staticmethod
    @abstractmethod
    def normalise(rows: Any) -> tuple[Any, IntArray]:
        """Scale rows to length 1. Return them, and those that cannot be scaled."""

    @staticmethod
    @abstractmethod
    def join(parts: Sequence[Any]) -> Any:
        """Return the rows of all parts, one after the other."""

    @staticmethod
    @abstractmethod
    def write(path: Path, rows: Any) -> None:
        """Write rows as a file, which gets its final name when it is complete."""

    @staticmethod
    @abstractmethod
    def stored(folder: Path, shards: Shards) -> Any:
        """Map the rows in a folder's files into memory."""

    @staticmethod
    @abstractmethod
    def nearest(
        queries: Any,
        documents: TextTable,
        depth: int,
        device: str,
        similarity: str,
        doc_rows: Any,
    ) -> BestDocuments:
        """Return a search; the arguments are those of
        :class:`opera.retrieval.nearest.NearestDocuments`."""


def encode_by_library(
    model: Any, texts: list[str], role: Role, prompt: str, batch_size: int, **options: Any
) -> Any:
    """Let sentence-transformers encode texts as queries or as documents."""
    encode = model.encode_query if role == "query" else model.encode_document
    return encode(texts, prompt=prompt, batch_size=batch_size, show_progress_bar=False, **options)


KINDS: dict[KindName, type[Kind]] = {}
"""The kinds by name."""


def kind_of(model: Any) -> type[Kind]:
    """Return the kind of a loaded model.

    Raises:
        ModelError: if no kind has this class of models.
    """
    for kind in KINDS.values():
        if isinstance(model, kind.model_class):
            return kind
    classes = ", ".join(kind.model_class.__name__ for kind in KINDS.values())
    raise ModelError(f"model: must be one of {classes}, got {shown(type(model).__name__)}")


def encoding_kind_of(model: Any) -> type[EncodingKind]:
    """Return the kind of a loaded model that encodes texts.

    Raises:
        ModelError: for another model.
    """
    return _encoding(kind_of(model), "model")


def encoding_kind_in(folder: Path) -> type[EncodingKind]:
    """Return the kind of the model in a folder, which must encode texts.

    Raises:
        ModelError, OSError, ValueError: as for :func:`kind_in`, and for a reranker.
    """
    return _encoding(kind_in(folder), str(folder))


def _encoding(kind: type[Kind], title: str) -> type[EncodingKind]:
    if not issubclass(kind, EncodingKind):
        raise ModelError(
            f"{title}: is a {kind.title}; pass it with --reranker to a command that has this option"
        )
    return kind


def kind_in(folder: Path) -> type[Kind]:
    """Return the kind of the model in a folder: that of ``model_type``, else dense.

    Raises:
        ModelError: for an unknown type.
        OSError, ValueError: if the file cannot be read.
    """
    model_type = model_type_in(folder)
    for kind in KINDS.values():
        if kind.model_class.__name__ == model_type:
            return kind
    raise ModelError(
        f"{folder}: model_type: must be a model of sentence-transformers, got {shown(model_type)}"
    )
