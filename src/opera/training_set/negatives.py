"""Explicit negatives for training queries: random, mined from the pretrained ranking, or given with the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.errors import SettingError
from opera.core.rng import generator
from opera.retrieval.measures import Ranking
from opera.training_set.known_positives import KnownPositives


class Negatives(Protocol):
    """Where the explicit negatives of a batch come from."""

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return corpus rows, int64 ``[B, count]``, for training queries ``[B]`` at a step."""
        ...


@dataclass(frozen=True)
class RandomNegatives:
    """Uniform over the corpus."""

    n_docs: int

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return uniform rows; known positives among them are left to the loss's mask."""
        return generator(seed, "negatives", step).integers(self.n_docs, size=(len(queries), count))


@dataclass(frozen=True)
class ListedNegatives:
    """Uniform over a list for each query; over the corpus for a query whose list is empty.

    Attributes:
        offsets: int64 ``[n + 1]``; query q's list is ``offsets[q]`` to ``offsets[q + 1]``.
        doc_rows: int32, corpus rows.
        n_docs: size of the corpus.
    """

    offsets: NDArray[np.int64]
    doc_rows: NDArray[np.int32]
    n_docs: int

    @classmethod
    def of(cls, lists: Sequence[IntArray], n_docs: int) -> ListedNegatives:
        """Build from one array of corpus rows a query."""
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int64)
        rows = np.concatenate(lists) if lists else np.empty(0)
        return cls(offsets, rows.astype(np.int32), n_docs)

    @property
    def without(self) -> int:
        """How many queries have an empty list."""
        return int((np.diff(self.offsets) == 0).sum())

    def draw(self, queries: IntArray, count: int, seed: int, step: int) -> NDArray[np.int64]:
        """Return rows without repeats where a list is long enough for that; the same cost for lists of any length."""
        rng = generator(seed, "negatives", step)
        starts = self.offsets[queries]
        lengths = self.offsets[np.asarray(queries) + 1] - starts
        places = np.empty((len(queries), count), dtype=np.int64)
        distinct = lengths >= count
        for at in range(count):
            # Without repeats: a place among those not yet taken, moved past the taken ones before it.
            place = rng.integers(np.where(distinct, lengths - at, np.maximum(lengths, 1)))
            for taken in np.sort(places[:, :at], axis=1).T:
                place += distinct & (place >= taken)
            places[:, at] = place
        empty = lengths == 0
        if not empty.any():
            return np.asarray(self.doc_rows[starts[:, None] + places], dtype=np.int64)
        drawn = rng.integers(self.n_docs, size=places.shape)
        drawn[~empty] = self.doc_rows[starts[~empty, None] + places[~empty]]
        return drawn


def check_range(ranks: tuple[int, int], n_docs: int, name: str = "range") -> None:
    """Refuse a rank range that starts past the corpus.

    Raises:
        SettingError: with the numbers.
    """
    if ranks[0] > n_docs:
        raise SettingError(f"{name}={ranks[0]}:{ranks[1]} starts past the end of the corpus ({n_docs} documents)")


def mine_hard_negatives(
    ranking: Ranking,
    known: KnownPositives,
    ranks: tuple[int, int],
    keep: int,
    seed: int,
) -> ListedNegatives:
    """Of the corpus ranked for each training query keep documents from ranks LO to HI that are no known positives.

    Positives count as ranks; where more than ``keep`` are left, a random ``keep`` of them stay (the
    release).

    Args:
        ranking: the corpus ranked for each training query by the pretrained model, down to rank HI.
        known: the known positives.
        ranks: LO and HI, from 1, both included.
        keep: most negatives a query.
        seed: of the sampling.
    """
    check_range(ranks, known.n_docs)
    candidates = ranking.doc_rows[:, ranks[0] - 1 : ranks[1]]
    allowed = ~known.contains(np.arange(len(candidates))[:, None], candidates)
    rng = generator(seed, "mine")
    lists = []
    for row, fine in zip(candidates, allowed, strict=True):
        left = row[fine]
        lists.append(left if len(left) <= keep else left[np.sort(rng.choice(len(left), keep, replace=False))])
    return ListedNegatives.of(lists, known.n_docs)
