"""An adapter as a sentence-transformers model: a lookup of vectors, then a Dense module."""

from __future__ import annotations

import copy
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule, Normalize, Router
from torch import Tensor, nn

from opera.core.files import replace_file, write_arrays
from opera.data import RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import reads_vectors
from opera.retrieval.prompts import ROLES, Role
from opera.run_folder.folder import ADAPTER_FILE

MODULE_FILE = "adapter.py"
Modules = dict[Role, list[Any]]


FrozenVectors = dict[Role, Any]
"""The vectors of queries and of documents: float32 ``[rows of the table, dimension]``, rows of
length 1; an array, or an object that reads rows from disk."""


class VectorLookup(InputModule):  # type: ignore[misc]
    """Reads row numbers as texts, and returns the vectors of these rows.

    The vectors are neither parameters nor buffers, so no checkpoint stores them. A step reads only
    the rows of its batch.

    Args:
        dimension: length of a vector.
        digest: SHA-256 of the vectors' source, for the model's fingerprint.

    Attributes:
        vectors: the vectors; set them before the first use.
    """

    config_keys: ClassVar = ["dimension", "digest"]
    save_in_root = False

    def __init__(self, dimension: int, digest: str = "") -> None:
        super().__init__()
        self.dimension, self.digest = dimension, digest
        self.vectors: FrozenVectors = {}

    def preprocess(
        self,
        inputs: Sequence[str],
        prompt: str | None = None,
        task: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Return the vectors of rows as sentence embeddings: float32 ``[rows, dimension]``."""
        vectors = self.vectors["query" if task == "query" else "document"]
        return {"sentence_embedding": torch.from_numpy(vectors[np.array(inputs, dtype=np.int64)])}

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """Return the features unchanged."""
        return features

    def get_embedding_dimension(self) -> int:
        """Length of a vector."""
        return self.dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the configuration, without the vectors."""
        self.save_config(output_path)


def adapter_model(dimension: int, kind: str, device: str) -> SentenceTransformer:
    """Create the model to train: a lookup, then I + W for queries and, with ``both``, documents."""
    sides = ROLES if kind == "both" else ROLES[:1]
    start = {"activation_function": nn.Identity(), "init_weight": torch.eye(dimension)}
    dense: Modules = {side: [Dense(dimension, dimension, bias=False, **start)] for side in sides}
    return vector_model(VectorLookup(dimension), _router(dense), device=device)


def vector_model(*modules: nn.Module, device: str) -> SentenceTransformer:
    """Create a model whose first module looks up vectors."""
    model = SentenceTransformer(modules=list(modules), device=device)
    model.model_card_data.local_files_only = True  # saving the model must not query the hub
    return model


def encode_all(encoder: Encoder, data: RetrievalData, corpus_text: CorpusText) -> FrozenVectors:
    """Encode all texts of a data set, or read their vectors from the cache."""
    queries = encoder.encode_queries(data, np.arange(len(data.queries)))
    return {"query": queries, "document": encoder.encode_corpus(data, corpus_text)}


def save_adapted(folder: Path, base: SentenceTransformer, trained: SentenceTransformer) -> None:
    """Write the base model with the trained adapter as its last module.

    For vectors from files, write ``adapter.npz`` with I + W, float32 ``[d, d]``, by role, and
    ``adapter.py``.
    """
    if reads_vectors(base):
        matrices: dict[str, Any] = {
            role: module.linear.weight.detach().float().cpu().numpy()
            for role in ROLES
            for module in _modules(trained, role)
        }
        write_arrays(folder / ADAPTER_FILE, matrices)
        module = Path(__file__).with_name("apply.py")
        replace_file(folder / MODULE_FILE, lambda path: shutil.copyfile(module, path))
    else:
        adapted = copy.copy(base)  # it shares the modules of both
        adapted._modules = OrderedDict(base._modules)
        adapted.append(_router({role: [*_modules(trained, role), Normalize()] for role in ROLES}))
        adapted.save_pretrained(str(folder), create_model_card=False)


def _modules(trained: SentenceTransformer, role: Role) -> list[Any]:
    return list(trained[1].sub_modules[role])


def _router(modules: Modules) -> Router:
    """Route by role; a text without a role counts as a document."""
    return Router.for_query_document(modules["query"], modules.get("document", []))
