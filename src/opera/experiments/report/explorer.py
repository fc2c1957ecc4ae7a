"""The report's query explorer: each test query with its values and the documents retrieved before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.errors import InputError
from opera.core.terminal import shown
from opera.data import RetrievalData, TextTable, load_data
from opera.data.combined import combine
from opera.data.names import source_title
from opera.data.stored import load_stored, stored_here
from opera.experiments.analysis import BUCKETS, PRIMARY, Group, query_differences, tertiles
from opera.runs.folder import PER_QUERY_FILE
from opera.runs.reading import check_columns
from opera.runs.record import RunRecord

MAX_QUERIES = 600
"""Above this number of test queries only those whose measure changed most, up or down, are shown."""

MAX_CHARACTERS = 400
DOCUMENTS = ("before documents", "after documents")
"""Columns with the ids of what was retrieved."""


@dataclass(frozen=True)
class QueryResult:
    """What a method achieves on one test query.

    Attributes:
        value: the measure, mean over the seeds.
        retrieved: ids of the documents that the first seed's model retrieves.
    """

    value: float
    retrieved: list[str]


class DocumentNumbers:
    """Numbers document ids in the order in which they first appear, so that the page holds each id once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, ids: Sequence[str]) -> list[int]:
        """Return the numbers of these ids."""
        return [self._numbers.setdefault(doc_id, len(self._numbers)) for doc_id in ids]

    @property
    def ids(self) -> list[str]:
        """All ids, by number."""
        return list(self._numbers)


def explorer_data(groups: Sequence[Group], baseline: str | None, source: str | None = None) -> dict[str, Any]:
    """Collect what the explorer shows for one data set.

    Args:
        groups: one per method, all on this data set with the same number of steps.
        baseline: label that the others are tested against.
        source: where the texts are now, by whoever asks for the report; ``None``: the folder or file that the runs
            recorded. Other kinds of data that runs name are not loaded: a run may come from anywhere, and loading
            its data must not run code.

    Returns:
        Queries, documents by number, the measure, and a note where texts are missing or queries were left out.
    """
    for group in groups:
        for run, table in zip(group.runs, group.query_tables, strict=True):
            check_columns(run.path / PER_QUERY_FILE, table, dict.fromkeys(DOCUMENTS, "texts"))
    table = groups[0].query_tables[0]
    check_columns(groups[0].runs[0].path / PER_QUERY_FILE, table, {f"before {PRIMARY}": "measure"})
    ids = table["query_id"].to_pylist()
    before = table[f"before {PRIMARY}"].to_numpy()
    results = {group.method: _query_results(group) for group in groups}
    shown = _most_changed(groups, results, baseline, ids, before)
    thirds = tertiles(table["similarity"].to_numpy()) if "similarity" in table.column_names else None
    relevant = table["relevant"].to_pylist() if "relevant" in table.column_names else None
    retrieved_before = table["before documents"].to_pylist()
    numbers = DocumentNumbers()
    queries = []
    for index in shown:
        query_id = ids[index]
        own = {label: by_query[query_id] for label, by_query in results.items() if query_id in by_query}
        queries.append(
            {
                "id": query_id,
                "third": None if thirds is None else BUCKETS[thirds[index]],
                "before": round(float(before[index]), 4),
                "values": {label: round(result.value, 4) for label, result in own.items()},
                "retrieved_before": numbers.number(retrieved_before[index]),
                "retrieved": {label: numbers.number(result.retrieved) for label, result in own.items()},
                "relevant": None if relevant is None else numbers.number(relevant[index]),
            }
        )
    notes = _omissions(ids, shown, results)
    data = _load_texts(source, groups[0].runs[0].record, notes)
    query_ids = [query["id"] for query in queries]
    return {
        "measure": PRIMARY,
        "queries": queries,
        "query_texts": query_ids if data is None else _texts(data.queries, query_ids),
        "documents": numbers.ids,
        "document_texts": {} if data is None else _document_texts(data.corpus, queries, numbers.ids),
        "note": "; ".join(notes),
    }


