"""Sizes, grades, positives per query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opera.data import RetrievalData


@dataclass(frozen=True)
class Spread:
    """How positive documents are spread over the training queries.

    Attributes:
        mean: positives a query.
        quantiles: lowest, 25%, median, 75%, highest.
        one: share of the queries that have exactly one.
        most_common_document: in how many training pairs the most often labelled document stands.
    """

    mean: float
    quantiles: tuple[float, ...]
    one: float
    most_common_document: int


def grades_of(data: RetrievalData) -> dict[str, dict[int, int]]:
    """Count the qrels of each split by grade."""
    return {
        name: {int(g): int(c) for g, c in zip(*np.unique(split.grades, return_counts=True), strict=True)}
        for name, split in data.splits.items()
    }


def spread_of(data: RetrievalData) -> Spread:
    """Measure how the training pairs are spread over queries and documents."""
    training = data.training_split()
    counts = np.diff(training.offsets)
    return Spread(
        mean=float(counts.mean()),
        quantiles=tuple(np.quantile(counts, [0, 0.25, 0.5, 0.75, 1]).tolist()),
        one=float((counts == 1).mean()),
        most_common_document=int(np.bincount(training.doc_rows).max()),
    )
