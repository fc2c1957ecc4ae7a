"""The first visit of each pair: the rank of its document when the pair was first trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import BoolArray, FloatArray, IntArray


@dataclass
class FirstVisits:
    """The result of the first visit of each pair.

    Attributes:
        p: float32 ``[N]``, (a + ½)/(b + 1) where a of b other documents of the batch and the data
            set rank above the pair's, uniform for a random one; NaN before the first visit.
        step: int32 ``[N]``, the step of the first visit; -1 before it.
        first_pairs: int ``[sets + 1]``, the first pair of each data set, and the end of the last
            one. Each data set has its own estimate.
        confirmed: bool ``[N]``, the pairs that a reviewer decided to be correct.
        removed_excess: for each data set, how many more of the pairs that decisions removed have a
            p above ½ than below. The p of all wrong pairs is uniform only if these pairs count too.
        copies: int ``[N]``, equal for pairs with the same texts, which share their first visit;
            ``None`` if no pair is repeated.
    """

    p: NDArray[np.float32]
    step: NDArray[np.int32]
    first_pairs: IntArray
    confirmed: BoolArray
    removed_excess: list[int]
    copies: IntArray | None = None

    @classmethod
    def none(
        cls,
        n_pairs: int,
        first_pairs: IntArray | None = None,
        confirmed: BoolArray | None = None,
        removed_excess: list[int] | None = None,
        copies: IntArray | None = None,
    ) -> FirstVisits:
        """No pair visited yet. By default there is one data set without decisions."""
        firsts = np.array([0, n_pairs]) if first_pairs is None else first_pairs
        return cls(
            np.full(n_pairs, np.nan, np.float32),
            np.full(n_pairs, -1, np.int32),
            firsts,
            np.zeros(n_pairs, dtype=bool) if confirmed is None else confirmed,
            removed_excess or [0] * (len(firsts) - 1),
            copies,
        )

    @property
    def visited(self) -> BoolArray:
        """Which pairs are visited: bool ``[N]``."""
        return ~np.isnan(self.p)

    def set_of(self, pair_ids: IntArray) -> NDArray[np.int64]:
        """The index of each pair's data set, int64 in the shape of ``pair_ids``."""
        return np.asarray(np.searchsorted(self.first_pairs, pair_ids, side="right") - 1)

    def part(self, number: int) -> FirstVisits:
        """A view of one data set's pairs. It shares its arrays with this object."""
        rows, excess = slice(*self.first_pairs[number : number + 2]), self.removed_excess[number]
        p, firsts = self.p[rows], np.array([0, len(self.p[rows])])
        return FirstVisits(p, self.step[rows], firsts, self.confirmed[rows], [excess])

    def record(self, step: int, pair_ids: IntArray, p: FloatArray) -> None:
        """Record the p of the new pairs among the pairs ``[B]`` of a step."""
        new = np.flatnonzero(np.isnan(self.p[pair_ids]) & ~np.isnan(p))
        pairs, first = np.unique(pair_ids[new], return_index=True)  # the first of repeated pairs
        values = p[new[first]]
        if self.copies is not None:
            numbers, first = np.unique(self.copies[pair_ids[new]], return_index=True)
            pairs = np.flatnonzero(np.isin(self.copies, numbers))
            values = p[new[first]][np.searchsorted(numbers, self.copies[pairs])]
        self.p[pairs], self.step[pairs] = values, step

    def take_over(self, keys: IntArray, earlier: FirstVisits, earlier_keys: IntArray) -> None:
        """Copy the visits of the same pairs from an earlier training.

        Args:
            keys: int ``[N]``, one number per pair.
            earlier: the visits of the earlier training.
            earlier_keys: its numbers.
        """
        numbers, first = np.unique(earlier_keys, return_index=True)
        place = np.minimum(np.searchsorted(numbers, keys), len(numbers) - 1)
        pairs = np.flatnonzero(numbers[place] == keys)  # a copy has the number of its pair
        same = first[place[pairs]]
        self.p[pairs], self.step[pairs] = earlier.p[same], earlier.step[same]

    def state_dict(self) -> dict[str, Any]:
        """Return the state that resuming needs."""
        return {"p": self.p.copy(), "step": self.step.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, in place."""
        self.p[:], self.step[:] = state["p"], state["step"]
