"""Several data sets that a run trains on and measures together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.arguments import flag
from opera.core.arrays import IntArray
from opera.core.errors import DataError
from opera.data.names import DataName, source_title
from opera.data.pairs import DecidedPairs
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.retrieval_data import RetrievalData
from opera.data.text_files import checked_encoding
from opera.data.texts import TextTable


class ListOptions(NamedTuple):
    """How to read lists of pairs, such as decisions.

    Attributes:
        encoding: the Python name of their encoding; ``None``: UTF-8.
        skip_bad_rows: whether to leave out rows that break a rule.
    """

    encoding: str | None = None
    skip_bad_rows: bool = False

    @classmethod
    def checked(cls, encoding: str | None, skip_bad_rows: bool) -> Self:
        """Check a user's options.

        Raises:
            SettingError: for an encoding that Python does not know.
        """
        return cls(checked_encoding(encoding), flag(skip_bad_rows, "skip_bad_rows"))


STRICT_UTF8 = ListOptions()


@dataclass(frozen=True)
class Mixture:
    """One data set, or several that a run trains on together.

    A query ranks only the documents of its data set, and only they are its negatives. So code that
    ranks, samples or splits loops over ``data_sets``. Code that looks up texts uses ``joined``.

    Attributes:
        data_sets: the data sets, with different names.
        joined: all of them as one data set, whose ids are SET/ID; or the only one, unchanged. The
            rows of a data set follow those of the data set before it.
        first_rows: the first row of each data set in the joined query table and corpus.
        decided: the decisions about each data set.
        list_options: how to read lists of pairs of these data.
    """

    data_sets: tuple[RetrievalData, ...]
    joined: RetrievalData
    first_rows: list[tuple[int, int]]
    decided: tuple[DecidedPairs, ...]
    list_options: ListOptions = STRICT_UTF8

    @classmethod
    def of(cls, *data_sets: RetrievalData) -> Mixture:
        """Give the data sets different names, and join them. Texts stay memory-mapped.

        Raises:
            DataError: if a data set occurs twice.
        """
        if len(data_sets) == 1:
            return cls(data_sets, data_sets[0], [(0, 0)], (DecidedPairs(),))
        named: list[RetrievalData] = []
        for position, data in enumerate(data_sets):
            if equal := [
                other.title
                for other in data_sets[:position]
                if other.fingerprint == data.fingerprint
            ]:
                problem = (
                    "is given twice"
                    if equal[0] == data.title
                    else f"is the same data as {equal[0]}"
                )
                raise DataError(f"{data.title}: {problem}; pass each data set once")
            taken = {other.name for other in named}
            stem = data.name.replace("/", "-")  # ids are SET/ID
            names = chain([stem], (f"{stem}-{number}" for number in count(2)))
            named.append(replace(data, name=next(name for name in names if name not in taken)))
        corpus = _joined_tables(named, [data.corpus for data in named])
        queries = _joined_tables(named, [data.queries for data in named])
        sizes = [(len(data.queries), len(data.corpus)) for data in named]
        first_rows = [tuple(rows) for rows in np.cumsum([(0, 0), *sizes], axis=0)[:-1].tolist()]
        joined = _joined(named, corpus, queries, first_rows)
        return cls(tuple(named), joined, first_rows, (DecidedPairs(),) * len(named))

    @property
    def is_single(self) -> bool:
        """Whether there is only one data set."""
        return len(self.data_sets) == 1

    @property
    def source(self) -> str:
        """The user's arguments."""
        return " + ".join(str(data_set.source) for data_set in self.data_sets)

    def sets_of_queries(self, query_rows: IntArray) -> NDArray[np.int64]:
        """Return the number of the data set of each row of the joined query table; -1 below 0."""
        first_rows = [first_query_row for first_query_row, _ in self.first_rows]
        return np.searchsorted(first_rows, query_rows, side="right") - 1

    def sets_of_documents(self, doc_rows: IntArray) -> NDArray[np.int64]:
        """Return the number of the data set of each row of the joined corpus; -1 below 0."""
        first_rows = [first_doc_row for _, first_doc_row in self.first_rows]
        return np.searchsorted(first_rows, doc_rows, side="right") - 1

    def with_relevant(self, split: str) -> list[RetrievalData]:
        """Return the data sets with a relevant pair in ``split``."""
        return [
            data_set
            for data_set in self.data_sets
            if split in data_set.splits and data_set.splits[split].has_relevant.any()
        ]

    def map(
        self, change: Callable[..., RetrievalData], *others: Mixture, **settings: Any
    ) -> Mixture:
        """Apply a change of splits, judgements or notes to each data set.

        A change may also read the same data set in ``others``, which are other versions.
        """
        versions = zip(self.data_sets, *(other.data_sets for other in others), strict=True)
        return self.with_data_sets([change(*data_sets, **settings) for data_sets in versions])

    def with_data_sets(self, data_sets: Sequence[RetrievalData]) -> Mixture:
        """Return the mixture with other versions of its data sets, which have the same texts."""
        joined = data_sets[0]
        if not self.is_single:
            joined = _joined(data_sets, self.joined.corpus, self.joined.queries, self.first_rows)
        return replace(self, data_sets=tuple(data_sets), joined=joined)


