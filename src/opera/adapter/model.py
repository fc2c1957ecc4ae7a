"""An adapter as a sentence-transformers model: a lookup of vectors, then a Dense module.

The vectors come from the base model, or from files of a service, in the order of the data set.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule, Normalize, Router
from torch import Tensor, nn

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.files import open_file, replace_file, write_arrays
from opera.core.terminal import counted, first_line_of, shown
from opera.data import RetrievalData, TextTable
from opera.data.text_files import text_lines
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder
from opera.retrieval.kinds.dense import reads_vectors
from opera.retrieval.prompts import ROLES, Role
from opera.run_folder.folder import ADAPTER_FILE

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
    return {"query": queries, "document": encoder.encode_corpus(data, corpus_text).rows}


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
        replace_file(folder / "adapter.py", lambda path: shutil.copyfile(module, path))
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


def service_model(
    queries: Path, documents: Path, data: RetrievalData, device: str
) -> SentenceTransformer:
    """Create a model that reads the vectors of a data set's texts from two files.

    Raises:
        DataError: for a file that cannot be read, a text without a vector, or unequal dimensions.
    """
    of_queries = FileVectors(queries, data.queries, "query")
    of_documents = FileVectors(documents, data.corpus, "document")
    dimension, other = of_queries.shape[1], of_documents.shape[1]
    if dimension != other:
        raise DataError(
            f"{documents}: has vectors of dimension {other}, but {queries} has {dimension}; use "
            "vectors of one model"
        )
    lookup = VectorLookup(dimension, of_queries.digest + of_documents.digest)
    lookup.vectors = {"query": of_queries, "document": of_documents}
    return vector_model(lookup, device=device)


class FileVectors:
    """The normalised vectors of a table's texts, read from a file on demand.

    Args:
        path: ``.npy`` ``[n, d]`` with one id per line in a ``.txt`` file of the same name, or
            ``.parquet`` with the columns ``id`` and ``vector``. Ids that are not in the table are
            ignored.
        table: the queries or documents.
        kind: ``query`` or ``document``, for messages.

    Attributes:
        shape: rows of the table, and dimension.
        digest: SHA-256 of the file and its ids.
    """

    def __init__(self, path: Path, table: TextTable, kind: str) -> None:
        if path.suffix not in FORMATS:
            raise DataError(f"{path}: must end in .npy or .parquet, which decides the format")
        read, rule = FORMATS[path.suffix]
        try:
            with open_file(path) as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            ids, vectors = read(path)
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{error.filename or path}: cannot be read ({reason})") from None
        except DataError:
            raise
        except Exception as error:  # damaged files raise errors of many classes
            raise DataError(f"{path}: {rule} ({first_line_of(error)})") from None
        self.digest = hashlib.sha256("\0".join([digest, *ids]).encode()).hexdigest()
        row_of_id = {identifier: row for row, identifier in enumerate(ids)}
        if len(row_of_id) < len(ids):
            repeated = next(name for row, name in enumerate(ids) if row_of_id[name] != row)
            raise DataError(f"{path}: has two vectors for the id {shown(repeated)}; remove one")
        table_ids = table.ids()
        rows = np.array([row_of_id.get(identifier, -1) for identifier in table_ids], dtype=np.int64)
        if (missing := np.flatnonzero(rows < 0)).size:
            raise DataError(
                f"{path}: has no vector for {kind} {shown(table_ids[missing[0]])}; add the missing "
                f"{missing.size:,} of {len(table_ids):,} vectors"
            )
        self._path, self._ids, self._vectors, self._rows = path, ids, vectors, rows
        self.shape = len(rows), vectors.shape[1]

    def __getitem__(self, rows: IntArray) -> NDArray[np.float32]:
        vectors = self._vectors[self._rows[rows]].astype(np.float64)
        with np.errstate(all="ignore"):  # the check below finds values that are not finite
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)))
        if bad.size:
            name = shown(self._ids[self._rows[rows[bad].min()]])
            raise DataError(
                f"{self._path}: the vector of {name} is zero, too long, or has a value that is "
                "not a number"
            )
        return np.asarray(vectors / lengths, dtype=np.float32)


def _read_npy(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    # unlike np.load, open_memmap reads neither archives nor pickles
    vectors, names = np.lib.format.open_memmap(path, mode="r"), path.with_suffix(".txt")
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ValueError(f"it holds {list(vectors.shape)} of {vectors.dtype}")
    ids = [line.removesuffix("\n") for line in text_lines(names) if line.strip(" \n")]
    if len(ids) != len(vectors):
        raise ValueError(
            f"{counted(len(vectors), 'row')}, but {names.name} has {counted(len(ids), 'id')}"
        )
    return ids, vectors


def _read_parquet(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    with pq.ParquetFile(path) as file:
        table = file.read(columns=["id", "vector"])
    ids, column = table["id"].cast(pa.string()).to_pylist(), table["vector"]
    flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if None in ids or len(lengths) != 1 or not pa.types.is_floating(flat.type):
        raise ValueError(f"an id is missing, lengths differ, or 'vector' is {column.type}")
    return ids, flat.to_numpy(zero_copy_only=False).reshape(len(ids), lengths[0])


FORMATS = {
    ".npy": (
        _read_npy,
        "must hold a float array [n, d], with one id per line in a .txt file of the same name",
    ),
    ".parquet": (
        _read_parquet,
        "must be a Parquet file with the columns 'id' and 'vector', lists of floats of one length",
    ),
}
