"""Texts as rows of unequal length: sparse vectors, or vectors of tokens; in memory and on disk.

The shards on disk are Arrow files, which are mapped into memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from opera.core.arrays import IntArray, concatenated_ranges, distinct_numbers, slices
from opera.core.files import unfinished
from opera.data.texts import open_arrow
from opera.retrieval.nearest import BestDocuments
from opera.retrieval.vectors import Shards

SUFFIX = ".arrow"
FEW_QUERIES = 8
"""So many queries are multiplied with documents as dense vectors, which needs no transposition."""
WORD_BYTES = 8
"""Size of the number of a word and its weight."""
CELLS = 2**24
"""Most similarities of tokens, or scores, to hold at once."""


class Rows(ABC):
    """Rows of unequal length.

    Attributes:
        shape: the number of rows, and the dimension.
        offsets: int64 ``[rows + 1]``, the first item of each row, then their number.
    """

    shape: tuple[int, int]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    @abstractmethod
    def item_bytes(self) -> int:
        """The size of an item: of a word with its weight, or of a token's vector."""

    @property
    def bytes_per_row(self) -> float:
        """The mean size of a row."""
        return self.item_bytes * float(self.offsets[-1]) / max(1, len(self))

    @abstractmethod
    def __getitem__(self, rows: slice | IntArray) -> Self:
        """Return some rows, in memory."""

    @abstractmethod
    def products(self, queries: Any) -> NDArray[np.float32]:
        """Return the score of each query and row: float32 ``[queries, rows]``."""

    @abstractmethod
    def pair_products(self, queries: Any) -> NDArray[np.float32]:
        """Return the score of each row and the query at the same position: float32 ``[rows]``."""

    @abstractmethod
    def unusable(self) -> IntArray:
        """Return the rows that hold NaN or infinite values."""

    @abstractmethod
    def columns(self) -> dict[str, pa.Array]:
        """Return the columns of the file."""

    @classmethod
    @abstractmethod
    def of_columns(cls, columns: dict[str, Any], dimension: int) -> Self:
        """Read what :meth:`columns` returned, without a copy."""

    @classmethod
    @abstractmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one after the other."""

    def write(self, path: Path) -> None:
        """Write a shard; its file gets its final name when it is complete."""
        columns, temporary = self.columns(), unfinished(path)
        table = pa.table(columns).replace_schema_metadata({"dimension": str(self.shape[1])})
        with pa.ipc.new_file(temporary, table.schema) as file:
            file.write_table(table)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Map a shard into memory."""
        table = open_arrow(path)
        dimension = int(table.schema.metadata[b"dimension"])
        columns = {name: table[name].chunk(0) for name in table.column_names}  # combining copies
        return cls.of_columns(columns, dimension)


