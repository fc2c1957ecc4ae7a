"""Which grades count as relevant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opera.core.arguments import whole_number
from opera.core.terminal import counted
from opera.data.retrieval_data import RetrievalData


def with_relevant_grade(data: RetrievalData, lowest: int) -> RetrievalData:
    """Set positive grades below ``lowest`` to 0 (not relevant) in every split; a note counts them.

    Higher grades do not change, because they are the gains of nDCG.

    Raises:
        SettingError: if ``lowest`` is not a whole number of 1 or more.
    """
    lowest = whole_number(lowest, "relevant_grade", 1)
    grades = {name: qrels.grades for name, qrels in data.splits.items()}
    low = {name: (values > 0) & (values < lowest) for name, values in grades.items()}
    below = sum(int(values.sum()) for values in low.values())
    if below == 0:
        return replace(data, lowest_grade=max(lowest, data.lowest_grade))
    splits = {
        name: replace(qrels, grades=np.where(low[name], 0, qrels.grades).astype(np.int32))
        for name, qrels in data.splits.items()
    }
    note = f"relevant_grade={lowest}: {counted(below, 'judgement')} below it become not relevant"
    return replace(data, splits=splits, notes=(*data.notes, note), lowest_grade=lowest)
