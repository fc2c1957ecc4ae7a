"""The report's per-query explorer: each test query with its values, and what was found before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opera.core.errors import InputError
from opera.data import RetrievalData, TextTable, load_data
from opera.experiments.analysis import BUCKETS, PRIMARY, Group, query_differences, tertiles

MOST_QUERIES = 600
"""More test queries than these are cut to those whose measure moved most, up and down."""

MOST_CHARACTERS = 400

Columns = dict[str, tuple[float, list[str]]]
"""By query: a method's mean measure, and what its first seed's model found."""


def explorer(groups: Sequence[Group], baseline: str | None, source: str | None = None) -> dict[str, Any]:
    """Gather what the explorer shows of one data set.

    Args:
        groups: the groups on it, one a method, the same number of steps.
        baseline: label that the others are tested against.
        source: where the texts are; ``None``: where the runs say.

    Returns:
        Queries, documents by number, the measure, and a note where texts are not to be had or queries were left out.
    """
    first = groups[0]
    table = first.query_tables[0]
    ids = table["query_id"].to_pylist()
    numbers: dict[str, int] = {}
    before = table[f"before {PRIMARY}"].to_numpy()
    columns = {group.method: _columns(group) for group in groups}
    chosen = _chosen(groups, columns, baseline, ids, before)
    thirds = tertiles(table["similarity"].to_numpy()) if "similarity" in table.column_names else None
    relevant = table["relevant"].to_pylist() if "relevant" in table.column_names else None

    def documents(names: Sequence[str]) -> list[int]:
        return [numbers.setdefault(name, len(numbers)) for name in names]

    untrained = table["before documents"].to_pylist()
    queries = []
    for place in chosen:
        name = ids[place]
        values = {label: found[name] for label, found in columns.items() if name in found}
        queries.append(
            {
                "id": name,
                "third": None if thirds is None else BUCKETS[thirds[place]],
                "before": round(float(before[place]), 4),
                "values": {label: round(value, 4) for label, (value, _) in values.items()},
                "found_before": documents(untrained[place]),
                "found": {label: documents(found) for label, (_, found) in values.items()},
                "relevant": None if relevant is None else documents(relevant[place]),
            }
        )
    left_out = len(ids) - len(chosen)
    notes = [f"{left_out:,} queries that moved least are left out"] if left_out else []
    if unknown := len(set().union(*columns.values()).difference(ids)):
        notes.append(f"{unknown:,} queries that the first run does not test are left out")
    data = _loaded(source or first.data, first.runs[0].record.data.fingerprint, notes)
    query_texts = [query["id"] for query in queries]
    shown = sorted({number for query in queries for found in _found(query) for number in found})
    names = list(numbers)
    return {
        "measure": PRIMARY,
        "queries": queries,
        "query_texts": query_texts if data is None else _texts(data.queries, query_texts),
        "documents": names,
        "document_texts": {}
        if data is None
        else dict(zip(map(str, shown), _texts(data.corpus, [names[number] for number in shown]), strict=True)),
        "note": "; ".join(notes),
    }


def _found(query: dict[str, Any]) -> list[list[int]]:
    return [query["found_before"], *query["found"].values()]


def _columns(group: Group) -> Columns:
    """Of each query the mean measure over the seeds, and what the first seed's model found."""
    values: dict[str, list[float]] = {}
    found: dict[str, list[str]] = {}
    for table in group.query_tables:
        columns = (table[name].to_pylist() for name in ("query_id", "after documents", f"after {PRIMARY}"))
        for name, documents, value in zip(*columns, strict=True):
            found.setdefault(name, documents)
            values.setdefault(name, []).append(value)
    return {name: (float(np.mean(values[name])), found[name]) for name in values}


def _chosen(
    groups: Sequence[Group], columns: dict[str, Columns], baseline: str | None, ids: list[str], before: np.ndarray
) -> list[int]:
    """Places of the queries to show: all, or those that some method moved most against the baseline."""
    if len(ids) <= MOST_QUERIES:
        return list(range(len(ids)))
    reference = next((group for group in groups if group.method == baseline), None)
    largest = dict.fromkeys(ids, 0.0)
    for group in groups:
        if reference is not None and group is not reference:
            moved = dict(zip(*query_differences(group, reference, PRIMARY), strict=True))
        else:
            own = columns[group.method]
            moved = {name: own[name][0] - before[at] for at, name in enumerate(ids) if name in own}
        for name, change in moved.items():
            if name in largest:
                largest[name] = max(largest[name], abs(float(change)))
    order = np.argsort([-largest[name] for name in ids], kind="stable")[:MOST_QUERIES]
    return sorted(order.tolist())


def _loaded(source: str, fingerprint: str, notes: list[str]) -> RetrievalData | None:
    if not source.startswith("python:") and not Path(source).exists():
        notes.append(f"{source} is not there, so ids stand for texts; opera report --data says where it is")
        return None
    try:
        data = load_data(source)
    except InputError as error:
        notes.append(f"no texts: {error}")
        return None
    if data.fingerprint != fingerprint:
        notes.append(f"{source} is not what the runs were trained on: its texts may have changed since")
    return data


def _texts(table: TextTable, ids: Sequence[str]) -> list[str]:
    """The text of each id, cut short; the id itself where there is none."""
    rows = table.find_rows(ids)
    texts = iter(table.texts(rows[rows >= 0]))
    return [_cut(next(texts)) if row >= 0 else name for name, row in zip(ids, rows, strict=True)]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
