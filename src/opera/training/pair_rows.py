"""A data set of texts as training pairs, and what the untrained model makes of them."""

from __future__ import annotations

import hashlib
import json
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
from opera.core.terminal import shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.encoder.embeddings import Vectors
from opera.retrieval.encoder import Encoder

log = logging.getLogger("opera")

ROWS_AT_ONCE = 10_000
LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""Columns the first of which sentence-transformers does not take for a text."""
WHOLE = ""
"""Name of a data set that is not one of several."""
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

    def rows(self, pair_ids: IntArray) -> list[int]:
        """The rows of some pairs."""
        return [int(row) for row in self.row_of_pair[pair_ids]]

    def encode(self, model: SentenceTransformer, prompts: Prompts) -> tuple[Vectors, Vectors]:
        """Encode the distinct queries and documents, or read them from the cache; with the prompts
        of training."""
        trains, encoder = model.training, Encoder(model)
        query, document = (prompt_of(prompts, self.name, column) for column in self.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        queries = encoder.encode_queries(self.data, np.arange(len(self.data.queries)))
        documents = encoder.encode_corpus(self.data, "text")
        model.train(trains)
        return queries, documents


def read_all(given: Any) -> list[PairRows]:
    """Read a data set, or each of several.

    Raises:
        DataError: for anything but a ``datasets.Dataset`` or a ``DatasetDict`` of them, and for
            rows that are no pairs of texts.
    """
    if isinstance(given, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(given).__name__}: methods draw any "
            "row at any step, and a stream has only the next one; load it whole, which datasets "
            "keeps on disk (streaming=False)"
        )
    parts = dict(given) if isinstance(given, DatasetDict) else {WHOLE: given}
    if not parts:
        raise DataError("dataset: holds no data set")
    return [read(name, part) for name, part in parts.items()]


def read(name: str, dataset: Any) -> PairRows:
    """Read the pairs of one data set.

    Raises:
        DataError: if it has no two columns of text, no row, or a column beside the label that holds
            no texts.
    """
    place = f"dataset['{name}']" if name else "dataset"
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{place}: must be a datasets.Dataset or DatasetDict, got {shown(type(dataset))}"
        )
    names = dataset.column_names
    label = next((column for column in LABEL_COLUMNS if column in names), None)
    columns = tuple(column for column in names if column not in (label, "dataset_name"))
    if len(columns) < 2:
        raise DataError(
            f"{place}: needs two columns of text, the query and its positive document; it has "
            f"{shown(columns)}"
        )
    if len(dataset) == 0:
        raise DataError(f"{place}: has no row: nothing to train on")
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    pair_query, pair_doc = pair = np.empty((2, len(dataset)), dtype=np.int64)
    digest = hashlib.sha256()
    for start in range(0, len(dataset), ROWS_AT_ONCE):  # the data set may be larger than memory
        batch = dataset[start : start + ROWS_AT_ONCE]
        for column in columns:
            _refuse_no_texts(batch[column], place, column, start, column in columns[:2])
        for into, column, known in zip(pair, columns, numbers, strict=False):
            texts = batch[column]
            into[start : start + len(texts)] = [known.setdefault(x, len(known)) for x in texts]
            digest.update(json.dumps(texts).encode())
    order = np.argsort(pair_query, kind="stable")
    pairs = TrainingPairs.from_arrays(pair_query[order], pair_doc[order])
    if repeated := pairs.n_pairs - len(np.unique(pair_keys(pair_query, pair_doc))):
        note = "%d rows repeat the query and positive of another row; each counts as a pair"
        log.info(f"note: %s: {note}", place, repeated)
    queries, corpus = (
        TextTable.from_texts({str(number): text for text, number in known.items()})
        for known in numbers
    )
    data = RetrievalData(name or "dataset", place, digest.hexdigest(), corpus, queries, {})
    return PairRows(name, dataset, columns, data, pairs, order.astype(np.int64))


def _refuse_no_texts(values: list[Any], place: str, column: str, first: int, of_pair: bool) -> None:
    """Refuse what is no text in a column, and in those of the pair what is empty, from row
    ``first`` on.
    """
    for row, value in enumerate(values, start=first):
        if not isinstance(value, str) or (of_pair and not value.strip()):
            rule = "a text that is not empty" if of_pair else "a text"
            raise DataError(
                f"{place}: row {row}, column {shown(column)}: must be {rule}, got {shown(value)}; "
                f"of the columns that are no label ({', '.join(LABEL_COLUMNS)}) the first two are "
                "the query and its positive, and the others negatives; "
                f"dataset.remove_columns({shown(column)}) leaves one out"
            )


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt that sentence-transformers' collator puts before a column of a data set;
    empty for none. ``name`` is that of the data set, where there are several."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""
