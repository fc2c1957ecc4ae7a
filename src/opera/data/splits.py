"""Draw the splits that a data set lacks from its train queries, and apply one data set's splits to another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opera.core.errors import DataError
from opera.core.rng import generator
from opera.data.retrieval_data import RetrievalData


def draw_missing_splits(
    data: RetrievalData, *, seed: int, test_fraction: float, dev_fraction: float | None = None
) -> RetrievalData:
    """Draw a test split from train if there is none, then a dev split likewise if one is needed.

    Args:
        data: the data set.
        seed: of the draws.
        test_fraction: share of the train queries that go to test.
        dev_fraction: share of the remaining train queries that go to dev; ``None`` draws no dev split.

    Raises:
        DataError: if train has too few queries.
    """
    for split, fraction in (("test", test_fraction), ("dev", dev_fraction)):
        if fraction is not None and split not in data.splits:
            data = hold_out(data, split, fraction, seed)
    return data


def hold_out(data: RetrievalData, split: str, fraction: float, seed: int) -> RetrievalData:
    """Move a random share of the train queries to a new split, and add a note.

    Only queries with a relevant document are drawn. At least one is drawn, and at least one stays in train.

    Raises:
        DataError: if train has fewer than two queries with a relevant document.
    """
    train = data.split("train")
    candidates = np.flatnonzero(train.has_relevant)
    if len(candidates) < 2:
        raise DataError(
            f"{data.source}: has no split '{split}', and {len(candidates)} train queries are too few to draw one"
        )
    count = min(max(1, round(fraction * len(candidates))), len(candidates) - 1)
    drawn = np.zeros(train.n_queries, dtype=bool)
    drawn[candidates[generator(seed, f"data.{split}").permutation(len(candidates))[:count]]] = True
    note = f"no {split} split: drew {count} of the {len(candidates)} train queries with seed {seed}"
    splits = {**data.splits, "train": train.select_queries(~drawn), split: train.select_queries(drawn)}
    return replace(data, splits=splits, notes=(*data.notes, note))


def copy_splits(data: RetrievalData, *, source: RetrievalData) -> RetrievalData:
    """Split the train queries of ``data`` as in ``source``, which was made from it; notes come from ``source``."""
    train = data.split("train")
    splits = {
        name: data.splits[name]
        if name in data.splits and name != "train"
        else train.select_queries(np.isin(train.query_rows, qrels.query_rows))
        for name, qrels in source.splits.items()
    }
    return replace(data, splits=splits, notes=source.notes)
