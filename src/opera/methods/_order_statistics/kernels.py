"""The inner loops of the sorted multiset, compiled by numba; :class:`.sorted_values.SortedValues` owns the arrays.

The layout, from top to bottom: the row lists the nodes, a node lists leaves, a leaf holds numbers; each level is
ascending from left to right. No leaf or node in use is ever empty.
"""

# Numba infers the types from the arguments; annotations would only repeat them.

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

POINTER = ir.IntType(8).as_pointer()
LINE = 16
"""Numbers of 4 bytes in a cache line."""
TOGETHER = 64
"""Numbers whose memory is fetched at once."""

# The slots of Arrays.state:
USED_LEAVES = 0  # leaves handed out so far, those freed since included
NODES = 1  # nodes in use: the first so many places of the row
FREE_LEAVES = 2  # leaves on the stack of freed ones
TOTAL = 3  # numbers in the multiset
MISSING = 4  # 1 after `replace` did not find a number to remove
SLOTS = 5


class Arrays(NamedTuple):
    """The arrays of one multiset; an index of a leaf or node stays the same when others move.

    Attributes:
        values: float32 ``[leaves, width of a leaf]``, the numbers of each leaf, ascending.
        sizes: int32 ``[leaves]``, how many numbers each leaf holds.
        free: int32 ``[leaves]``, a stack of leaves that became empty and can be used again.
        leaves: int32 ``[nodes, width of a node]``, the leaves of each node, in order.
        lows: float32, same shape, the lowest number of each of these leaves.
        widths: int32 ``[nodes]``, how many leaves each node lists.
        counts: int64 ``[nodes]``, how many numbers each node's leaves hold.
        row: int32 ``[nodes]``, the nodes in order; behind them the unused ones.
        firsts: float32 ``[nodes]``, the lowest number of each node, in the order of the row.
        state: int64 ``[SLOTS]``.
    """

    values: NDArray[np.float32]
    sizes: NDArray[np.int32]
    free: NDArray[np.int32]
    leaves: NDArray[np.int32]
    lows: NDArray[np.float32]
    widths: NDArray[np.int32]
    counts: NDArray[np.int64]
    row: NDArray[np.int32]
    firsts: NDArray[np.float32]
    state: NDArray[np.int64]


@njit(cache=True)
def fill_leaves(ascending, per_leaf, per_node, a):
    """Fill an empty multiset with ascending numbers, ``per_leaf`` to a leaf and ``per_node`` leaves to a node."""
    n = len(ascending)
    leaf = 0
    start = 0
    while start < n:
        # Copy the next numbers to the next leaf.
        size = min(per_leaf, n - start)
        a.values[leaf, :size] = ascending[start : start + size]
        a.sizes[leaf] = size
        # Append the leaf to its node.
        node = leaf // per_node
        place = leaf % per_node
        a.leaves[node, place] = leaf
        a.lows[node, place] = ascending[start]
        if place == 0:
            a.firsts[node] = ascending[start]
        a.widths[node] = place + 1
        a.counts[node] += size
        leaf += 1
        start += size
    a.state[USED_LEAVES] = leaf
    a.state[NODES] = (leaf + per_node - 1) // per_node
    a.state[TOTAL] = n


@njit(cache=True)
def read_all(target, a):
    """Copy all numbers to ``target``, in ascending order."""
    end = 0
    for at in range(a.state[NODES]):
        node = a.row[at]
        for place in range(a.widths[node]):
            leaf = a.leaves[node, place]
            target[end : end + a.sizes[leaf]] = a.values[leaf, : a.sizes[leaf]]
            end += a.sizes[leaf]


