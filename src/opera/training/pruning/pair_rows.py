"""A data set of texts as training pairs, and what the untrained model thinks of them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.core.settings import Settings
from opera.core.terminal import shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.encoder.embeddings import Vectors
from opera.methods import Method, PairScores
from opera.retrieval.encoder import Encoder
from opera.training_set.documents import DocumentPool
from opera.training_set.pretrained_scores import pretrained_scores

log = logging.getLogger("opera")

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""Columns the first of which sentence-transformers does not take for a text."""
WHOLE = ""
"""Name of a data set that is not one of several."""
ROWS_AT_ONCE = 10_000
Prompts = str | Mapping[str, Any] | None
"""``args.prompts``: one for all columns, by column, by data set, or by data set and column."""


@dataclass(frozen=True)
class PairRows:
    """A data set, each row of which is a training pair: the first text column is the query, the
    second its positive.

    Attributes:
        name: its name among several, :data:`WHOLE` where it is the only one.
        dataset: the rows, as the trainer reads them.
        columns: the text columns, in the order the loss gets them.
        data: the distinct queries and the distinct positives.
        pairs: the N pairs of the rows, sorted by query. Rows with the same two texts stay pairs of
            their own.
        row_of_pair: int64 ``[N]``.
    """

    name: str
    dataset: Dataset
    columns: tuple[str, ...]
    data: RetrievalData
    pairs: TrainingPairs
    row_of_pair: NDArray[np.int64]

    @property
    def place(self) -> str:
        """What messages call it."""
        return self.data.source

    def rows(self, pair_ids: IntArray) -> list[int]:
        """The rows of some pairs."""
        return [int(row) for row in self.row_of_pair[pair_ids]]

    def queries(self, pair_ids: IntArray) -> list[str]:
        """The queries of some pairs."""
        return self.data.queries.texts(self.pairs.pair_query[pair_ids], "text")


def place_of(name: str) -> str:
    """What messages call a data set."""
    return f"dataset['{name}']" if name else "dataset"


def read_all(given: Any) -> list[PairRows]:
    """Read a data set, or each of several.

    Raises:
        DataError: for anything but a ``datasets.Dataset`` or a ``DatasetDict`` of them, and for
            rows that are no pairs of texts.
    """
    if isinstance(given, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(given).__name__}: methods draw any "
            f"row at any step, and a "
            "stream has only the next one; load it whole, which datasets keeps on disk "
            "(streaming=False)"
        )
    parts: Mapping[str, Any] = given if isinstance(given, DatasetDict) else {WHOLE: given}
    for name, part in parts.items():
        if not isinstance(part, Dataset):
            raise DataError(
                f"{place_of(name)}: must be a datasets.Dataset or DatasetDict, got "
                f"{shown(type(part))}"
            )
    if not parts:
        raise DataError("dataset: holds no data set")
    return [read(name, part) for name, part in parts.items()]


def read(name: str, dataset: Dataset) -> PairRows:
    """Read the pairs of one data set.

    Raises:
        DataError: if it has no two columns of text, no row, or a column beside the label that holds
            no texts.
    """
    place = place_of(name)
    label = next((column for column in LABEL_COLUMNS if column in dataset.column_names), None)
    columns = tuple(
        column for column in dataset.column_names if column not in (label, "dataset_name")
    )
    if len(columns) < 2:
        raise DataError(
            f"{place}: needs two columns of text, the query and its positive document; it has "
            f"{shown(columns)}"
        )
    if len(dataset) == 0:
        raise DataError(f"{place}: has no row: nothing to train on")
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    pairs_of_rows = np.empty((2, len(dataset)), dtype=np.int64)
    digest = hashlib.sha256()
    for start in range(0, len(dataset), ROWS_AT_ONCE):
        batch = dataset[start : start + ROWS_AT_ONCE]
        for column in columns:
            _refuse_no_texts(batch[column], place, column, start, column in columns[:2])
        for column, known, into in zip(columns[:2], numbers, pairs_of_rows, strict=True):
            texts = batch[column]
            into[start : start + len(texts)] = [known.setdefault(x, len(known)) for x in texts]
            digest.update(
                "\0".join([column, str(len(texts)), *texts]).encode("utf-8", "surrogatepass")
            )
    pair_query, pair_doc = pairs_of_rows
    order = np.argsort(pair_query, kind="stable")
    pairs = TrainingPairs.from_arrays(pair_query[order], pair_doc[order])
    if repeated := pairs.n_pairs - len(np.unique(pair_keys(pair_query, pair_doc))):
        note = "%d rows repeat the query and positive of another row; each counts as a pair"
        log.info(f"note: %s: {note}", place, repeated)
    data = RetrievalData(
        name=name or "dataset",
        source=place,
        fingerprint=digest.hexdigest(),
        corpus=TextTable.from_texts({str(number): text for text, number in numbers[1].items()}),
        queries=TextTable.from_texts({str(number): text for text, number in numbers[0].items()}),
        splits={},
    )
    return PairRows(name, dataset, columns, data, pairs, order.astype(np.int64))


def _refuse_no_texts(values: list[Any], place: str, column: str, first: int, of_pair: bool) -> None:
    """Refuse what is no text in a column, and in those of the pair empty ones, from row ``first``
    on.
    """
    for row, value in enumerate(values, start=first):
        if isinstance(value, str) and (value.strip() or not of_pair):
            continue
        rule, advice = (
            "must be a text",
            "columns after the query and its positive are negatives; "
            f"dataset.remove_columns({shown(column)}) leaves it out",
        )
        if of_pair:
            rule, advice = (
                "must be a text that is not empty",
                f"the first two columns that are no label ({', '.join(LABEL_COLUMNS)}) are the "
                f"query and its positive",
            )
        raise DataError(
            f"{place}: row {row}, column {shown(column)}: {rule}, got {shown(value)}; {advice}"
        )


@dataclass(frozen=True)
class PairEmbeddings:
    """The untrained model's embeddings of a data set's distinct texts.

    Attributes:
        queries: float32 ``[n, dimension]``, of length 1.
        documents: float32 ``[documents, dimension]``, of length 1.
    """

    queries: Vectors
    documents: Vectors

    @classmethod
    def of(cls, model: SentenceTransformer, rows: PairRows, prompts: Prompts) -> PairEmbeddings:
        """Encode the texts, or read them from the cache; with the prompts of training, in the
        model's own lengths.
        """
        trains = model.training
        encoder = Encoder(model)
        query, document = (prompt_of(prompts, rows.name, column) for column in rows.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        queries = encoder.encode_queries(rows.data, np.arange(len(rows.data.queries)))
        documents = encoder.encode_corpus(rows.data, "text")
        model.train(trains)
        return cls(queries, documents)

    def scores(
        self,
        rows: PairRows,
        method: type[Method[Any]],
        settings: Settings,
        temperature: float,
        size: int,
        seed: int,
    ) -> PairScores:
        """Score the pairs for a method; ``size`` is the number of documents in a batch."""
        pool = DocumentPool.of(rows.data, "text")
        cbs_pool = method.cbs_pool_size(settings)
        return pretrained_scores(
            rows.pairs, self.queries, self.documents, temperature, size, seed, None, pool, cbs_pool
        )[0]


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt that sentence-transformers' collator puts before a column of a data set;
    empty for none.

    ``name`` is that of the data set, where there are several.
    """
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        found = prompts.get(column)
        return found if isinstance(found, str) else ""
    return prompts or ""
