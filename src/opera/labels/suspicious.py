"""Columns and fields about noisy labels in a run's files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.arrays import BoolArray, IntArray
from opera.data import RetrievalData
from opera.data.pair_files import cut
from opera.data.pairs import TrainingPairs
from opera.labels.estimate import NoisyLabels
from opera.labels.visits import FirstVisits

TEXT = 2000
"""Characters of a document in the list."""


def counts_of(estimate: NoisyLabels, visits: FirstVisits, kept: BoolArray) -> dict[str, Any]:
    """Return the fields of :class:`opera.run_folder.record.NoisyLabelsRecord`."""
    return {
        "noise_rate": estimate.noise_rate,
        "low": estimate.low,
        "high": estimate.high,
        "visited": int(visits.visited.sum()),
        "pruned": int((~kept).sum()),
        "unvisited": int((kept & ~visits.visited).sum()),
        "suspicious": len(estimate.suspicious),
    }


def visit_columns(estimate: NoisyLabels | None, visits: FirstVisits) -> dict[str, Any]:
    """Return columns of ``pairs.parquet`` about first visits; null for pairs without a visit."""
    columns = {"first_rank": visits.p, "first_step": visits.step}
    if estimate is not None:
        columns["probability_wrong"] = estimate.probability_wrong
    return {name: pa.array(values, mask=~visits.visited) for name, values in columns.items()}


def suspicious_columns(
    data: RetrievalData,
    query_rows: IntArray,
    pairs: TrainingPairs,
    estimate: NoisyLabels,
    visits: FirstVisits,
) -> dict[str, list[Any]]:
    """Return the columns of ``suspicious_pairs.csv``, worst pair first.

    Args:
        data: the texts.
        query_rows: int ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        estimate: the estimate for these pairs.
        visits: their first visits.
    """
    listed = estimate.suspicious
    queries, documents = query_rows[pairs.pair_query[listed]], pairs.pair_doc[listed]
    return {
        "probability_wrong": np.round(estimate.probability_wrong[listed].astype(float), 3).tolist(),
        "first_rank": np.round(visits.p[listed].astype(float), 3).tolist(),
        "query_id": data.queries.ids(queries),
        "doc_id": data.corpus.ids(documents),
        "query": data.queries.texts(queries),
        "document": [cut(text, TEXT) for text in data.corpus.texts(documents)],
    }
