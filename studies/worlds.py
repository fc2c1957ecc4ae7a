"""The worlds of the studies: open data sets as they are, with new documents at test time, or with few queries.

A world's name is a data set and what was done to it: ``toollens``, ``toollens+new`` (the test split is drawn from train
so that train names none of its documents), ``scifact+n60`` (60 training queries), ``toollens+new+n200``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from opera.core.rng import generator
from opera.data import RetrievalData, load_data
from opera.data.splits import hold_out

DATA = Path("../shared/data")
MODEL = "../shared/models/potion-base-4m"
NEW_TEST = 0.15
"""Share of the train queries that become the test split of a ``+new`` world, at most :data:`MOST_NEW_TEST`."""
MOST_NEW_TEST = 1000
SPLIT_SEED = 100
"""The split of a world is the same for every seed of training."""


def load_world(name: str, seed: int = 0) -> RetrievalData:
    """Load a world without its dev split: the guard draws its own. ``seed`` draws the queries of ``+n60``."""
    base, *changes = name.split("+")
    data = load_data(DATA / base)
    data = replace(data, splits={split: qrels for split, qrels in data.splits.items() if split != "dev"})
    for change in changes:
        data = _with_new_documents(data) if change == "new" else _with_few_queries(data, int(change[1:]), seed)
    return data


def _with_new_documents(data: RetrievalData) -> RetrievalData:
    """Replace the test split by one of new documents, drawn from train."""
    alone = replace(data, splits={"train": data.split("train")})
    fraction = min(NEW_TEST, MOST_NEW_TEST / data.training_split().n_queries)
    return hold_out(alone, "test", fraction, SPLIT_SEED, "new-documents")


def _with_few_queries(data: RetrievalData, count: int, seed: int) -> RetrievalData:
    """Keep ``count`` random train queries."""
    train = data.split("train")
    kept = np.zeros(train.n_queries, dtype=bool)
    kept[generator(seed, "world.queries").permutation(np.flatnonzero(train.has_relevant))[:count]] = True
    return replace(data, splits={**data.splits, "train": train.select_queries(kept)})
