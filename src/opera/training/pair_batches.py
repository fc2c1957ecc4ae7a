"""The batches of a data set under a method, as a trainer of one's own reads them."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from datasets import Dataset, IterableDataset, IterableDatasetDict
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers.integrations import get_available_reporting_integrations

from opera.core.arrays import BoolArray, IntArray
from opera.core.errors import DataError, SettingError, TrainingError
from opera.core.terminal import shown
from opera.data import RetrievalData, TextTable
from opera.data.pairs import TrainingPairs, pair_keys
from opera.data.texts import without_extra_space
from opera.encoder.embeddings import Vectors
from opera.methods.first_visits import FalsePairs, estimate
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import with_separate_settings
from opera.training.callbacks import service_names
from opera.training.sampler import NotObservedError, PairSampler
from opera.training_set.documents import KnownPositives

AGAIN = (
    "make a PairPruning for each training, and evaluate on another object than the one that trains "
    "(dataset.select(range(len(dataset))))"
)
ADVICE = (
    "the trainer's train_dataset must be the dataset that PairPruning was given, "
    f"args.batch_sampler its sampler, and callbacks hold pruning.callback; {AGAIN}"
)
"""What to do where the trainer does not train on what was drawn."""
LEAST_RANKED = 1 / 8
"""The part of a batch that a document is ranked among, at least: among one or two others it is
seldom the best."""


class Given(NamedTuple):
    """A batch that was given out and is not trained yet: a data set, and a step of its sampler."""

    source: PrunedSet
    step: int


class PrunedSet:
    """One data set that trains, and the batches that the trainer reads of it.

    An epoch has as many batches as without pruning, but all of them are full, and as many for each
    process.

    Attributes:
        rows: its pairs.
        known: the positives of each query.
        seen: bool per document, whether it was trained as a positive.
        vectors: the untrained model's, of queries and documents, where the method starts from them.
        sampler: draws, from when training begins.
        length: batches per epoch, over all processes; 0 until a trainer asks for them.
        epoch_start: the first draw of the epoch.
        to_skip: batches of the epoch that a resumed trainer skips.
    """

    sampler: PairSampler
    drop_last = False
    length = batch_size = epoch_start = to_skip = 0

    def __init__(
        self, rows: PairRows, vectors: tuple[Vectors, Vectors] | None, waiting: deque[Given]
    ) -> None:
        self.rows, self.vectors, self._waiting = rows, vectors, waiting
        query_rows = np.arange(rows.pairs.n_queries)
        self.known = KnownPositives.of(rows.data, query_rows, rows.pairs)
        self.seen = np.zeros(len(rows.data.corpus), dtype=bool)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[list[int]]:
        if not hasattr(self, "sampler"):
            raise SettingError(
                "PairPruning: a training or evaluation begins that its callback does not know of; "
                f"pass callbacks=[pruning.callback] to the trainer; {AGAIN}"
            )
        # Several data sets begin an epoch together: what was not trained in the last one comes
        # again.
        for given in [given for given in self._waiting if given.source is self]:
            self._waiting.remove(given)
        skipped, self.to_skip = self.to_skip, 0
        self.epoch_start = self.sampler.trained_steps - skipped
        return self._epoch(skipped)

    def _epoch(self, skipped: int) -> Iterator[list[int]]:
        """Yield an epoch's batches: those that are skipped, then those not trained yet, then new
        ones."""
        yield from [[0] * self.batch_size] * skipped
        try:
            for step in islice(self.sampler.upcoming(), self.length - skipped):
                self._waiting.append(Given(self, step))
                yield self.rows.rows(self.sampler.pairs_of(step))
        except NotObservedError:
            raise TrainingError(
                f"PairPruning: batches of {self.rows.data.source} are read further ahead of "
                f"training than the lag of {self.sampler.lag} allows; {ADVICE}"
            ) from None

    def not_ranked(self, step: int) -> BoolArray:
        """Mark for each query of a batch the documents that its own is not ranked among, bool ``[m,
        m]``: known positives, and those that were trained where its own was not, or the reverse;
        all where fewer than :data:`LEAST_RANKED` are left.

        Each training as a negative lowers a document everywhere. So a false document that was never
        trained would rank above those that were.
        """
        pairs, ids = self.rows.pairs, self.sampler.pairs_of(step)
        documents = pairs.pair_doc[ids]
        seen: BoolArray = self.seen[documents]
        known = self.known.contains(pairs.pair_query[ids][:, None], documents)
        apart: BoolArray = known | (seen[:, None] != seen)
        apart[(~apart).sum(1) < LEAST_RANKED * len(ids)] = True
        return apart

    def train(
        self,
        step: int,
        pair_ids: IntArray,
        similarity: NDArray[np.float32],
        loss: NDArray[np.float32],
        p: NDArray[np.float32],
    ) -> None:
        """Note that a batch was trained, and what was seen of it."""
        # Not ranked at its first visit, a pair never is: by then the model has seen it.
        first = np.where(self.sampler.trained[pair_ids], np.float32(np.nan), p)
        self.sampler.observe(step, pair_ids, similarity, loss, first)
        self.sampler.finish(step)
        self.seen[self.rows.pairs.pair_doc[pair_ids]] = True

    def false_pairs(self) -> FalsePairs | None:
        """Return what first visits say of the rows; NaN for one without."""
        sampler = self.sampler
        found = estimate(self.rows.pairs, sampler.visits(), sampler.method.kept)
        if found is None:
            return None
        rows = self.rows.row_of_pair
        by_row = np.full(len(self.rows.dataset), np.nan, dtype=found.probability.dtype)
        by_row[rows] = found.probability
        return replace(found, probability=by_row, suspicious=rows[found.suspicious])

    def curves(self) -> dict[str, float]:
        """Return the method's schedule at the last step that was trained, and the share of pairs
        trained so far.
        """
        prefix = f"{self.rows.name}_" if self.rows.name else ""
        values = {**self.sampler.schedule, "coverage": float(self.sampler.trained.mean())}
        return {f"{prefix}{name}": value for name, value in values.items() if not math.isnan(value)}


class SamplerOf:
    """What ``args.batch_sampler`` takes: the trainer calls it for the batch sampler of each data
    set.

    Trainers save their arguments by pickle; what they save of this is only that it was there.
    """

    def __init__(self, batches: Callable[..., Any]) -> None:
        self._batches = batches

    def __call__(self, dataset: Dataset, **how: Any) -> Any:
        """Return the batch sampler; arguments are those of any batch sampler of
        sentence-transformers.
        """
        return self._batches(dataset, **how)

    def __deepcopy__(self, memo: Any) -> SamplerOf:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return partial, (_saved_sampler,)


def _saved_sampler(*args: Any, **kwargs: Any) -> Any:
    raise SettingError(
        "args.batch_sampler: was a PairPruning, which is not saved with arguments; make one, and "
        "set args.batch_sampler = pruning.sampler"
    )


def check_arguments(args: Any) -> None:
    """Refuse a trainer's arguments under which batches reach the loss otherwise than they are
    drawn.

    Raises:
        SettingError: naming the argument.
    """
    if not isinstance(args, SentenceTransformerTrainingArguments):
        raise SettingError(f"args: must be SentenceTransformerTrainingArguments, got {shown(args)}")
    for name in service_names(args.report_to):
        if name not in get_available_reporting_integrations():
            raise SettingError(
                f"args.report_to={name}: its package is not installed; install it, or leave "
                "report_to out"
            )
    accelerator = args.accelerator_config
    for name, wrong in (
        ("auto_find_batch_size", args.auto_find_batch_size),
        ("accelerator_config.split_batches", accelerator.split_batches),
        ("accelerator_config.dispatch_batches", accelerator.dispatch_batches),
    ):
        if wrong:
            raise SettingError(
                f"args.{name}={wrong}: batches would reach the loss otherwise than they were "
                "drawn; leave it out"
            )
    if args.n_gpu > 1:
        raise SettingError(
            f"args: {args.n_gpu} GPUs in one process would split each batch (torch's "
            "DataParallel); start the script with torchrun or accelerate launch, or show it one "
            "GPU (CUDA_VISIBLE_DEVICES=0)"
        )


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
        lists: of the columns that hold lists of negatives, the texts of the shortest list.
        data: the distinct queries and the distinct positives; white space makes no difference.
        pairs: the N pairs of the rows that are relevant, sorted by query. Rows with the same two
            texts stay pairs of their own.
        row_of_pair: int64 ``[N]``.
    """

    name: str
    dataset: Dataset
    columns: tuple[str, ...]
    lists: Mapping[str, int]
    data: RetrievalData
    pairs: TrainingPairs
    row_of_pair: NDArray[np.int64]

    @property
    def n_documents(self) -> int:
        """How many texts of a row the loss compares with its query."""
        return len(self.columns) - 1 + sum(count - 1 for count in self.lists.values())

    def rows(self, pair_ids: IntArray) -> list[int]:
        """The rows of some pairs."""
        return [int(row) for row in self.row_of_pair[pair_ids]]

    def encode(self, model: SentenceTransformer, prompts: Prompts) -> tuple[Vectors, Vectors]:
        """Encode the distinct queries and documents, or read them from the cache; with the prompts
        of training."""
        trains, encoder = model.training, Encoder(with_separate_settings(model))
        encoder.model.similarity_fn_name = "cosine"
        query, document = (prompt_of(prompts, self.name, column) for column in self.columns[:2])
        encoder.prompts = {"query": query, "document": document}
        queries = encoder.encode_queries(self.data, np.arange(len(self.data.queries)))
        documents = encoder.encode_corpus(self.data, "text")
        model.train(trains)
        return queries, documents