@dataclass(frozen=True)
class SparseRows(Rows):
    """Sparse vectors.

    Attributes:
        matrix: float32 ``[rows, words]``, with ascending words in each row.
    """

    matrix: csr_array

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """The number of rows, and of words."""
        rows, words = self.matrix.shape
        return int(rows), int(words)

    @property
    def offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """The first item of each row."""
        return np.asarray(self.matrix.indptr, dtype=np.int64)

    @property
    def item_bytes(self) -> int:
        """The size of a word and its weight."""
        return WORD_BYTES

    def __getitem__(self, rows: slice | IntArray) -> SparseRows:
        return SparseRows(self.matrix[rows])

    def products(self, queries: SparseRows) -> NDArray[np.float32]:
        """Return the product of each query and row."""
        # both ways add the same terms in the same order, and terms that are 0
        if len(queries) <= FEW_QUERIES:
            return np.ascontiguousarray((self.matrix @ queries.matrix.toarray().T).T)
        return np.asarray((queries.matrix @ self.matrix.T).toarray(), dtype=np.float32)

    def pair_products(self, queries: SparseRows) -> NDArray[np.float32]:
        """Return the product of each row and its query."""
        return np.asarray(queries.matrix.multiply(self.matrix).sum(axis=1), dtype=np.float32)

    def unusable(self) -> IntArray:
        """Return the rows with a weight that is not finite."""
        items = np.flatnonzero(~np.isfinite(self.matrix.data))
        return distinct_numbers(np.searchsorted(self.offsets, items, side="right") - 1)

    def normalised(self) -> SparseRows:
        """Return the rows scaled to length 1; a row without words stays as it is."""
        lengths = np.sqrt(self.matrix.multiply(self.matrix).sum(axis=1))
        factors = (1 / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        data = self.matrix.data * np.repeat(factors, np.diff(self.matrix.indptr))
        return SparseRows(_csr(data, self.matrix.indices, self.matrix.indptr, self.shape))

    def columns(self) -> dict[str, pa.Array]:
        """Return the words and weights of each row."""
        starts = pa.array(self.matrix.indptr, pa.int32())
        return {
            "words": pa.ListArray.from_arrays(starts, pa.array(self.matrix.indices, pa.int32())),
            "weights": pa.ListArray.from_arrays(starts, pa.array(self.matrix.data, pa.float32())),
        }

    @classmethod
    def of_columns(cls, columns: dict[str, Any], dimension: int) -> SparseRows:
        """Read the words and weights."""
        words, weights = columns["words"], columns["weights"]
        starts = words.offsets.to_numpy()
        shape = len(words), dimension
        return cls(_csr(weights.values.to_numpy(), words.values.to_numpy(), starts, shape))

    @classmethod
    def joined(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of all parts."""
        return cls(csr_array(vstack([part.matrix for part in parts], format="csr")))


def _csr(data: Any, indices: Any, starts: Any, shape: tuple[int, int]) -> csr_array:
    """Return a matrix of these arrays; SciPy copies none of them."""
    matrix = csr_array((data, indices, starts), shape=shape)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


@dataclass(frozen=True)
class TokenRows(Rows):
    """A vector for each token.

    Attributes:
        vectors: float16 ``[tokens, dimension]``, text by text. Each text has at least one.
        offsets: int64 ``[rows + 1]``, the first token of each text, then their number.
        known_means: float32 ``[rows, dimension]``, the mean vector of each text; ``None`` to
            compute them.
    """

    vectors: NDArray[np.float16]
    offsets: NDArray[np.int64]
    known_means: NDArray[np.float32] | None = None

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """The number of texts, and the dimension."""
        return len(self.offsets) - 1, self.vectors.shape[1]

    @cached_property
    def means(self) -> NDArray[np.float32]:
        """The mean vector of each text: float32 ``[rows, dimension]``."""
        if self.known_means is not None:
            return self.known_means
        sums = np.add.reduceat(self.vectors.astype(np.float32), self.offsets[:-1], axis=0)
        return np.divide(sums, np.diff(self.offsets)[:, None], dtype=np.float32)

    @cached_property
    def _float32(self) -> NDArray[np.float32]:
        return self.vectors.astype(np.float32)

    @property
    def item_bytes(self) -> int:
        """The size of a vector."""
        return self.vectors.itemsize * self.vectors.shape[1]

    def __getitem__(self, rows: slice | IntArray) -> TokenRows:
        if isinstance(rows, slice) and rows.step is None:
            start, stop, _ = rows.indices(len(self))
            offsets = self.offsets[start : max(start, stop) + 1]
            means = None if self.known_means is None else self.known_means[rows]
            return TokenRows(self.vectors[offsets[0] : offsets[-1]], offsets - offsets[0], means)
        numbers = np.arange(len(self))[rows]
        counts = np.diff(self.offsets)[numbers]
        tokens = concatenated_ranges(self.offsets[numbers], counts)
        return TokenRows(self.vectors[tokens], np.cumsum([0, *counts]))

    def products(self, queries: TokenRows) -> NDArray[np.float32]:
        """Return MaxSim: the sum over the query's tokens of the best product with a token."""
        scores = np.empty((len(queries), len(self)), dtype=np.float32)
        tokens_per_row = len(self.vectors) / max(1, len(self))
        step = max(1, int(CELLS / max(1.0, len(queries.vectors) * tokens_per_row)))
        for rows in slices(len(self), step):
            part = self[rows]
            products = part._float32 @ queries._float32.T
            best = np.maximum.reduceat(products, part.offsets[:-1], axis=0)
            scores[:, rows] = np.add.reduceat(best, queries.offsets[:-1], axis=1).T
        return scores

    def pair_products(self, queries: TokenRows) -> NDArray[np.float32]:
        """Return MaxSim of each row and its query."""
        scores = [
            (self[slice(row, row + 1)]._float32 @ queries[slice(row, row + 1)]._float32.T)
            .max(axis=0)
            .sum()
            for row in range(len(self))
        ]
        return np.array(scores, dtype=np.float32)

    def unusable(self) -> IntArray:
        """Return the texts with a value that is not finite."""
        tokens = np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))
        return distinct_numbers(np.searchsorted(self.offsets, tokens, side="right") - 1)

    def columns(self) -> dict[str, pa.Array]:
        """Return the vectors of each text, and their mean."""
        vectors, means = (
            pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), self.shape[1])
            for rows in (np.ascontiguousarray(self.vectors), self.means)
        )
        starts = pa.array(self.offsets, pa.int32())
        return {"vectors": pa.ListArray.from_arrays(starts, vectors), "means": means}

    @classmethod
    def of_columns(cls, columns: dict[str, Any], dimension: int) -> TokenRows:
        """Read the vectors, and their means unless an older version wrote the file."""
        texts, means = columns["vectors"], columns.get("means")
        starts = texts.offsets.to_numpy().astype(np.int64)
        vectors = texts.values.values.to_numpy().reshape(-1, dimension)
        known_means = None if means is None else means.values.to_numpy().reshape(-1, dimension)
        return cls(vectors, starts, known_means)

    @classmethod
    def joined(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """Return the texts of all parts."""
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        vectors = np.concatenate([part.vectors for part in parts])
        return cls(vectors, np.cumsum([0, *counts]))


class StoredRows:
    """The rows of a table, mapped from the shards of a folder.

    ``stored[rows]`` takes a slice or row numbers in any order, and reads only these rows.

    Attributes:
        shape: the number of rows, and the dimension.
    """

    def __init__(self, folder: Path, shards: Shards, kind: type[Rows]) -> None:
        self._parts = [kind.read(folder / name) for name in shards.names(SUFFIX)]
        self._shards, self._kind = shards, kind
        self.shape = shards.count, self._parts[0].shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def bytes_per_row(self) -> float:
        """The mean size of a row."""
        return sum(part.bytes_per_row * len(part) for part in self._parts) / max(1, len(self))

    def within_shards(self, rows: slice) -> Iterator[tuple[int, Any]]:
        """Yield the part of each shard that has some of the rows, with its first row."""
        for number, first, local_rows in self._shards.parts(rows):
            yield first, self._parts[number][local_rows]

    def __getitem__(self, rows: slice | IntArray) -> Any:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        if not len(numbers):
            return self._parts[0][slice(0, 0)]
        groups = self._shards.by_shard(numbers)
        parts = [self._parts[shard][local_rows] for shard, _, local_rows in groups]
        joined = parts[0] if len(parts) == 1 else self._kind.joined(parts)
        order = np.argsort(np.concatenate([positions for _, positions, _ in groups]))
        in_order = bool((order == np.arange(len(order))).all())
        return joined if in_order else joined[order]


class NearestRows(BestDocuments):
    """The best documents of each query by the exact products of rows.

    Args:
        queries: the queries.
        arguments: as for :class:`BestDocuments`.
    """

    def __init__(self, queries: Rows, *arguments: Any) -> None:
        super().__init__(len(queries), *arguments)
        self._queries = queries

    def add(self, first: int, tile: Rows) -> None:
        """Search a tile of the rows of documents, from row ``first`` on."""
        if not len(tile) or not self._best.size:
            return
        for queries in slices(self.n_queries, max(1, CELLS // len(tile))):
            self.add_scores(first, queries, tile.products(self._queries[queries]))
