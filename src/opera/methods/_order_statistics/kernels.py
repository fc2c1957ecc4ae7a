"""The inner loops of the sorted multiset, compiled by numba (:class:`.sorted_values.SortedValues` holds the arrays)."""

# Numba reads the types off the arguments; annotations would only be repeated here.

from numba import njit


@njit(cache=True)
def fill_leaves(ascending, per_leaf, per_node, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Lay sorted numbers out in empty leaves and nodes."""
    n = len(ascending)
    leaf = 0
    start = 0
    while start < n:
        size = min(per_leaf, n - start)
        values[leaf, :size] = ascending[start : start + size]
        sizes[leaf] = size
        node = leaf // per_node
        place = leaf % per_node
        leaves_of[node, place] = leaf
        lows[node, place] = ascending[start]
        widths[node] = place + 1
        counts[node] += size
        leaf += 1
        start += size
    state[0] = leaf
    state[1] = (leaf + per_node - 1) // per_node
    state[3] = n


@njit(cache=True)
def read_all(target, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Copy all numbers to ``target``, in ascending order."""
    at = 0
    for place in range(state[1]):
        node = row[place]
        for j in range(widths[node]):
            leaf = leaves_of[node, j]
            target[at : at + sizes[leaf]] = values[leaf, : sizes[leaf]]
            at += sizes[leaf]


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
def locate(value, lows, widths, row, state):
    """Return place in the row and place in the node of the last leaf whose lowest number is at most ``value``."""
    low, high = 0, state[1]
    while low < high:
        middle = (low + high) // 2
        if lows[row[middle], 0] <= value:
            low = middle + 1
        else:
            high = middle
    at = max(low - 1, 0)
    node = row[at]
    return at, max(last_not_above(lows[node], widths[node], value), 0)


@njit(cache=True)
def kth(rank, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Return the number of a rank, from 0, in ascending order."""
    at = 0
    while rank >= counts[row[at]]:
        rank -= counts[row[at]]
        at += 1
    node = row[at]
    j = 0
    while rank >= sizes[leaves_of[node, j]]:
        rank -= sizes[leaves_of[node, j]]
        j += 1
    return values[leaves_of[node, j], rank]


@njit(cache=True)
def count(value, equal_too, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Count the numbers below ``value``, or at most ``value``."""
    low, high = 0, state[1]
    while low < high:  # the nodes that begin with a number to count
        middle = (low + high) // 2
        first = lows[row[middle], 0]
        if first < value or (equal_too and first == value):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0
    total = 0
    for at in range(low - 1):
        total += counts[row[at]]
    node = row[low - 1]
    j = first_not_counted(lows[node], widths[node], value, equal_too) - 1
    for i in range(j):
        total += sizes[leaves_of[node, i]]
    leaf = leaves_of[node, j]
    return total + first_not_counted(values[leaf], sizes[leaf], value, equal_too)


@njit(cache=True)
def first_not_counted(numbers, size, value, equal_too):
    """Return the place of the first of ``size`` ascending numbers that is not below ``value``, or not at most it."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < value or (equal_too and numbers[middle] == value):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def insert(value, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Put a number in; return False, having changed nothing, where there is no room to split."""
    at, j = locate(value, lows, widths, row, state)
    node = row[at]
    leaf = leaves_of[node, j]
    if sizes[leaf] == values.shape[1]:
        if state[2] == 0 and state[0] == values.shape[0]:
            return False
        if widths[node] == leaves_of.shape[1]:
            if state[1] == len(row):
                return False
            split_node(at, leaves_of, lows, widths, counts, sizes, row, state)
            at, j = locate(value, lows, widths, row, state)
            node = row[at]
        split_leaf(node, j, values, sizes, free, leaves_of, lows, widths, state)
        j = max(last_not_above(lows[node], widths[node], value), 0)
        leaf = leaves_of[node, j]
    size = sizes[leaf]
    place = last_not_above(values[leaf], size, value) + 1
    for i in range(size, place, -1):
        values[leaf, i] = values[leaf, i - 1]
    values[leaf, place] = value
    sizes[leaf] = size + 1
    if place == 0:
        lows[node, j] = value
    counts[node] += 1
    state[3] += 1
    return True


@njit(cache=True)
def split_leaf(node, j, values, sizes, free, leaves_of, lows, widths, state):
    """Move the upper half of a full leaf to a leaf of its own behind it."""
    if state[2] > 0:
        state[2] -= 1
        fresh = free[state[2]]
    else:
        fresh = state[0]
        state[0] += 1
    leaf = leaves_of[node, j]
    half = sizes[leaf] // 2
    moved = sizes[leaf] - half
    values[fresh, :moved] = values[leaf, half : half + moved]
    sizes[fresh] = moved
    sizes[leaf] = half
    for i in range(widths[node], j + 1, -1):
        leaves_of[node, i] = leaves_of[node, i - 1]
        lows[node, i] = lows[node, i - 1]
    leaves_of[node, j + 1] = fresh
    lows[node, j + 1] = values[fresh, 0]
    widths[node] += 1


@njit(cache=True)
def split_node(at, leaves_of, lows, widths, counts, sizes, row, state):
    """Move the upper half of a full node to a node of its own behind it."""
    node, fresh = row[at], row[state[1]]
    half = widths[node] // 2
    moved = widths[node] - half
    total = 0
    for i in range(moved):
        leaves_of[fresh, i] = leaves_of[node, half + i]
        lows[fresh, i] = lows[node, half + i]
        total += sizes[leaves_of[fresh, i]]
    widths[fresh] = moved
    widths[node] = half
    counts[fresh] = total
    counts[node] -= total
    for i in range(state[1], at + 1, -1):
        row[i] = row[i - 1]
    row[at + 1] = fresh
    state[1] += 1


@njit(cache=True)
def remove(value, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Take a number out; return False where it is not there. At least one other number must be left."""
    at, j = locate(value, lows, widths, row, state)
    node = row[at]
    leaf = leaves_of[node, j]
    place = last_not_above(values[leaf], sizes[leaf], value)
    if place < 0 or values[leaf, place] != value:
        return False
    sizes[leaf] -= 1
    for i in range(place, sizes[leaf]):
        values[leaf, i] = values[leaf, i + 1]
    counts[node] -= 1
    state[3] -= 1
    if sizes[leaf] > 0:
        lows[node, j] = values[leaf, 0]
        return True
    free[state[2]] = leaf
    state[2] += 1
    widths[node] -= 1
    for i in range(j, widths[node]):
        leaves_of[node, i] = leaves_of[node, i + 1]
        lows[node, i] = lows[node, i + 1]
    if widths[node] == 0:
        counts[node] = 0
        state[1] -= 1
        for i in range(at, state[1]):
            row[i] = row[i + 1]
        row[state[1]] = node
    return True


@njit(cache=True)
def replace(old, new, values, sizes, free, leaves_of, lows, widths, counts, row, state):
    """Replace numbers one after another; return how many, fewer where room ran out or one was not there."""
    for i in range(len(old)):
        if old[i] == new[i]:
            continue
        if not insert(new[i], values, sizes, free, leaves_of, lows, widths, counts, row, state):
            return i
        if not remove(old[i], values, sizes, free, leaves_of, lows, widths, counts, row, state):
            state[4] = 1
            return i
    return len(old)


@njit(cache=True)
def sum_own(sums, queries, offsets, values):
    """Set the sums of some queries to those of their pairs' values."""
    for query in queries:
        total = 0.0
        for pair in range(offsets[query], offsets[query + 1]):
            total += values[pair]
        sums[query] = total
