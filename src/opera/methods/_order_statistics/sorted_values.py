"""Exact order statistics of many numbers of which a few change at a time; DP's thresholds are such order statistics.

A sorted multiset of float32 in three levels: leaves of up to 128 sorted numbers, nodes of up to 512 leaves, and the row
of nodes, about two thousand for a hundred million numbers. Inserting, removing and finding the k-th number touch one
leaf, one node and the row, so only the row makes a change cost more when there are more numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.methods._order_statistics import kernels

LEAF = 128  # numbers a leaf has room for
NODE = 512  # leaves a node has room for
FILL = 0.8  # share of leaves and nodes filled when numbers are laid out
SPARE = 1.2  # leaves allocated, over those first needed; when all are used, the numbers are laid out again


class SortedValues:
    """A sorted multiset of finite numbers.

    Args:
        values: float ``[n]``, n at least 1, in any order; stored as float32.
    """

    def __init__(self, values: FloatArray) -> None:
        self._lay_out(np.sort(np.asarray(values, dtype=np.float32)))

    def __len__(self) -> int:
        return int(self._arrays.state[kernels.TOTAL])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(array.nbytes) for array in self._arrays)

    def replace(self, old: FloatArray, new: FloatArray) -> None:
        """Remove the numbers ``old`` and insert ``new``, as many: both float32 ``[m]``.

        Raises:
            KeyError: if one of ``old`` is not in the multiset.
        """
        old, new = np.asarray(old, dtype=np.float32), np.asarray(new, dtype=np.float32)
        done = 0
        while done < len(old):
            done += kernels.replace(old[done:], new[done:], self._arrays)
            if self._arrays.state[kernels.MISSING]:
                raise KeyError(f"{old[done]} is not among the numbers")
            if done < len(old):  # a leaf or node was full and there was no room to split it
                self._lay_out(self.sorted())

    def kth(self, rank: int) -> np.float32:
        """Return the number at ``rank``, from 0, in ascending order.

        Raises:
            IndexError: if there is none.
        """
        if not 0 <= rank < len(self):
            raise IndexError(f"rank {rank} of {len(self)} numbers")
        return np.float32(kernels.kth(rank, self._arrays))

    def count_below(self, value: float) -> int:
        """Count the numbers less than ``value``."""
        return int(kernels.count(np.float32(value), False, self._arrays))

    def count_up_to(self, value: float) -> int:
        """Count the numbers at most ``value``."""
        return int(kernels.count(np.float32(value), True, self._arrays))

    def sorted(self) -> NDArray[np.float32]:
        """Return all numbers in ascending order: float32 ``[n]``."""
        values = np.empty(len(self), dtype=np.float32)
        kernels.read_all(values, self._arrays)
        return values

    def _lay_out(self, ascending: NDArray[np.float32]) -> None:
        per_leaf, per_node = int(FILL * LEAF), int(FILL * NODE)
        leaves = max(1, -(-len(ascending) // per_leaf))
        room = int(SPARE * leaves) + 2
        node_room = 2 * -(-room // per_node) + 2
        self._arrays = kernels.Arrays(
            values=np.empty((room, LEAF), dtype=np.float32),
            sizes=np.zeros(room, dtype=np.int32),
            free=np.zeros(room, dtype=np.int32),
            leaves=np.zeros((node_room, NODE), dtype=np.int32),
            lows=np.zeros((node_room, NODE), dtype=np.float32),
            widths=np.zeros(node_room, dtype=np.int32),
            counts=np.zeros(node_room, dtype=np.int64),
            row=np.arange(node_room, dtype=np.int32),
            firsts=np.zeros(node_room, dtype=np.float32),
            state=np.zeros(kernels.SLOTS, dtype=np.int64),
        )
        kernels.fill_leaves(ascending, per_leaf, per_node, self._arrays)
