"""Read the rows of a user's data set as training pairs, and sample the trainer's batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import (
    Dataset,
    IterableDataset,
    IterableDatasetDict,
    LargeList,
    List,
    concatenate_datasets,
)
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from opera.adapter.model import encode_all
from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import DataError, SettingError, TrainingError
from opera.core.terminal import counted, log, shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.review import Item, Labelled, training_items
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import with_separate_settings
from opera.retrieval.prompts import Role
from opera.retrieval.vectors import Vectors
from opera.training.documents import KnownPositives
from opera.training.sampler import Batch, Observations, Sampler

LABEL_COLUMNS = ("label", "labels", "score", "scores")
"""sentence-transformers takes the first of these columns that exists as the label."""
Prompts = str | Mapping[str, Any] | None
"""``args.prompts``: one prompt, or prompts by column, by data set, or by data set and column."""


def without_lists(
    rows: Dataset, columns: list[str], title: str
) -> tuple[Dataset, NDArray[np.int64], dict[str, list[str]]]:
    """Turn a list of positives into a row for each, and a list of negatives into a column for each.

    All rows get as many columns of negatives as the shortest list has texts.

    Args:
        rows: the data set.
        columns: its text columns: query, positive, negatives.
        title: of the data set, for messages.

    Returns:
        The new rows, the row of the data set that each of them comes from, and the names of the new
        columns by the name of the column with lists.

    Raises:
        DataError: for an empty list, and for lists in a data set with a transform.
    """
    lists, user_row = dict[str, list[str]](), np.arange(len(rows))
    for name in reversed(columns[1:]):  # so that the positives, which add rows, come last
        if not isinstance(rows.features[name], List | LargeList):
            continue
        if rows.format["type"] == "custom":
            raise DataError(
                f"{title}: column {name!r}: a data set with a transform must not have lists; "
                "apply the transform with dataset.map"
            )
        values = rows.select_columns([name]).with_format("arrow")[:][name].combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
        if len(lengths) and lengths.min() == 0:
            raise DataError(
                f"{title}: row {lengths.argmin()}, column {name!r}: must be a list of at least one "
                "text, as in other rows"
            )
        if name == columns[1]:
            user_row = np.repeat(user_row, lengths)
            rows, new = rows.select(user_row), {name: pc.list_flatten(values)}
        else:
            lists[name] = [f"{name}_{number + 1}" for number in range(min(lengths, default=0))]
            new = {
                column: pc.list_element(values, position)
                for position, column in enumerate(lists[name])
            }
        rows = concatenate_datasets([rows.remove_columns(name), Dataset(pa.table(new))], axis=1)
    return rows, user_row, lists


def with_list_prompts(prompts: Any, lists: Mapping[str, list[str]]) -> Any:
    """Repeat the prompt of a column with lists for the columns that the lists have become."""
    if not isinstance(prompts, Mapping):
        return prompts
    repeated = {name: with_list_prompts(prompt, lists) for name, prompt in prompts.items()}
    for name in lists.keys() & prompts.keys():
        repeated.update(dict.fromkeys(lists[name], prompts[name]))
    return repeated


def _check_texts(title: str, rows: IntArray, texts: list[Any], may_be_empty: bool) -> None:
    """Raise a :class:`DataError` for the first value of a column that is not a text."""
    rule = "a text" if may_be_empty else "a text that is not empty"
    for row, text in zip(rows.tolist(), texts, strict=True):
        if not isinstance(text, str) or not (may_be_empty or text.strip()):
            raise DataError(
                f"{title % row}: must be {rule}, got {shown(text)}; except for a label "
                f"({', '.join(LABEL_COLUMNS)}), the columns are the query, its positive, then "
                "negatives; remove columns with dataset.remove_columns, rows with dataset.filter"
            )


def _relevant_rows(dataset: Dataset, label: str | None) -> NDArray[np.int64]:
    """Return the rows whose label is above 0.

    All rows are relevant if no label is above 0, as in examples of sentence-transformers. They are
    also relevant if labels are lists or have fractions: then they are scores for the loss.
    """
    rows = np.arange(len(dataset))
    if label is None:
        return rows
    labels = dataset.select_columns([label]).with_format("arrow")[:][label].combine_chunks()
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return rows
    values = np.asarray(labels.cast(pa.float64()).to_numpy(zero_copy_only=False))
    relevant = ~(values <= 0)
    return rows if (values % 1 > 0).any() or not relevant.any() else rows[relevant]


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt for a column of the data set ``name``, as sentence-transformers' collator
    chooses it; empty for none."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""


LEAST_RANKED = 1 / 8
"""Smallest fraction of a batch to rank a document among; a rank among one or two says little."""
ONLY = ""
"""Name of a single data set."""
ADVICE_ONCE = (
    "create a PairPruning for each training, and evaluate on your data set, not on pruning.dataset"
)


@dataclass(frozen=True)
class LabelledRows(Labelled):
    """Labelled pairs with the rows of a user's data set, int64 ``[N]``."""

    row_of_pair: NDArray[np.int64]

    def pair(self, pair_id: int, stratum: str | None, why: str, rank: float | None = None) -> Item:
        """Describe a pair; both ids are the row number."""
        row = str(self.row_of_pair[pair_id])
        return {**super().pair(pair_id, stratum, why, rank), "query_id": row, "doc_id": row}


