"""Grades per split and positives per training query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.data import RetrievalData


@dataclass(frozen=True)
class PositivesPerQuery:
    """Distribution of positive documents over the training queries.

    Attributes:
        mean: mean number of positives per query.
        quantiles: minimum, 25%, median, 75%, maximum.
        single_positive_share: share of the queries with exactly one positive.
        most_common_document_pairs: number of training pairs of the most frequent document.
    """

    mean: float
    quantiles: tuple[float, ...]
    single_positive_share: float
    most_common_document_pairs: int


def count_grades(data: RetrievalData) -> dict[str, dict[int, int]]:
    """Count the judgements of each split by grade."""
    return {
        name: {
            int(g): int(c)
            for g, c in zip(*np.unique(qrels.grades, return_counts=True), strict=True)
        }
        for name, qrels in data.splits.items()
    }


def positives_per_query(data: RetrievalData) -> PositivesPerQuery:
    """Describe how the training pairs are distributed over queries and documents."""
    training = data.training_split()
    counts = np.diff(training.offsets)
    return PositivesPerQuery(
        mean=float(counts.mean()),
        quantiles=tuple(np.quantile(counts, [0, 0.25, 0.5, 0.75, 1]).tolist()),
        single_positive_share=float((counts == 1).mean()),
        most_common_document_pairs=int(np.bincount(training.doc_rows).max()),
    )
