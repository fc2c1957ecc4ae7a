"""Several data sets as one: the tables one after another, ids with the name of their set in front.

A document is ranked, and drawn as a negative, for queries of its own set alone. So whatever ranks, draws or splits goes
through the :func:`views` of the sets; what looks texts up takes the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opera.core.cache import cached
from opera.core.errors import DataError
from opera.data.parts import DataPart
from opera.data.qrels import GivenNegatives, Qrels
from opera.data.retrieval_data import RetrievalData
from opera.data.teacher import TeacherScores
from opera.data.texts import TextTable

IDS_SCHEMA = pa.schema([("id", pa.string())])


def combine(sets: Sequence[RetrievalData]) -> RetrievalData:
    """Make one data set of several. Texts stay where they are, memory-mapped; ids are stored anew in the cache.

    Raises:
        DataError: if one is given twice, or is several data sets itself.
    """
    _check_different(sets)
    names = _names(sets)
    total = hashlib.sha256(b"combined")
    for name, data in zip(names, sets, strict=True):
        total.update(f"\0{name}\0{data.fingerprint}".encode())
    fingerprint = total.hexdigest()
    corpora, queries = [data.corpus for data in sets], [data.queries for data in sets]
    parts = tuple(
        DataPart(
            name,
            data.source,
            data.fingerprint,
            data.corpus,
            data.queries,
            int(document),
            int(query),
            _weighted(data),
        )
        for name, data, document, query in zip(
            names, sets, _firsts(corpora), _firsts(queries), strict=True
        )
    )
    prompts = {data.query_prompt for data in sets}
    notes = _named(names, sets)
    if len(prompts) > 1:
        notes.append(
            "the data sets have different query prompts: none is used; give one for all with query_prompt"
        )
    whole = RetrievalData(
        name="+".join(names),
        source=" + ".join(data.source for data in sets),
        fingerprint=fingerprint,
        corpus=_with_names(corpora, names, f"{fingerprint}/corpus"),
        queries=_with_names(queries, names, f"{fingerprint}/queries"),
        splits={},
        query_prompt=prompts.pop() if len(prompts) == 1 else None,
        notes=tuple(notes),
        left_out=_sums([data.left_out for data in sets]),
        parts=parts,
    )
    return _with_contents(whole, sets)


def views(data: RetrievalData, split: str | None = None) -> list[RetrievalData]:
    """Return the data sets that ``data`` is made of, each as a data set of its own with its own ids and no notes.

    Args:
        data: one data set, which is returned as it is, or several.
        split: only those with a relevant judgement in this split.
    """
    found = [_view(data, number) for number in range(len(data.parts))] if data.parts else [data]
    return [
        view
        for view in found
        if split is None or (split in view.splits and view.splits[split].has_relevant.any())
    ]


def one_set(data: RetrievalData, use: str) -> RetrievalData:
    """Return the data as they are.

    Raises:
        DataError: if they are several data sets; ``use`` names what takes one.
    """
    if data.parts:
        raise DataError(
            f"{data.title}: is several data sets, and {use} takes one; call it for each"
        )
    return data


def for_each(
    data: RetrievalData, change: Callable[[RetrievalData], RetrievalData]
) -> RetrievalData:
    """Apply a change to each of several data sets that leaves its tables as they are; its notes get the set's name."""
    changed = [change(view) for view in views(data)]
    notes = _named([part.name for part in data.parts], changed)
    return _with_contents(replace(data, notes=(*data.notes, *notes)), changed)


def _check_different(sets: Sequence[RetrievalData]) -> None:
    for at, data in enumerate(sets):
        if data.parts:
            raise DataError(f"{data.title}: is several data sets already; give each alone")
        if twice := [other.title for other in sets[:at] if other.fingerprint == data.fingerprint]:
            how = "is given twice" if twice[0] == data.title else f"is the same data as {twice[0]}"
            raise DataError(f"{data.title}: {how}; give each data set once")


def _names(sets: Sequence[RetrievalData]) -> list[str]:
    """The name of each set, with a number behind the second of a name."""
    names: list[str] = []
    for data in sets:
        name, number = data.name, 2
        while name in names:
            name, number = f"{data.name}-{number}", number + 1
        names.append(name)
    return names


def _weighted(data: RetrievalData) -> bool:
    return "train" in data.splits and data.splits["train"].weights is not None


def _named(names: Sequence[str], sets: Sequence[RetrievalData]) -> list[str]:
    """The notes of all sets, each with its set's name in front; those on a file often have it."""
    notes = [
        (f"{name}: ", note) for name, data in zip(names, sets, strict=True) for note in data.notes
    ]
    return [note if note.startswith(name) else f"{name}{note}" for name, note in notes]


def _firsts(tables: Sequence[TextTable]) -> list[int]:
    return [int(first) for first in np.cumsum([0, *map(len, tables)])[:-1]]


