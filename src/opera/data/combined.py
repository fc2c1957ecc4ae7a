"""Combine several data sets into one. Tables are concatenated; ids get the prefix SET/.

A document is ranked, or sampled as a negative, only for queries of the same data set. So code that
ranks, samples or splits loops over :func:`data_sets`. Code that looks up texts or trains uses the
combined data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from opera.core.errors import DataError
from opera.data.qrels import DocumentLists, Qrels, TeacherScores
from opera.data.retrieval_data import RetrievalData
from opera.data.texts import TextTable


def combine(sets: Sequence[RetrievalData]) -> RetrievalData:
    """Make one data set of several, and give them different names. Texts stay memory-mapped.

    Raises:
        DataError: if a data set occurs twice, or combines several data sets itself.
    """
    named: list[RetrievalData] = []
    for number, data in enumerate(sets):
        if data.sets:
            raise DataError(
                f"{data.title}: combines several data sets already; pass them separately"
            )
        if equal := [
            other.title for other in sets[:number] if other.fingerprint == data.fingerprint
        ]:
            how = "is given twice" if equal[0] == data.title else f"is the same data as {equal[0]}"
            raise DataError(f"{data.title}: {how}; pass each data set once")
        taken = {other.name for other in named}
        stem = data.name.replace("/", "-")  # ids are SET/ID
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        named.append(replace(data, name=next(name for name in names if name not in taken)))
    corpus = _joined_tables(named, [data.corpus for data in named])
    return _joined(named, corpus, _joined_tables(named, [data.queries for data in named]))


def data_sets(data: RetrievalData, split: str | None = None) -> list[RetrievalData]:
    """Return the sets that ``data`` combines, or ``[data]``; only those with relevant pairs in
    ``split``, if given.
    """
    return [
        data_set
        for data_set in data.sets or (data,)
        if split is None or (split in data_set.splits and data_set.splits[split].has_relevant.any())
    ]


def one_set(data: RetrievalData, use: str) -> RetrievalData:
    """Return the data unchanged.

    Raises:
        DataError: if they combine several data sets; ``use`` names the function that takes one.
    """
    if data.sets:
        raise DataError(
            f"{data.title}: combines several data sets, but {use} takes one; call it for each set"
        )
    return data


def for_each(change: Callable[..., RetrievalData], *data: RetrievalData) -> RetrievalData:
    """Apply a change of splits, judgements or notes to a data set, or to each set of several.

    A change may read several versions of the data. It changes the first version.
    """
    sets = zip(*(data_sets(several) for several in data), strict=True)
    return with_sets(data[0], [change(*parts) for parts in sets])


def with_sets(data: RetrievalData, sets: Sequence[RetrievalData]) -> RetrievalData:
    """Return ``data`` with other versions of its sets, which must have the same texts."""
    return _joined(sets, data.corpus, data.queries) if data.sets else sets[0]


def first_rows(data: RetrievalData) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each set in the query table, and in the corpus: int64 ``[sets + 1]``."""
    return _first_rows(data_sets(data))


def _first_rows(sets: Sequence[RetrievalData]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return (
        np.cumsum([0, *(len(data_set.queries) for data_set in sets)]),
        np.cumsum([0, *(len(data_set.corpus) for data_set in sets)]),
    )


def _joined_tables(sets: Sequence[RetrievalData], tables: Sequence[TextTable]) -> TextTable:
    """Concatenate tables, and put the name of the set before each id."""
    ids = [
        pc.binary_join_element_wise(data.name, chunk, "/")
        for data, table in zip(sets, tables, strict=True)
        for chunk in table.table["id"].chunks
    ]
    texts = pa.concat_tables([table.table for table in tables])
    return TextTable(texts.set_column(0, "id", pa.chunked_array(ids, pa.string())))


def _joined(sets: Sequence[RetrievalData], corpus: TextTable, queries: TextTable) -> RetrievalData:
    """Join splits, negatives and scores of the sets, with the rows of the joined tables."""
    prompts = {data.query_prompt for data in sets}
    notes = [
        note if note.startswith(f"{data.name}: ") else f"{data.name}: {note}"
        for data in sets
        for note in data.notes
    ]
    if len(prompts) > 1:
        notes.append(
            "the data sets have different query prompts, so OPERA uses none; set one for all with "
            "query_prompt"
        )
    contents = "".join(f"\0{data.name}\0{data.fingerprint}" for data in sets)
    firsts = list(zip(*(first.tolist() for first in _first_rows(sets)), strict=True))[:-1]
    splits = dict.fromkeys(split for data in sets for split in data.splits)
    return replace(
        sets[0],
        name="+".join(data.name for data in sets),
        source=" + ".join(data.source for data in sets),
        fingerprint=hashlib.sha256(f"combined{contents}".encode()).hexdigest(),
        corpus=corpus,
        queries=queries,
        splits={
            split: joined
            for split in splits
            if (joined := _joined_qrels([data.splits.get(split) for data in sets], firsts))
        },
        held_out=_joined_qrels([data.held_out for data in sets], firsts),
        confirmed=None,
        rejected=None,
        removed_excess=0,
        given_negatives=DocumentLists.joined(
            [data.given_negatives for data in sets],
            [len(data.queries) for data in sets],
            [document for _, document in firsts],
        ),
        teacher=_joined_teacher([data.teacher for data in sets], firsts),
        query_prompt=prompts.pop() if len(prompts) == 1 else None,
        notes=tuple(notes),
        skipped=None,
        lowest_grade=max(data.lowest_grade for data in sets),
        sets=tuple(sets),
    )


Firsts = Sequence[tuple[int, int]]
"""The first row of each set in the query table, and in the corpus."""


def with_shifted_rows(qrels: Qrels, query: int, document: int) -> Qrels:
    """Shift a set's qrels to the rows of the joined tables.

    ``query`` and ``document`` are the first rows of the set there.
    """
    return replace(
        qrels,
        query_rows=qrels.query_rows + np.int32(query),
        doc_rows=qrels.doc_rows + np.int32(document),
    )


def _joined_qrels(qrels: Sequence[Qrels | None], firsts: Firsts) -> Qrels | None:
    parts = [
        with_shifted_rows(part, *first) for part, first in zip(qrels, firsts, strict=True) if part
    ]
    return reduce(Qrels.union, parts) if parts else None


def _joined_teacher(
    teachers: Sequence[TeacherScores | None], firsts: Firsts
) -> TeacherScores | None:
    moved = [
        (scores.query_rows + query, scores.doc_rows + document, scores.scores)
        for scores, (query, document) in zip(teachers, firsts, strict=True)
        if scores is not None
    ]
    if not moved:
        return None
    return TeacherScores.from_arrays(*map(np.concatenate, zip(*moved, strict=True)))
