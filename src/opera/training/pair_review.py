"""Report which rows of a user's data set look wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.review import Item, Labelled, NextStep, training_items
from opera.training.sampler import Sampler
from opera.training.user_pairs import UserPairs

AFTER_REVIEW = NextStep(
    "decisions.csv",
    """\
import csv

with open("decisions.csv", encoding="utf-8", newline="") as file:
    wrong = {int(row["doc_id"]) for row in csv.DictReader(file) if row["decision"] == "wrong"}
dataset = dataset.select(row for row in range(len(dataset)) if row not in wrong)
""",
)
"""Python that removes the wrong rows."""


@dataclass(frozen=True)
class LabelledRows(Labelled):
    """Labelled pairs with their rows of ``pruning.dataset``, int64 ``[N]``."""

    row_of_pair: NDArray[np.int64]

    def pair(self, pair_id: int, stratum: str | None, why: str, rank: float | None = None) -> Item:
        """Describe a pair; both ids are the row number."""
        row = str(self.row_of_pair[pair_id])
        return {**super().pair(pair_id, stratum, why, rank), "query_id": row, "doc_id": row}


def pair_noise(data_set: UserPairs, sampler: Sampler) -> NoisyLabels | None:
    """Estimate which pairs have wrong labels."""
    return estimate(data_set.pairs, sampler.all_visits(), sampler.kept)


def review_items(data_set: UserPairs, sampler: Sampler, seed: int) -> dict[str, Any]:
    """Describe the pairs to review; their ids are rows of ``pruning.dataset``."""
    pairs, visits = data_set.pairs, sampler.all_visits()
    query_rows = np.arange(pairs.n_queries, dtype=np.int32)
    labelled = LabelledRows(data_set.data, query_rows, pairs, data_set.row_of_pair)
    return training_items(labelled, pair_noise(data_set, sampler), visits, sampler.kept, seed)


def noisy_rows(data_set: UserPairs, sampler: Sampler) -> NoisyLabels | None:
    """Return the estimate by row of ``pruning.dataset``; NaN for a row without a pair."""
    of_pairs = pair_noise(data_set, sampler)
    if of_pairs is None:
        return None
    rows = data_set.row_of_pair
    by_row = np.full(len(data_set.dataset), np.nan, dtype=of_pairs.probability_wrong.dtype)
    by_row[rows] = of_pairs.probability_wrong
    return replace(of_pairs, probability_wrong=by_row, suspicious=rows[of_pairs.suspicious])
