"""The ranking of the queries by score, updated at the cost of what changed."""

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
class TopK:
    """The K highest of n scores, as a threshold. Of the scores equal to it, a random part is among them.

    Attributes:
        count: K.
        threshold: the K-th highest score; infinite if K is 0.
        above: how many scores exceed the threshold.
        tied: how many equal it.
    """

    count: int
    threshold: np.float32
    above: int
    tied: int

    @classmethod
    def empty(cls) -> TopK:
        """No score: K = 0."""
        return cls(0, np.float32(np.inf), 0, 0)

    @property
    def tied_probability(self) -> float:
        """The probability that a score equal to the threshold is among the K: the places left over the scores tied."""
        return (self.count - self.above) / self.tied if self.tied else 0.0

    def probabilities(self, scores: FloatArray) -> NDArray[np.float64]:
        """The probability that each score ``[m]`` is among the K: 1 above the threshold, 0 below. Float64 ``[m]``."""
        return np.where(scores > self.threshold, 1.0, np.where(scores == self.threshold, self.tied_probability, 0.0))


class QueryRanking:
    """A score per query, the signed mean of a value over the query's pairs, and the order of the scores.

    Holds 8 bytes per query for the sums and 6 to 7 for the order.

    Args:
        pairs: the training pairs.
        values: float32 ``[N]``, the value of each pair. Kept by reference and read again at each update.
        sign: 1 if high means rank first, -1 if low ones do.
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
        """Scores of the given queries ``[m]``, or of all: float32 ``[m]`` or ``[n]``."""
        if queries is None:
            return (self.sign * self.sums / self.pairs.positives_per_query).astype(np.float32)
        offsets = self.pairs.query_offsets
        return (self.sign * self.sums[queries] / (offsets[queries + 1] - offsets[queries])).astype(np.float32)

    def update(self, queries: IntArray) -> tuple[IntArray, NDArray[np.float32]]:
        """Read the values of these queries' pairs again, int ``[m]``; a query may be listed twice.

        Sums are recomputed from the pairs, not adjusted, so rounding errors do not accumulate.

        Returns:
            The distinct queries, and their scores before.
        """
        distinct = np.unique(queries)
        before = self.scores(distinct)
        kernels.sum_own(self.sums, distinct, self.pairs.query_offsets, self._values)
        self._order.replace(before, self.scores(distinct))
        return distinct, before

    def top_k(self, count: int) -> TopK:
        """Find the ``count`` highest scores."""
        if count <= 0:
            return TopK.empty()
        n = len(self._order)
        threshold = self._order.kth(n - count)
        up_to = self._order.count_up_to(float(threshold))
        return TopK(count, threshold, n - up_to, up_to - self._order.count_below(float(threshold)))

    def state_dict(self) -> dict[str, Any]:
        """The sums; the order follows from them."""
        return {"sums": self.sums.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.sums = np.array(state["sums"], dtype=np.float64)
        self._order = SortedValues(self.scores())