@njit(cache=True)
def last_not_above(numbers, size, value):
    """Return the place of the last of ``size`` ascending numbers that is at most ``value``; -1 if none is."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True)
def locate(value, a):
    """Find the last leaf whose lowest number is at most ``value``, or the first leaf if none is.

    Returns the place of its node in the row, and its place in the node.
    """
    # Bisect the row for the last node that begins with at most `value`.
    at = max(last_not_above(a.firsts, a.state[NODES], value), 0)
    # Bisect that node for its last such leaf.
    node = a.row[at]
    return at, max(last_not_above(a.lows[node], a.widths[node], value), 0)


@njit(cache=True)
def kth(rank, a):
    """Return the number at ``rank``, from 0, in ascending order."""
    # Skip whole nodes, as long as the rank lies behind them.
    at = 0
    while rank >= a.counts[a.row[at]]:
        rank -= a.counts[a.row[at]]
        at += 1
    # Skip whole leaves of the node that is left.
    node = a.row[at]
    place = 0
    while rank >= a.sizes[a.leaves[node, place]]:
        rank -= a.sizes[a.leaves[node, place]]
        place += 1
    return a.values[a.leaves[node, place], rank]


@njit(cache=True)
def count(value, or_equal, a):
    """Count the numbers below ``value``; with ``or_equal``, those at most ``value``."""
    # Bisect the row for the nodes that begin with a number to count.
    low = first_not_counted(a.firsts, a.state[NODES], value, or_equal)
    if low == 0:
        return 0
    # All of these nodes but the last count whole.
    total = 0
    for at in range(low - 1):
        total += a.counts[a.row[at]]
    # Of the last one, all leaves that begin with a number to count, but the last, count whole.
    node = a.row[low - 1]
    place = first_not_counted(a.lows[node], a.widths[node], value, or_equal) - 1
    for before in range(place):
        total += a.sizes[a.leaves[node, before]]
    # Of that last leaf, count the numbers.
    leaf = a.leaves[node, place]
    return total + first_not_counted(a.values[leaf], a.sizes[leaf], value, or_equal)


@njit(cache=True)
def first_not_counted(numbers, size, value, or_equal):
    """Return how many of ``size`` ascending numbers are below ``value``, or at most ``value``."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < value or (or_equal and numbers[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def insert(value, a):
    """Insert a number. Return False, with the numbers unchanged, if a split is needed and no room is left for it."""
    at, place = locate(value, a)
    node = a.row[at]
    leaf = a.leaves[node, place]
    # Split a full leaf, and before it its node if that is full too; then find the leaf of `value` again.
    if a.sizes[leaf] == a.values.shape[1]:
        if a.state[FREE_LEAVES] == 0 and a.state[USED_LEAVES] == a.values.shape[0]:
            return False
        if a.widths[node] == a.leaves.shape[1]:
            if a.state[NODES] == len(a.row):
                return False
            split_node(at, a)
            at, place = locate(value, a)
            node = a.row[at]
        split_leaf(node, place, a)
        place = max(last_not_above(a.lows[node], a.widths[node], value), 0)
        leaf = a.leaves[node, place]
    # Shift the larger numbers of the leaf by one and put the new one before them.
    size = a.sizes[leaf]
    slot = last_not_above(a.values[leaf], size, value) + 1
    for i in range(size, slot, -1):
        a.values[leaf, i] = a.values[leaf, i - 1]
    a.values[leaf, slot] = value
    # Update the leaf's size and lowest number, and the counts above.
    a.sizes[leaf] = size + 1
    if slot == 0:
        a.lows[node, place] = value
        if place == 0:
            a.firsts[at] = value
    a.counts[node] += 1
    a.state[TOTAL] += 1
    return True


@njit(cache=True)
def split_leaf(node, place, a):
    """Move the upper half of a full leaf to a new leaf right behind it. The node must have room for one more."""
    # Take a freed leaf, or else one never used.
    if a.state[FREE_LEAVES] > 0:
        a.state[FREE_LEAVES] -= 1
        fresh = a.free[a.state[FREE_LEAVES]]
    else:
        fresh = a.state[USED_LEAVES]
        a.state[USED_LEAVES] += 1
    # Move the upper half of the numbers.
    leaf = a.leaves[node, place]
    half = a.sizes[leaf] // 2
    moved = a.sizes[leaf] - half
    a.values[fresh, :moved] = a.values[leaf, half : half + moved]
    a.sizes[fresh] = moved
    a.sizes[leaf] = half
    # Make room in the node behind the leaf, and list the new one there.
    for i in range(a.widths[node], place + 1, -1):
        a.leaves[node, i] = a.leaves[node, i - 1]
        a.lows[node, i] = a.lows[node, i - 1]
    a.leaves[node, place + 1] = fresh
    a.lows[node, place + 1] = a.values[fresh, 0]
    a.widths[node] += 1


@njit(cache=True)
def split_node(at, a):
    """Move the upper half of a full node to a new node right behind it. The row must have an unused node."""
    # Take the first unused node.
    node, fresh = a.row[at], a.row[a.state[NODES]]
    # Move the upper half of the leaves, and count the numbers that go with them.
    half = a.widths[node] // 2
    moved = a.widths[node] - half
    total = 0
    for i in range(moved):
        a.leaves[fresh, i] = a.leaves[node, half + i]
        a.lows[fresh, i] = a.lows[node, half + i]
        total += a.sizes[a.leaves[fresh, i]]
    a.widths[fresh] = moved
    a.widths[node] = half
    a.counts[fresh] = total
    a.counts[node] -= total
    # Make room in the row behind the node, and list the new one there.
    for i in range(a.state[NODES], at + 1, -1):
        a.row[i] = a.row[i - 1]
        a.firsts[i] = a.firsts[i - 1]
    a.row[at + 1] = fresh
    a.firsts[at + 1] = a.lows[fresh, 0]
    a.state[NODES] += 1