def read_all(given: Any) -> list[PairRows]:
    """Read a data set, or each of several.

    Raises:
        DataError: for anything but a ``datasets.Dataset`` or several by name, and for rows that
            are no pairs of texts.
    """
    if isinstance(given, IterableDataset | IterableDatasetDict):
        raise DataError(
            f"dataset: must be a datasets.Dataset, got {type(given).__name__}: methods draw any "
            "row at any step, and a stream has only the next one; load it whole, which datasets "
            "keeps on disk (streaming=False)"
        )
    parts = dict(given) if isinstance(given, Mapping) else {WHOLE: given}
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
    rows = _relevant_rows(dataset, label)
    if left_out := len(dataset) - len(rows):
        rule = "%d of %d rows are not relevant, by their label 0, and do not train"
        log.warning(f"%s: {rule}", place, left_out, len(dataset))
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    distinct: tuple[list[str], list[str]] = ([], [])
    lists: dict[str, int] = {}
    pair_query, pair_doc = pair = np.empty((2, len(rows)), dtype=np.int64)
    digest = hashlib.sha256()
    for start in range(0, len(rows), ROWS_AT_ONCE):  # the data set may be larger than memory
        of_batch = rows[start : start + ROWS_AT_ONCE]
        batch = dataset[of_batch]
        for column in columns:
            values, of_values = batch[column], of_batch
            if column not in columns[:2] and isinstance(values[0], list):
                values = _opened(values, place, column, of_batch)
                counts = [len(own) for own in batch[column]]
                of_values = np.repeat(of_batch, counts)
                lists[column] = min(lists.get(column, min(counts)), min(counts))
            _refuse_no_texts(values, place, column, of_values, column in columns[:2])
        for into, column, known, first in zip(pair, columns, numbers, distinct, strict=False):
            texts = batch[column]
            for row, text in enumerate(texts, start):
                into[row] = known.setdefault(without_extra_space(text), len(known))
                if into[row] == len(first):
                    first.append(text)
            digest.update(json.dumps(texts).encode())
    order = np.argsort(pair_query, kind="stable")
    pairs = TrainingPairs.from_arrays(pair_query[order], pair_doc[order])
    if repeated := pairs.n_pairs - len(np.unique(pair_keys(pair_query, pair_doc))):
        note = "%d rows repeat the query and positive of another row; each counts as a pair"
        log.info(f"note: %s: {note}", place, repeated)
    queries, corpus = (
        TextTable.from_texts({str(number): text for number, text in enumerate(texts)})
        for texts in distinct
    )
    data = RetrievalData(name or "dataset", place, digest.hexdigest(), corpus, queries, {})
    return PairRows(name, dataset, columns, lists, data, pairs, rows[order])


