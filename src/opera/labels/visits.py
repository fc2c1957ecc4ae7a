"""The first visit of each pair: the rank of its document when the pair was first trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray


class FirstVisits:
    """The result of the first visit of each pair.

    Attributes:
        p: float32 ``[N]``, (a + ½)/(b + 1) where a of b other documents of the batch and the data
            set rank above the pair's, uniform for a random one; NaN before the first visit.
        step: int32 ``[N]``, the step of the first visit; -1 before it.
        first_pairs: int ``[sets + 1]``, the first pair of each data set, and the end of the last
            one. Each data set has its own estimate.
        confirmed: bool ``[N]``, the pairs that a reviewer decided to be correct; ``None`` without
            decisions.
        removed_excess: for each data set, among the pairs that were removed as wrong, the number
            with p above ½ minus the number below. With these pairs the wrong ones are uniform.
    """

    def __init__(
        self,
        p: NDArray[np.float32],
        step: NDArray[np.int32],
        first_pairs: IntArray | None = None,
        confirmed: BoolArray | None = None,
    ) -> None:
        self.p, self.step, self.confirmed = p, step, confirmed
        self.first_pairs = np.array([0, len(p)]) if first_pairs is None else first_pairs
        self.removed_excess = [0] * (len(self.first_pairs) - 1)

    @classmethod
    def none(
        cls,
        n_pairs: int,
        first_pairs: IntArray | None = None,
        confirmed: BoolArray | None = None,
    ) -> FirstVisits:
        """No pair is visited yet."""
        p, step = np.full(n_pairs, np.nan, np.float32), np.full(n_pairs, -1, np.int32)
        return cls(p, step, first_pairs, confirmed)

    @property
    def visited(self) -> BoolArray:
        """Which pairs are visited: bool ``[N]``."""
        return ~np.isnan(self.p)

    @property
    def is_confirmed(self) -> BoolArray:
        """Which pairs a reviewer decided to be correct: bool ``[N]``."""
        none = np.zeros(len(self.p), dtype=bool)
        return none if self.confirmed is None else self.confirmed

    def set_of(self, pair_ids: IntArray) -> NDArray[np.int64]:
        """The index of each pair's data set, int64 in the shape of ``pair_ids``."""
        return np.asarray(np.searchsorted(self.first_pairs, pair_ids, side="right") - 1)

    def part(self, number: int) -> FirstVisits:
        """A view of one data set's pairs. It shares its arrays with this object."""
        rows = slice(*self.first_pairs[number : number + 2].tolist())
        confirmed = None if self.confirmed is None else self.confirmed[rows]
        part = FirstVisits(self.p[rows], self.step[rows], confirmed=confirmed)
        part.removed_excess = self.removed_excess[number : number + 1]
        return part

    def see(self, step: int, pair_ids: IntArray, p: FloatArray) -> None:
        """Record the p of the new pairs among the pairs ``[B]`` of a step."""
        new = np.flatnonzero(np.isnan(self.p[pair_ids]) & ~np.isnan(p))[::-1]
        self.p[pair_ids[new]], self.step[pair_ids[new]] = p[new], step

    def take_over(self, keys: IntArray, earlier: FirstVisits, earlier_keys: IntArray) -> None:
        """Copy the visits of the same pairs from an earlier training.

        Args:
            keys: int ``[N]``, one number per pair.
            earlier: the visits of the earlier training.
            earlier_keys: its numbers.
        """
        _, pairs, same = np.intersect1d(keys, earlier_keys, return_indices=True)
        self.p[pairs], self.step[pairs] = earlier.p[same], earlier.step[same]

    def copy(self) -> FirstVisits:
        """Return a copy that later visits leave unchanged."""
        copy = FirstVisits(self.p.copy(), self.step.copy(), self.first_pairs, self.confirmed)
        copy.removed_excess = self.removed_excess
        return copy

    def state_dict(self) -> dict[str, Any]:
        """Return the state that resuming needs."""
        return {"p": self.p.copy(), "step": self.step.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in place."""
        self.p[:], self.step[:] = state["p"], state["step"]