class PairRows:
    """A data set whose rows are training pairs of a query (first text column) and its positive
    (second), and the batches that the trainer reads from it.

    An epoch has as many batches as without pruning. All batches are full, and each process has
    equally many.

    Args:
        name: of the data set; :data:`ONLY` for a single one.
        dataset: the user's data set.
        first: the id of its first pair among all data sets.

    Attributes:
        dataset: the rows with pair ids as the label column; -1 for rows that are not relevant. A
            list of positives becomes a row for each.
        user_rows: the user's data set with a row for each positive, a column for each negative.
        label: its column of labels, if there is one.
        lists: the columns that each column with lists of negatives has become.
        columns: the text columns, in the order of the loss.
        documents: int64 ``[N, c]``, each pair's positive and negatives. Equal texts have one
            number; those of ``data.corpus`` come first.
        known: the known positives of each query.
        data: the distinct queries and positives, compared without extra white space.
        pairs: the N pairs of the relevant rows, sorted by query. Repeated rows are separate pairs.
        copies: int64 ``[N]``, equal for repeated rows.
        row_of_pair: int64 ``[N]``.
        vectors: the base model's embeddings of queries and documents, if the method needs scores.
        sampler: samples the pairs; exists once training begins.
        length: batches per epoch, over all processes; 0 until a trainer asks for batches.
        epoch_start: the first step of the epoch.

    Raises:
        DataError: if the data set is empty, has fewer than two text columns, or holds values that
            are not texts.
    """

    sampler: Sampler
    vectors: dict[Role, Vectors] | None = None
    drop_last = False
    length = batch_size = epoch_start = _to_skip = 0

    def __init__(self, name: str, dataset: Any, first: int) -> None:
        self.name, self.first = name, first
        title = f"dataset['{name}']" if name else "dataset"
        relevant, texts = self._read(dataset, title)
        pair_query, queries = _distinct(texts[0])
        numbers, documents = _distinct([text for column in texts[1:] for text in column])
        order = np.argsort(pair_query, kind="stable")
        self.row_of_pair = relevant[order]
        self.documents = numbers.reshape(len(texts) - 1, len(order)).T[order]
        self.pairs = pairs = TrainingPairs.from_arrays(pair_query[order], self.documents[:, 0])
        corpus = documents.select(np.arange(pairs.pair_doc.max() + 1))
        fingerprint = hashlib.sha256(json.dumps(texts[:2]).encode()).hexdigest()
        self.data = RetrievalData(name or "dataset", title, fingerprint, corpus, queries, {})
        self.dataset = self._with_ids()
        all_texts = replace(self.data, corpus=documents)
        self.known = KnownPositives.of(all_texts, np.arange(pairs.n_queries), pairs)
        keys = pair_keys(pairs.pair_query, pairs.pair_doc)
        self.copies: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1]
        self._trained_documents: NDArray[np.bool_] = np.zeros(len(corpus), dtype=bool)
        self._trained_copies: NDArray[np.bool_] = np.zeros(pairs.n_pairs, dtype=bool)

    def _read(self, dataset: Any, title: str) -> tuple[NDArray[np.int64], list[list[str]]]:
        """Read the user's data set; ``title`` names it in messages.

        Returns:
            The rows that train, int64 ``[N]``, and their texts by column.
        """
        if not isinstance(dataset, Dataset):
            raise DataError(
                f"{title}: must be a datasets.Dataset or DatasetDict, got {shown(type(dataset))}"
            )
        names = dataset.column_names
        self.label = next((column for column in LABEL_COLUMNS if column in names), None)
        text_columns = [column for column in names if column not in (self.label, "dataset_name")]
        if len(text_columns) < 2:
            raise DataError(
                f"{title}: must have two text columns, the query and its positive document, got "
                f"{shown(tuple(text_columns))}"
            )
        self.user_rows, user_row, self.lists = without_lists(dataset, text_columns, title)
        if (total := len(self.user_rows)) == 0:
            raise DataError(f"{title}: must have at least one row, got an empty data set")
        relevant = _relevant_rows(self.user_rows, self.label)
        if left_out := total - len(relevant):
            log.warning(
                "%s: skipped %d of %s: their label is 0",
                *(title, left_out, counted(total, "row")),
            )
        rows = self.user_rows[relevant]
        self.columns = [
            name for column in text_columns for name in self.lists.get(column, [column])
        ]
        for number, column in enumerate(self.columns):
            column_title = f"{title}: row %d, column {column!r}"
            _check_texts(column_title, user_row[relevant], rows[column], may_be_empty=number > 1)
        return relevant, [rows[column] for column in self.columns]

    def _with_ids(self) -> Dataset:
        """Return the data set with pair ids as its label column."""
        pair_ids = np.full(len(self.user_rows), -1, dtype=np.int64)
        pair_ids[self.row_of_pair] = np.arange(self.first, self.first + self.pairs.n_pairs)
        name = self.label or LABEL_COLUMNS[0]
        texts = self.user_rows.select_columns([*self.columns])
        ids = Dataset(pa.table({name: pair_ids}))
        dataset = concatenate_datasets([texts.with_format(None), ids], axis=1)
        transform = self.user_rows.format["format_kwargs"].get("transform")
        if transform is not None:
            dataset.set_transform(lambda batch: {**transform(batch), name: batch[name]})
        return dataset

    def rows(self, pair_ids: IntArray) -> list[int]:
        """Return the rows of pairs."""
        return list(self.row_of_pair[pair_ids].tolist())

    def labels(self, pair_ids: IntArray, device: torch.device) -> Tensor | None:
        """Return the user's labels of pairs as a tensor, or ``None`` without labels."""
        if self.label is None:
            return None
        labels = self.user_rows.select_columns([self.label]).with_format(None)
        return torch.tensor(labels[self.rows(pair_ids)][self.label], device=device)

    def encode(self, model: SentenceTransformer, prompts: Prompts) -> dict[Role, Vectors]:
        """Encode the distinct queries and documents with the prompts of training, or read the
        cache."""
        was_training, encoder = model.training, Encoder(with_separate_settings(model))
        encoder.model.similarity_fn_name = "cosine"
        query, document = (prompt_of(prompts, self.name, column) for column in self.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        vectors = encode_all(encoder, self.data, "text")
        model.train(was_training)
        return vectors

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        """Begin an epoch: yield the batches that a resumed trainer skips, then batches that it has
        read but not trained, then new batches. A skipped batch repeats row 0, because the trainer
        discards it."""
        if not hasattr(self, "sampler"):
            raise SettingError(
                "PairPruning: a training or evaluation began without its callback; pass "
                f"callbacks=[pruning.callback] to the trainer; {ADVICE_ONCE}"
            )
        # not a generator: a loader of several data sets calls this for all sets before it reads one
        skipped, self._to_skip = self._to_skip, 0
        self.epoch_start = self.sampler.trained_steps - skipped
        steps = islice(self.sampler.upcoming(), self.length - skipped)
        batches = (self.rows(self.sampler.sampled[step]) for step in steps)
        return chain([[0] * self.batch_size] * skipped, batches)

    def resume(self, epoch_start: int, skips: bool) -> int:
        """Continue at the sampler's step, and return how many batches of the epoch to skip."""
        self.mark_trained(np.flatnonzero(self.sampler.trained))
        self._to_skip = self.sampler.trained_steps - epoch_start if skips else 0
        return self._to_skip

    def batch(self, pair_ids: IntArray) -> Batch:
        """Return the first untrained step that holds the pairs.

        Raises:
            TrainingError: if there is none.
        """
        for _, batch in sorted(self.sampler.pending.items()):
            if np.array_equal(batch.pair_ids, pair_ids):
                return batch
        raise TrainingError(
            "the loss got a batch that the method did not sample; create a PairPruning for each "
            "training, pass train_dataset=pruning.dataset, callbacks=[pruning.callback] and "
            "args.batch_sampler = pruning.sampler to the trainer, and do not use "
            "auto_find_batch_size, split_batches, dispatch_batches or DataParallel"
        )

    def observe(self, observations: Observations) -> None:
        """Pass the observations of a batch to the sampler. Only the first visit of a pair gives a
        p-value: later the model has trained on the pair."""
        pair_ids, _, _, p = observations
        first_p = np.where(self._trained_copies[self.copies[pair_ids]], np.float32(np.nan), p)
        self.sampler.observe(self.batch(pair_ids).step, observations._replace(p=first_p))
        self.mark_trained(pair_ids)

    def mark_trained(self, pair_ids: IntArray) -> None:
        """Record that the model trained on these pairs."""
        self._trained_copies[self.copies[pair_ids]] = True
        self._trained_documents[self.pairs.pair_doc[pair_ids]] = True

    def known_positives(self, pair_ids: IntArray, batch: IntArray, first: int) -> BoolArray:
        """Mark the known positives among the negatives of pairs ``[m]``: bool ``[m, B · c]``.

        Args:
            pair_ids: the pairs.
            batch: int ``[B]``, the pairs whose documents the loss compares them with, by their ids
                among all data sets. Pairs of other data sets are not known positives.
            first: where ``pair_ids`` begin in ``batch``.
        """
        documents = np.take(self.documents, batch - self.first, axis=0, mode="clip")
        known = self.known.among_negatives(self.pairs.pair_query[pair_ids], documents, first)
        is_ours = (batch >= self.first) & (batch < self.first + self.pairs.n_pairs)
        return known & np.tile(is_ours, documents.shape[1])

    def not_comparable(self, pair_ids: IntArray) -> BoolArray:
        """Mark the positives of the batch that a pair's document must not be ranked among: bool
        ``[m, m]``.

        Two kinds are marked: the known positives of the query, and, if the pair's document was a
        positive in an earlier step, the documents that were not (and the reverse). Training as a
        positive changes a document's scores, so the two kinds cannot be compared. If fewer than
        :data:`LEAST_RANKED` of the batch remain, all are marked.
        """
        documents = self.pairs.pair_doc[pair_ids]
        known = self.known.contains(self.pairs.pair_query[pair_ids][:, None], documents)
        trained = self._trained_documents[documents]
        marked: BoolArray = known | (trained[:, None] != trained)
        marked[(~marked).sum(1) < LEAST_RANKED * len(trained)] = True
        return marked

    def review(self, seed: int) -> dict[str, Any]:
        """Describe the pairs to review; their ids are rows of the data set."""
        query_rows = np.arange(self.pairs.n_queries, dtype=np.int32)
        labelled = LabelledRows(self.data, query_rows, self.pairs, self.row_of_pair)
        visits, kept = self.sampler.all_visits(), self.sampler.kept
        return training_items(labelled, estimate(self.pairs, visits, kept), visits, kept, seed)

    def noisy_labels(self) -> NoisyLabels | None:
        """Return the estimate by row of the data set; NaN for a row without a pair."""
        of_pairs = estimate(self.pairs, self.sampler.all_visits(), self.sampler.kept)
        if of_pairs is None:
            return None
        rows = self.row_of_pair
        by_row = np.full(len(self.dataset), np.nan, dtype=of_pairs.probability_wrong.dtype)
        by_row[rows] = of_pairs.probability_wrong
        return replace(of_pairs, probability_wrong=by_row, suspicious=rows[of_pairs.suspicious])


def read_all(dataset: Any) -> list[PairRows]:
    """Read a data set, or a dictionary of data sets.

    Raises:
        DataError: for an object of another class, and for rows that are not pairs of texts.
    """
    if isinstance(dataset, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(dataset).__name__}: a method "
            "samples any row at any step, which a stream cannot give; load the data set with "
            "streaming=False"
        )
    data_sets, first = list[PairRows](), 0
    for name, rows in (dataset if isinstance(dataset, Mapping) else {ONLY: dataset}).items():
        data_sets.append(PairRows(name, rows, first))
        first += data_sets[-1].pairs.n_pairs
    return data_sets


def rows_of(data_sets: Sequence[PairRows], pair_ids: IntArray) -> tuple[PairRows, IntArray]:
    """Return the data set of a batch, and the ids of its pairs in this data set."""
    firsts = [rows.first for rows in data_sets]
    rows = data_sets[np.searchsorted(firsts, pair_ids[0], side="right") - 1]
    return rows, pair_ids - rows.first


def _distinct(texts: list[str]) -> tuple[NDArray[np.int64], TextTable]:
    """Number distinct texts in order of appearance; extra white space makes no difference.

    Returns:
        The number of each text, and the distinct texts in their first spelling.
    """
    table = TextTable.from_texts({str(row): text for row, text in enumerate(texts)})
    first, numbers = np.unique(table.group, return_inverse=True)
    return numbers, table.select(first)