def _relevant_rows(dataset: Dataset, label: str | None) -> NDArray[np.int64]:
    """The rows that are relevant pairs: all but those whose label is 0 or less.

    All rows are relevant if no label is above 0, as sentence-transformers' own examples have it, or
    if labels have fractions: those are scores for the loss, and so are lists.
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


def _opened(values: list[Any], place: str, column: str, rows: IntArray) -> list[Any]:
    """The texts of the lists of a column in some rows."""
    for row, value in zip(rows, values, strict=True):
        if not isinstance(value, list) or not value:
            raise DataError(
                f"{place}: row {row}, column {shown(column)}: must be a list of one text or more, "
                f"as in other rows, got {shown(value)}"
            )
    return [text for own in values for text in own]


def _refuse_no_texts(
    values: list[Any], place: str, column: str, rows: IntArray, of_pair: bool
) -> None:
    """Refuse what is no text in a column, and in those of the pair what is empty; ``rows`` are
    where the values stand.
    """
    for row, value in zip(rows, values, strict=True):
        if not isinstance(value, str) or (of_pair and not value.strip()):
            rule = "a text that is not empty" if of_pair else "a text"
            advice = (
                f"of the columns that are no label ({', '.join(LABEL_COLUMNS)}) the first two are "
                "the query and its positive, and the others negatives; "
                f"dataset.remove_columns({shown(column)}) leaves one out"
            )
            if value is None or isinstance(value, str):
                text = f"(row[{shown(column)}] or '').strip()"
                advice = f"dataset.filter(lambda row: {text}) leaves such rows out"
            elif of_pair and isinstance(value, list):
                advice = "make a row of each text; only negatives may be lists"
            raise DataError(
                f"{place}: row {row}, column {shown(column)}: must be {rule}, got {shown(value)}; "
                f"{advice}"
            )


def prompt_of(prompts: Prompts, name: str, column: str) -> str:
    """Return the prompt that sentence-transformers' collator puts before a column of a data set;
    empty for none. ``name`` is that of the data set, where there are several."""
    if isinstance(prompts, Mapping):
        prompts = prompts.get(name, prompts) if name else prompts
    if isinstance(prompts, Mapping):
        prompts = prompts.get(column)
    return prompts if isinstance(prompts, str) else ""
