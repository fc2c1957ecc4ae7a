"""Order statistics of many numbers of which a few change at a time, by counts in buckets; DP's
thresholds are such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray

LEVEL = 1024
BUCKETS = LEVEL * LEVEL
"""In two levels: finding a rank reads the counts of 1,024 groups, then of the 1,024 buckets of one
group.
"""


def bucket_of(values: FloatArray) -> NDArray[np.int64]:
    """Return the bucket of each number: int64, from 0 to ``BUCKETS - 1``, in the order of the
    numbers.

    Buckets divide x/(1 + |x|) evenly, so no bounds need be known. One is 2e-6 wide at 0 and 8e-6 at
    ±1.
    """
    x = np.asarray(values, dtype=np.float64)
    share = (x / (1 + np.abs(x)) + 1) / 2
    return np.asarray(np.minimum(share * BUCKETS, BUCKETS - 1).astype(np.int64))


def upper_edge(bucket: int) -> float:
    """Return the number at which the next bucket begins, the inverse of :func:`bucket_of`."""
    y = 2 * (bucket + 1) / BUCKETS - 1
    return y / (1 - abs(y)) if y < 1 else np.inf


@dataclass(frozen=True)
class TopK:
    """The K highest of n numbers, as a bucket. Of the numbers in it, a random part is among them.

    Attributes:
        count: K.
        bucket: the bucket of the K-th highest number; beyond the last if K is 0.
        above: how many numbers are in higher buckets.
        tied: how many are in this one.
    """

    count: int
    bucket: int
    above: int
    tied: int

    @property
    def tied_probability(self) -> float:
        """The probability that a number in the bucket is among the K: the places left over the
        numbers tied.
        """
        return (self.count - self.above) / self.tied if self.tied else 0.0

    def probabilities(self, values: FloatArray) -> NDArray[np.float64]:
        """The probability that each number ``[m]`` is among the K: 1 above the bucket, 0 below.
        Float64 ``[m]``.
        """
        bucket = bucket_of(values)
        return np.where(
            bucket > self.bucket, 1.0, np.where(bucket == self.bucket, self.tied_probability, 0.0)
        )


NOTHING = TopK(0, BUCKETS, 0, 0)
"""The top 0."""


class Counts:
    """How many of n numbers lie in each bucket: 4 MB, whatever n is.

    Args:
        values: float ``[n]``, finite.
    """

    def __init__(self, values: FloatArray) -> None:
        self._fine = np.bincount(bucket_of(values), minlength=BUCKETS).astype(np.int32)
        self._coarse = self._fine.reshape(LEVEL, LEVEL).sum(axis=1)
        self.size = len(values)

    def move(self, old: FloatArray, new: FloatArray) -> None:
        """Count the numbers ``new`` in place of ``old``, which must have been counted: both
        ``[m]``.
        """
        for values, change in ((old, -1), (new, 1)):
            bucket = bucket_of(values)
            np.add.at(self._fine, bucket, change)
            np.add.at(self._coarse, bucket // LEVEL, change)

    def bucket_at(self, rank: int) -> int:
        """Return the bucket of the number at ``rank``, from 0, in ascending order."""
        return self._locate(rank)[0]

    def top_k(self, count: int) -> TopK:
        """Find the ``count`` highest numbers."""
        if count <= 0:
            return NOTHING
        bucket, below = self._locate(self.size - count)
        tied = int(self._fine[bucket])
        return TopK(count, bucket, self.size - below - tied, tied)

    def _locate(self, rank: int) -> tuple[int, int]:
        """Return the bucket of the number at ``rank``, and how many numbers are in lower ones."""
        group, below = _first_beyond(self._coarse, rank)
        place, within = _first_beyond(self._fine[group * LEVEL : (group + 1) * LEVEL], rank - below)
        return group * LEVEL + place, below + within


def _first_beyond(counts: IntArray, rank: int) -> tuple[int, int]:
    """Return where the running total of ``counts`` first exceeds ``rank``, and the total before."""
    total = np.cumsum(counts)
    place = int(np.searchsorted(total, rank, side="right"))
    return place, int(total[place] - counts[place])