Source: TypeAlias = DataName | Path | RetrievalData | Mixture
"""Loaded data sets, or the place to load one from."""


def _joined_tables(data_sets: Sequence[RetrievalData], tables: Sequence[TextTable]) -> TextTable:
    """Concatenate tables, and put the name of the data set before each id."""
    ids = [
        pc.binary_join_element_wise(data.name, chunk, "/")
        for data, table in zip(data_sets, tables, strict=True)
        for chunk in table.table["id"].chunks
    ]
    texts = pa.concat_tables([table.table for table in tables])
    texts = texts.set_column(0, "id", pa.chunked_array(ids, pa.string()))
    return TextTable(texts, parts=tuple(tables))


def _joined(
    data_sets: Sequence[RetrievalData],
    corpus: TextTable,
    queries: TextTable,
    first_rows: Sequence[tuple[int, int]],
) -> RetrievalData:
    """Join splits, negatives and scores of data sets, with the rows of the joined tables."""
    prompts = {data.query_prompt for data in data_sets}
    notes = [
        note if note.startswith(f"{data.name}: ") else f"{data.name}: {note}"
        for data in data_sets
        for note in data.notes
    ]
    if len(prompts) > 1:
        notes.append(
            "the data sets have different query prompts, so OPERA uses none; set one for all with "
            "query_prompt"
        )
    contents = "".join(f"\0{data.name}\0{data.fingerprint}" for data in data_sets)
    splits = dict.fromkeys(split for data in data_sets for split in data.splits)
    return RetrievalData(
        name="+".join(data.name for data in data_sets),
        source=" + ".join(source_title(data.source) for data in data_sets),
        fingerprint=hashlib.sha256(f"combined{contents}".encode()).hexdigest(),
        corpus=corpus,
        queries=queries,
        splits={
            split: joined
            for split in splits
            if (joined := _joined_qrels([data.splits.get(split) for data in data_sets], first_rows))
        },
        given_negatives=DocumentLists.joined(
            [data.given_negatives for data in data_sets],
            [len(data.queries) for data in data_sets],
            [first_doc_row for _, first_doc_row in first_rows],
        ),
        held_out=_joined_qrels([data.held_out for data in data_sets], first_rows),
        teacher=_joined_teacher([data.teacher for data in data_sets], first_rows),
        query_prompt=prompts.pop() if len(prompts) == 1 else None,
        notes=tuple(notes),
        lowest_grade=max(data.lowest_grade for data in data_sets),
    )


def _joined_qrels(
    qrels: Sequence[Qrels | None], first_rows: Sequence[tuple[int, int]]
) -> Qrels | None:
    qrels_and_rows = zip(qrels, first_rows, strict=True)
    shifted = [of_set.shifted(*rows_of_set) for of_set, rows_of_set in qrels_and_rows if of_set]
    return reduce(Qrels.union, shifted) if shifted else None


def _joined_teacher(
    teachers: Sequence[TeacherScores | None], first_rows: Sequence[tuple[int, int]]
) -> TeacherScores | None:
    shifted = [
        (scores.query_rows + first_query_row, scores.doc_rows + first_doc_row, scores.scores)
        for scores, (first_query_row, first_doc_row) in zip(teachers, first_rows, strict=True)
        if scores is not None
    ]
    if not shifted:
        return None
    return TeacherScores.from_arrays(*map(np.concatenate, zip(*shifted, strict=True)))
