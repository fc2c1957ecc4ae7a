"""Quality on hard, medium and easy test queries (Appendix D.6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.experiments.analysis.groups import Group

BUCKETS = ("hard", "medium", "easy")


def tertiles(similarity: FloatArray) -> NDArray[np.int64]:
    """Split queries ``[n]`` into thirds by the pretrained similarity to their positives (Appendix D.6).

    Returns:
        int64 ``[n]``: 0 hard (least similar), 1 medium, 2 easy.
    """
    rank = np.argsort(np.argsort(similarity, kind="stable"), kind="stable")
    return np.asarray(len(BUCKETS) * rank // len(similarity), dtype=np.int64)


def measure_by_difficulty(
    group: Group, measure: str, when: str = "after"
) -> dict[str, float] | None:
    """Average a measure in each third of the queries, then over the seeds.

    Args:
        group: the runs.
        measure: the measure.
        when: ``after`` training, or ``before``.

    Returns:
        The mean by bucket; ``None`` where a run recorded no similarity, lacks the measure or has too few queries.
    """
    means = []
    for table in group.query_tables:
        column = f"{when} {measure}"
        if not {"similarity", column} <= set(table.column_names) or table.num_rows < len(BUCKETS):
            return None
        third = tertiles(table["similarity"].to_numpy())
        values = table[column].to_numpy()
        means.append([values[third == number].mean() for number in range(len(BUCKETS))])
    return dict(zip(BUCKETS, np.mean(means, axis=0).tolist(), strict=True))
