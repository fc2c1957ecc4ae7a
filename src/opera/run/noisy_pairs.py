"""What a run stores about the pairs that look wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.arrays import BoolArray, IntArray
from opera.data import RetrievalData
from opera.data.id_lists import cut
from opera.labels.estimate import FirstVisits, NoisyLabels
from opera.labels.review import LONG
from opera.run_folder.record import NoisyLabelsRecord


def noise_record(estimate: NoisyLabels, visits: FirstVisits, kept: BoolArray) -> NoisyLabelsRecord:
    """Return the counts of pairs that look wrong.

    Args:
        estimate: of the pairs ``[N]``.
        visits: their first visits.
        kept: bool ``[N]``, the pairs that are not pruned.
    """
    return NoisyLabelsRecord(
        noise_rate=estimate.noise_rate,
        low=estimate.low,
        high=estimate.high,
        visited=int(visits.visited.sum()),
        pruned=int((~kept).sum()),
        unvisited=int((kept & ~visits.visited).sum()),
        suspicious=len(estimate.suspicious),
    )


def suspicious_table(
    estimate: NoisyLabels,
    visits: FirstVisits,
    data: RetrievalData,
    query_rows: IntArray,
    doc_rows: IntArray,
) -> pa.Table:
    """List the pairs that look wrong, the worst first.

    Args:
        estimate: of the pairs ``[N]``.
        visits: their first visits.
        data: with their texts.
        query_rows: int ``[N]``, the query of each pair.
        doc_rows: int ``[N]``, its document.
    """
    listed = estimate.suspicious
    queries, documents = query_rows[listed], doc_rows[listed]
    return pa.table(
        {
            "probability_wrong": np.round(estimate.probability_wrong[listed].astype(float), 3),
            "first_rank": np.round(visits.p[listed].astype(float), 3),
            "query_id": data.queries.ids(queries),
            "doc_id": data.corpus.ids(documents),
            "query": data.queries.texts(queries),
            "document": [cut(text, LONG) for text in data.corpus.texts(documents)],
        }
    )


def visit_columns(
    estimate: NoisyLabels | None, visits: FirstVisits, rows: slice = slice(None)
) -> dict[str, Any]:
    """Return the columns of ``pairs.parquet`` about first visits for some rows; null for pairs that
    were not visited.
    """
    columns = {"first_rank": visits.p[rows], "first_step": visits.step[rows] + 1}
    if estimate is not None:
        columns["probability_wrong"] = estimate.probability_wrong[rows]
    missing = ~visits.visited[rows]
    return {name: pa.array(values, mask=missing) for name, values in columns.items()}