def _query_results(group: Group) -> dict[str, QueryResult]:
    values: dict[str, list[float]] = {}
    retrieved: dict[str, list[str]] = {}
    for table in group.query_tables:
        columns = (table[name].to_pylist() for name in ("query_id", "after documents", f"after {PRIMARY}"))
        for query_id, documents, value in zip(*columns, strict=True):
            retrieved.setdefault(query_id, documents)
            values.setdefault(query_id, []).append(value)
    return {query_id: QueryResult(float(np.mean(values[query_id])), retrieved[query_id]) for query_id in values}


def _most_changed(
    groups: Sequence[Group],
    results: Mapping[str, Mapping[str, QueryResult]],
    baseline: str | None,
    ids: Sequence[str],
    before: NDArray[np.float64],
) -> list[int]:
    """Indices of the queries to show: all, or those that some method changed most against the baseline."""
    if len(ids) <= MAX_QUERIES:
        return list(range(len(ids)))
    reference = next((group for group in groups if group.method == baseline), None)
    largest = dict.fromkeys(ids, 0.0)
    for group in groups:
        if reference is not None and group is not reference:
            changes = dict(zip(*query_differences(group, reference, PRIMARY), strict=True))
        else:
            own = results[group.method]
            changes = {query: own[query].value - before[index] for index, query in enumerate(ids) if query in own}
        for query_id in changes.keys() & largest.keys():
            largest[query_id] = max(largest[query_id], abs(float(changes[query_id])))
    order = np.argsort([-largest[query_id] for query_id in ids], kind="stable")[:MAX_QUERIES]
    return sorted(order.tolist())


def _omissions(ids: Sequence[str], shown: Sequence[int], results: Mapping[str, Mapping[str, QueryResult]]) -> list[str]:
    """Notes on the queries that are left out."""
    notes = []
    if omitted := len(ids) - len(shown):
        notes.append(f"the {omitted:,} queries that changed least are left out")
    if unknown := len(set().union(*results.values()).difference(ids)):
        notes.append(f"{unknown:,} queries that the first run does not test are left out")
    return notes


def _load_texts(source: str | None, record: RunRecord, notes: list[str]) -> RetrievalData | None:
    """Load the data set for its texts; adds a note if they are missing or have changed."""
    recorded = [each.source for each in record.sets] if record.sets else [record.data.source]
    place = source or record.data.source
    try:
        if source is None and (gone := [each for each in recorded if not stored_here(each)]):
            advice = "so ids stand for texts; pass the data to opera report --data"
            notes.append(f"{shown(source_title(gone[0]))} is no file or folder here, {advice}")
            return None
        sets = [load_data(source)] if source is not None else [load_stored(each) for each in recorded]
        data = sets[0] if len(sets) == 1 else combine(sets)
    except (InputError, OSError, ValueError) as error:
        notes.append(f"no texts: {error}")
        return None
    if data.fingerprint != record.data.fingerprint:
        notes.append(f"{shown(source_title(place))} is not what the runs were trained on: texts may have changed since")
    return data


def _document_texts(corpus: TextTable, queries: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> dict[str, str]:
    """Text of each retrieved document, by its number."""
    shown = sorted(
        {
            number
            for query in queries
            for documents in (query["retrieved_before"], *query["retrieved"].values())
            for number in documents
        }
    )
    return dict(zip(map(str, shown), _texts(corpus, [ids[number] for number in shown]), strict=True))


def _texts(table: TextTable, ids: Sequence[str]) -> list[str]:
    """The text of each id, truncated; the id itself where there is none."""
    rows = table.find_rows(ids)
    texts = iter(table.texts(rows[rows >= 0]))
    return [_truncate(next(texts)) if row >= 0 else name for name, row in zip(ids, rows, strict=True)]


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