def _sums(counts: Sequence[object]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in dict(each).items():  # type: ignore[call-overload]
            total[name] = total.get(name, 0) + count
    return total


def _with_names(tables: Sequence[TextTable], names: Sequence[str], key: str) -> TextTable:
    """Put tables one after another, each id behind the name of its set; the ids are in a file of the cache."""

    def write(folder: Path) -> None:
        with (
            pa.OSFile(str(folder / "ids.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, IDS_SCHEMA) as writer,
        ):
            for name, table in zip(names, tables, strict=True):
                for chunk in table.table["id"].chunks:
                    ids = pc.binary_join_element_wise(pa.scalar(name), chunk, "/")
                    writer.write_batch(pa.record_batch([ids], schema=IDS_SCHEMA))

    home = cached("data", hashlib.sha256(f"ids\0{key}".encode()).hexdigest()[:32], write)
    ids = pa.ipc.open_file(pa.memory_map(str(home / "ids.arrow"))).read_all()["id"]
    texts = pa.concat_tables([table.table for table in tables])
    return TextTable(texts.set_column(texts.column_names.index("id"), IDS_SCHEMA.field("id"), ids))


def _with_contents(whole: RetrievalData, sets: Sequence[RetrievalData]) -> RetrievalData:
    """Fill in splits, negatives and scores from the sets, in the rows of all."""
    splits = {split: None for data in sets for split in data.splits}
    judged = {split: [data.splits.get(split) for data in sets] for split in splits}
    held_out = [data.held_out for data in sets]
    return replace(
        whole,
        splits={split: _joined_qrels(whole, qrels) for split, qrels in judged.items()},
        held_out=_joined_qrels(whole, held_out) if any(held_out) else None,
        given_negatives=_joined_negatives(whole, sets),
        teacher=_joined_teacher(whole, sets),
        lowest_grade=max(data.lowest_grade for data in sets),
    )


def _joined_qrels(whole: RetrievalData, qrels: Sequence[Qrels | None]) -> Qrels:
    parts = [(part, own) for part, own in zip(whole.parts, qrels, strict=True) if own is not None]
    weighted = any(own.weights is not None for _, own in parts)
    return Qrels.from_arrays(
        np.concatenate([own.query_rows[own.query_index] + part.first_query for part, own in parts]),
        np.concatenate([own.doc_rows + part.first_document for part, own in parts]),
        np.concatenate([own.grades for _, own in parts]),
        np.concatenate([own.weights_or_ones() for _, own in parts]) if weighted else None,
    )


def _joined_negatives(whole: RetrievalData, sets: Sequence[RetrievalData]) -> GivenNegatives | None:
    if all(data.given_negatives is None for data in sets):
        return None
    counts, rows = [np.zeros(1, dtype=np.int64)], []
    for part, data in zip(whole.parts, sets, strict=True):
        given = data.given_negatives
        counts.append(
            np.zeros(len(data.queries), dtype=np.int64) if given is None else np.diff(given.offsets)
        )
        rows.append(
            np.empty(0, dtype=np.int32) if given is None else given.doc_rows + part.first_document
        )
    return GivenNegatives(np.cumsum(np.concatenate(counts)), np.concatenate(rows).astype(np.int32))


def _joined_teacher(whole: RetrievalData, sets: Sequence[RetrievalData]) -> TeacherScores | None:
    scored = [
        (part, data.teacher)
        for part, data in zip(whole.parts, sets, strict=True)
        if data.teacher is not None
    ]
    if not scored:
        return None
    return TeacherScores(
        np.concatenate(
            [teacher.query_rows + np.int32(part.first_query) for part, teacher in scored]
        ),
        np.concatenate(
            [teacher.doc_rows + np.int32(part.first_document) for part, teacher in scored]
        ),
        np.concatenate([teacher.scores for _, teacher in scored]),
    )


def _view(data: RetrievalData, number: int) -> RetrievalData:
    part = data.parts[number]
    first, end = part.first_query, part.first_query + len(part.queries)
    own = partial(_own_qrels, part)
    splits = {name: own(qrels) for name, qrels in data.splits.items()}
    negatives, teacher = data.given_negatives, data.teacher
    held_out = None if data.held_out is None else own(data.held_out)
    if negatives is not None:
        start, stop = negatives.offsets[first], negatives.offsets[end]
        offsets, rows = negatives.offsets[first : end + 1] - start, negatives.doc_rows[start:stop]
        negatives = (
            GivenNegatives(offsets, rows - np.int32(part.first_document)) if stop > start else None
        )
    if teacher is not None:
        at = slice(*np.searchsorted(teacher.query_rows, [first, end]).tolist())
        rows = teacher.doc_rows[at] - np.int32(part.first_document)
        teacher = TeacherScores(teacher.query_rows[at] - np.int32(first), rows, teacher.scores[at])
    return RetrievalData(
        name=part.name,
        source=part.source,
        fingerprint=part.fingerprint,
        corpus=part.corpus,
        queries=part.queries,
        splits={name: qrels for name, qrels in splits.items() if len(qrels.doc_rows)},
        given_negatives=negatives,
        held_out=None if held_out is None or len(held_out.doc_rows) == 0 else held_out,
        teacher=None if teacher is None or len(teacher) == 0 else teacher,
        query_prompt=data.query_prompt,
        lowest_grade=data.lowest_grade,
    )


def _own_qrels(part: DataPart, qrels: Qrels) -> Qrels:
    inside = (qrels.query_rows >= part.first_query) & (
        qrels.query_rows < part.first_query + len(part.queries)
    )
    own = qrels.select_queries(inside)
    return replace(
        own,
        query_rows=(own.query_rows - part.first_query).astype(np.int32),
        doc_rows=(own.doc_rows - part.first_document).astype(np.int32),
        weights=own.weights
        if part.weighted
        else None,  # those of a set without weights are ones, filled in
    )
