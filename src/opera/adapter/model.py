"""An adapter as a sentence-transformers model: a module reads vectors, a Dense moves them."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule, Normalize, Router
from torch import Tensor, nn

from opera.adapter import save
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import reads_vectors
from opera.retrieval.prompts import ROLES, Role

Modules = dict[Role, list[Any]]


@dataclass(frozen=True)
class FrozenVectors:
    """The vectors of a data set's texts, by row of its tables.

    Attributes:
        queries: float32 ``[queries, dimension]``, rows of length 1: an array, shards on disk, or a
            file of vectors, which give those of some rows.
        documents: float32 ``[documents, dimension]``, in the same way.
    """

    queries: Any
    documents: Any


class VectorLookup(InputModule):  # type: ignore[misc]
    """Reads row numbers, written as texts, and returns their vectors.

    The vectors are neither parameters nor buffers: no checkpoint stores them, and a step reads its
    own rows only.

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
        """Gather the vectors of some rows: float32 ``[rows, dimension]``, one sentence each."""
        if self.vectors is None:
            raise RuntimeError("the vectors are not there yet")
        vectors = self.vectors.queries if task == "query" else self.vectors.documents
        return {"sentence_embedding": torch.from_numpy(vectors[np.array(inputs, dtype=np.int64)])}

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Pass the vectors on."""
        return features

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return self.dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration, without the vectors."""
        self.save_config(output_path)


def adapter_model(dimension: int, kind: str, device: str) -> SentenceTransformer:
    """Make the model that trains: a lookup, then I + W for queries, or with ``both`` each side."""
    sides = ROLES if kind == "both" else ROLES[:1]
    start = {"activation_function": nn.Identity(), "init_weight": torch.eye(dimension)}
    dense: Modules = {side: [Dense(dimension, dimension, bias=False, **start)] for side in sides}
    return vector_model(VectorLookup(dimension), _router(dense), device=device)


def vector_model(*modules: nn.Module, device: str) -> SentenceTransformer:
    """Make a model whose first module looks vectors up."""
    model = SentenceTransformer(modules=list(modules), device=device)
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model


def set_vectors(model: SentenceTransformer, vectors: FrozenVectors) -> None:
    """Give a model's lookup its vectors."""
    model[0].vectors = vectors


def encode_all(encoder: Encoder, data: RetrievalData, corpus_text: CorpusText) -> FrozenVectors:
    """Encode every text of a data set once, or read the vectors from the cache."""
    queries = encoder.encode_queries(data, np.arange(len(data.queries)))
    return FrozenVectors(queries, encoder.encode_corpus(data, corpus_text))


def attach(base: SentenceTransformer, trained: SentenceTransformer) -> SentenceTransformer:
    """Put a trained adapter after its base model; the result shares the modules of both."""
    joined = copy.copy(base)
    joined._modules = OrderedDict(base._modules)
    joined.append(_router({role: [*_modules(trained, role), Normalize()] for role in ROLES}))
    return joined


def save_adapted(folder: Path, base: SentenceTransformer, trained: SentenceTransformer) -> None:
    """Write what a run hands over: a model's folder, or ``adapter.npz`` for vectors from files."""
    if reads_vectors(base):
        modules = {role: module for role in ROLES for module in _modules(trained, role)}
        weights = {role: module.linear.weight.detach() for role, module in modules.items()}
        save(folder, {role: weight.float().cpu().numpy() for role, weight in weights.items()})
    else:
        attach(base, trained).save_pretrained(str(folder), create_model_card=False)


def _modules(trained: SentenceTransformer, role: Role) -> list[Any]:
    return list(trained[1].sub_modules[role])


def _router(modules: Modules) -> Router:
    """Route by role; a text without one counts as a document."""
    return Router.for_query_document(modules["query"], modules.get("document", []))