@njit(cache=True)
def remove(value, a):
    """Remove one occurrence of a number; return False if there is none. At least one other number must be left."""
    # Find the number: the last one equal to `value`.
    at, place = locate(value, a)
    node = a.row[at]
    leaf = a.leaves[node, place]
    slot = last_not_above(a.values[leaf], a.sizes[leaf], value)
    if slot < 0 or a.values[leaf, slot] != value:
        return False
    # Close the gap in the leaf, and update the counts above.
    a.sizes[leaf] -= 1
    for i in range(slot, a.sizes[leaf]):
        a.values[leaf, i] = a.values[leaf, i + 1]
    a.counts[node] -= 1
    a.state[TOTAL] -= 1
    if a.sizes[leaf] > 0:
        a.lows[node, place] = a.values[leaf, 0]
        a.firsts[at] = a.lows[node, 0]
        return True
    # Free a leaf that became empty, and close the gap in its node.
    a.free[a.state[FREE_LEAVES]] = leaf
    a.state[FREE_LEAVES] += 1
    a.widths[node] -= 1
    for i in range(place, a.widths[node]):
        a.leaves[node, i] = a.leaves[node, i + 1]
        a.lows[node, i] = a.lows[node, i + 1]
    # Free a node that became empty: close the gap in the row, and put it first among the unused.
    if a.widths[node] == 0:
        a.counts[node] = 0
        a.state[NODES] -= 1
        for i in range(at, a.state[NODES]):
            a.row[i] = a.row[i + 1]
            a.firsts[i] = a.firsts[i + 1]
        a.row[a.state[NODES]] = node
    else:
        a.firsts[at] = a.lows[node, 0]
    return True


@intrinsic
def prefetch(context, array, at):
    """Ask for the cache line of ``array.flat[at]`` of a contiguous array, without waiting for it."""

    def generate(context, builder, signature, arguments):
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(held.data, [arguments[1]]), POINTER)
        flag = ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [POINTER, flag, flag, flag]), "llvm.prefetch.p0"
        )
        builder.call(function, [address, flag(1), flag(3), flag(1)])  # to be written, in all caches, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@njit(cache=True)
def fetch(values, places, a):
    """Bring what replacing ``values`` touches into the caches: many waits for memory at once, not one after another.

    ``places`` is int64 ``[len(values)]``, to be overwritten.
    """
    width = a.lows.shape[1]
    for i in range(len(values)):
        node = a.row[max(last_not_above(a.firsts, a.state[NODES], values[i]), 0)]
        places[i] = node
        prefetch(a.widths, np.int64(node))
        prefetch(a.counts, np.int64(node))
        for line in range(0, width, LINE):
            prefetch(a.lows, np.int64(node) * width + line)
    for i in range(len(values)):
        node = places[i]
        places[i] = node * width + max(last_not_above(a.lows[node], a.widths[node], values[i]), 0)
        prefetch(a.leaves, places[i])
    width, leaves = a.values.shape[1], a.leaves.shape[1]
    for i in range(len(values)):
        leaf = a.leaves[places[i] // leaves, places[i] % leaves]
        prefetch(a.sizes, np.int64(leaf))
        for line in range(0, width, LINE):
            prefetch(a.values, np.int64(leaf) * width + line)


@njit(cache=True)
def replace(old, new, a):
    """Replace numbers one after another: insert first, so that the multiset is never empty.

    Returns how many were replaced. Fewer than all if room ran out, or, with ``MISSING`` set, if one was not found.
    """
    places = np.empty(len(old), dtype=np.int64)
    for i in range(len(old)):
        if i % TOGETHER == 0:  # no more at once than the caches hold
            part = slice(i, i + TOGETHER)
            fetch(old[part], places[part], a)
            fetch(new[part], places[part], a)
        if old[i] == new[i]:
            continue
        if not insert(new[i], a):
            return i
        if not remove(old[i], a):
            a.state[MISSING] = 1
            return i
    return len(old)


@njit(cache=True)
def sum_own(sums, queries, offsets, values):
    """Recompute the sums of some queries from the values of their own pairs."""
    for query in queries:
        total = 0.0
        for pair in range(offsets[query], offsets[query + 1]):
            total += values[pair]
        sums[query] = total
