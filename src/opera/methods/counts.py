"""Order statistics of many numbers, by counts in buckets, for DP's thresholds.

A step changes only a few numbers, so counts are faster than sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray

LEVEL = 1024
BUCKETS = LEVEL * LEVEL
"""Counts have two levels: a search reads 1,024 groups, then the 1,024 buckets of one group."""


def bucket_of(values: FloatArray) -> NDArray[np.int64]:
    """Return the bucket of each number: int64, from 0 to ``BUCKETS - 1``, rising with the number.

    Buckets divide x/(1 + |x|) evenly, so numbers need no bounds. A bucket is 2e-6 wide at 0, and
    8e-6 at ±1.
    """
    x = np.asarray(values, dtype=np.float64)
    position = (x / (1 + np.abs(x)) + 1) / 2
    return np.asarray(np.minimum(position * BUCKETS, BUCKETS - 1).astype(np.int64))


def upper_edge(bucket: int) -> float:
    """Return the upper edge of a bucket."""
    y = 2 * (bucket + 1) / BUCKETS - 1
    return y / (1 - abs(y)) if y < 1 else np.inf


@dataclass(frozen=True)
class TopK:
    """The K highest of n numbers: all above a bucket, and a random part of the numbers in it.

    Attributes:
        count: K.
        bucket: the bucket of the K-th highest number; ``BUCKETS`` if K is 0.
        above: how many numbers are in higher buckets.
        tied: how many numbers are in this bucket.
    """

    count: int
    bucket: int
    above: int
    tied: int

    def probabilities(self, values: FloatArray) -> NDArray[np.float64]:
        """The probability of each number to be among the K: float64 ``[m]``."""
        bucket = bucket_of(values)
        of_tied = (self.count - self.above) / self.tied if self.tied else 0.0
        return np.where(bucket > self.bucket, 1.0, np.where(bucket == self.bucket, of_tied, 0.0))


NOTHING = TopK(0, BUCKETS, 0, 0)
"""The top 0."""


class Counts:
    """The number of values in each bucket. It takes 4 MB for any n.

    Args:
        values: float ``[n]``, finite.
    """

    def __init__(self, values: FloatArray) -> None:
        self._fine = np.bincount(bucket_of(values), minlength=BUCKETS).astype(np.int32)
        self._coarse = self._fine.reshape(LEVEL, LEVEL).sum(axis=1)
        self.size = len(values)

    def move(self, old: FloatArray, new: FloatArray) -> None:
        """Replace counted numbers ``old`` by ``new``, both ``[m]``."""
        for values, change in ((old, -1), (new, 1)):
            bucket = bucket_of(values)
            np.add.at(self._fine, bucket, change)
            np.add.at(self._coarse, bucket // LEVEL, change)

    def bucket_at(self, rank: int) -> int:
        """Return the bucket of the number at ``rank`` (0 is the lowest number)."""
        return self._locate(rank)[0]

    def top_k(self, count: int) -> TopK:
        """Find the ``count`` highest numbers."""
        if count <= 0:
            return NOTHING
        bucket, below = self._locate(self.size - count)
        tied = int(self._fine[bucket])
        return TopK(count, bucket, self.size - below - tied, tied)

    def _locate(self, rank: int) -> tuple[int, int]:
        """Return the bucket of the number at ``rank``, and the count of all lower buckets."""
        group, below = _first_beyond(self._coarse, rank)
        buckets = self._fine[group * LEVEL : (group + 1) * LEVEL]
        number, within = _first_beyond(buckets, rank - below)
        return group * LEVEL + number, below + within


def _first_beyond(counts: IntArray, rank: int) -> tuple[int, int]:
    """Return the index where the running total first exceeds ``rank``, and the total before it."""
    total = np.cumsum(counts)
    index = int(np.searchsorted(total, rank, side="right"))
    return index, int(total[index] - counts[index])
