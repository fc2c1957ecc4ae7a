"""Exact order statistics of many numbers of which a few change at a time: what the thresholds of DP stand on.

A sorted multiset of float32 in three levels: leaves of up to 128 sorted numbers, nodes of up to 512 leaves, and the row
of nodes, about two thousand at a hundred million numbers. Putting in, taking out and finding the k-th touch one leaf,
one node and the row, so a change costs the same whatever the number of numbers, but for that row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.methods._order_statistics import kernels

LEAF = 128
NODE = 512
FILL = 0.8  # of leaves and nodes when numbers are laid out
SPARE = 1.2  # room for leaves, over those first needed; when it is used up the numbers are laid out anew

LEAVES, NODES, FREE, TOTAL, MISSING = range(5)  # the places of ``_state``: leaves ever used, nodes, free leaves, ...


class SortedValues:
    """The multiset. Every number must be finite.

    Args:
        values: float ``[n]``, n of at least 1, in any order; kept as float32.
    """

    def __init__(self, values: FloatArray) -> None:
        self._lay_out(np.sort(np.asarray(values, dtype=np.float32)))

    def __len__(self) -> int:
        return int(self._state[TOTAL])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(part.nbytes) for part in self._parts)

    def replace(self, old: FloatArray, new: FloatArray) -> None:
        """Put in the numbers ``new`` and take out as many ``old`` ones: float32 ``[m]`` both.

        Raises:
            KeyError: if one of ``old`` is not among the numbers.
        """
        old, new = np.asarray(old, dtype=np.float32), np.asarray(new, dtype=np.float32)
        done = 0
        while done < len(old):
            done += kernels.replace(old[done:], new[done:], *self._parts)
            if self._state[MISSING]:
                raise KeyError(f"{old[done]} is not among the numbers")
            if done < len(old):
                self._lay_out(self.sorted())

    def kth(self, rank: int) -> np.float32:
        """Return the number of a rank, from 0, in ascending order.

        Raises:
            IndexError: if there is none.
        """
        if not 0 <= rank < len(self):
            raise IndexError(f"rank {rank} of {len(self)} numbers")
        return np.float32(kernels.kth(rank, *self._parts))

    def count_below(self, value: float) -> int:
        """How many numbers are less than ``value``."""
        return int(kernels.count(np.float32(value), False, *self._parts))

    def count_up_to(self, value: float) -> int:
        """How many numbers are at most ``value``."""
        return int(kernels.count(np.float32(value), True, *self._parts))

    def sorted(self) -> NDArray[np.float32]:
        """Return all numbers in ascending order: float32 ``[n]``."""
        values = np.empty(len(self), dtype=np.float32)
        kernels.read_all(values, *self._parts)
        return values

    def _lay_out(self, ascending: NDArray[np.float32]) -> None:
        leaves = max(1, -(-len(ascending) // int(FILL * LEAF)))
        room = int(SPARE * leaves) + 2
        node_room = 2 * -(-room // int(FILL * NODE)) + 2
        self._parts: tuple[NDArray[Any], ...] = (
            np.empty((room, LEAF), dtype=np.float32),  # numbers of each leaf
            np.zeros(room, dtype=np.int32),  # how many each leaf has
            np.zeros(room, dtype=np.int32),  # leaves that were emptied and can be used again
            np.zeros((node_room, NODE), dtype=np.int32),  # leaves of each node
            np.zeros((node_room, NODE), dtype=np.float32),  # lowest number of each of these leaves
            np.zeros(node_room, dtype=np.int32),  # how many leaves each node has
            np.zeros(node_room, dtype=np.int64),  # how many numbers each node has
            np.arange(node_room, dtype=np.int32),  # the row: nodes in order; free nodes behind
            np.zeros(5, dtype=np.int64),
        )
        self._state = self._parts[-1]
        kernels.fill_leaves(ascending, int(FILL * LEAF), int(FILL * NODE), *self._parts)
