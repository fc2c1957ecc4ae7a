"""The queries in order of their scores, kept up to date at the cost of what changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray, IntArray
from opera.data.pairs import TrainingPairs
from opera.methods._order_statistics import kernels
from opera.methods._order_statistics.sorted_values import SortedValues


@dataclass(frozen=True)
class Front:
    """The K best of n scores, as a threshold; of scores equal to it a random part is among the best.

    Attributes:
        count: K.
        threshold: the K-th highest score; infinite where K is 0.
        above: how many scores exceed it.
        tied: how many equal it.
    """

    count: int
    threshold: np.float32
    above: int
    tied: int

    @property
    def tied_chance(self) -> float:
        """The chance of a score equal to the threshold to be among the K best."""
        return (self.count - self.above) / self.tied if self.tied else 0.0

    def chances(self, scores: FloatArray) -> NDArray[np.float64]:
        """The chance of each score ``[m]`` to be among the K best: 1 above the threshold, 0 below: float64 ``[m]``."""
        return np.where(scores > self.threshold, 1.0, np.where(scores == self.threshold, self.tied_chance, 0.0))


def front_of(scores: FloatArray, count: int) -> Front:
    """Find the ``count`` best of float32 scores ``[n]`` directly, looking at each: what :class:`QueryRanking` keeps."""
    if count <= 0:
        return Front(0, np.float32(np.inf), 0, 0)
    threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
    return Front(count, threshold, int((scores > threshold).sum()), int((scores == threshold).sum()))


class QueryRanking:
    """A score for each query, the signed mean of a value over its pairs, in order.

    Holds 8 bytes a query for the sums and 6 to 7 for the order.

    Args:
        pairs: the training pairs.
        values: float32 ``[N]``, the value of each pair; kept, and looked at again when it has changed.
        sign: 1 where high means are best, -1 where low ones are.
    """

    def __init__(self, pairs: TrainingPairs, values: FloatArray, sign: int) -> None:
        self.pairs, self.sign, self._values = pairs, sign, values
        self.sums = pairs.sum_by_query(values)
        self._order = SortedValues(self.scores())

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.sums.nbytes) + self._order.nbytes

    def scores(self, queries: IntArray | None = None) -> NDArray[np.float32]:
        """Scores of some queries, default all: float32."""
        if queries is None:
            return (self.sign * self.sums / self.pairs.positives_per_query).astype(np.float32)
        offsets = self.pairs.query_offsets
        return (self.sign * self.sums[queries] / (offsets[queries + 1] - offsets[queries])).astype(np.float32)

    def update(self, queries: IntArray) -> tuple[IntArray, NDArray[np.float32]]:
        """Take note that values of some queries ``[m]``, which may repeat, have changed.

        Their sums are made anew from their own pairs, so nothing drifts however often that happens.

        Returns:
            The distinct queries, and their scores before.
        """
        distinct = np.unique(queries)
        before = self.scores(distinct)
        kernels.sum_own(self.sums, distinct, self.pairs.query_offsets, self._values)
        self._order.replace(before, self.scores(distinct))
        return distinct, before

    def front(self, count: int) -> Front:
        """Find the ``count`` best."""
        if count <= 0:
            return Front(0, np.float32(np.inf), 0, 0)
        n = len(self._order)
        threshold = self._order.kth(n - count)
        up_to = self._order.count_up_to(float(threshold))
        return Front(count, threshold, n - up_to, up_to - self._order.count_below(float(threshold)))

    def state_dict(self) -> dict[str, Any]:
        """The sums; the order follows from them."""
        return {"sums": self.sums.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.sums = np.array(state["sums"], dtype=np.float64)
        self._order = SortedValues(self.scores())
