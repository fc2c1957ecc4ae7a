"""Rows of embeddings that all processes compute together: each one a contiguous range of whole units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import save_rows
from opera.core.processes import everywhere, own_share, process_index, shares

Parts = Callable[[slice], Iterator[NDArray[np.float32]]]
"""Computes a range of rows, which starts at a unit, unit by unit."""

COPIED_ROWS = 65_536


def save_shared_rows(path: Path, parts: Parts, count: int, dimension: int, unit: int) -> None:
    """Write rows to a float32 ``.npy`` file, the same whatever the number of processes.

    Each process writes its range to a file beside it. The main one's is the file itself, to which it then appends the
    others and removes them, so the disk holds one range more than the file at most.

    Args:
        path: the file, in a folder that all processes reach.
        parts: computes a range of rows.
        count: how many rows there are.
        dimension: length of a row.
        unit: rows of a unit.
    """
    ranges, index = shares(count, unit), process_index()
    own, rest = ranges[index], [_shard(path, at) for at in range(1, len(ranges))]
    length = count if index == 0 else own.stop - own.start
    everywhere(lambda: save_rows(path if index == 0 else _shard(path, index), parts(own), length, dimension))
    if index == 0 and rest:
        with path.open("ab") as file:
            for shard in rest:
                rows = np.load(shard, mmap_mode="r")
                for start in range(0, len(rows), COPIED_ROWS):
                    file.write(np.ascontiguousarray(rows[start : start + COPIED_ROWS]).data)
                del rows
                shard.unlink()


def gather_rows(parts: Parts, count: int, dimension: int, unit: int) -> NDArray[np.float32]:
    """Compute rows, and return them whole in every process: float32 ``[count, dimension]``. Arguments as above."""
    ranges, rows = shares(count, unit), np.empty((count, dimension), dtype=np.float32)
    own = parts(own_share(count, unit))
    most = max(share.stop - share.start for share in ranges)
    for first in range(0, most, unit):
        for share, part in zip(ranges, everywhere(lambda: next(own, None)), strict=True):
            if part is not None:
                rows[share.start + first : share.start + first + len(part)] = part
    return rows


def regrouped(parts: Iterable[NDArray[np.float32]], size: int) -> Iterator[NDArray[np.float32]]:
    """Cut parts of an array anew: ``size`` rows each, and the last what is left."""
    held: list[NDArray[np.float32]] = []
    length = 0
    for part in parts:
        while length + len(part) >= size:
            taken, part = part[: size - length], part[size - length :]
            yield np.concatenate([*held, taken])
            held, length = [], 0
        held.append(part)
        length += len(part)
    if length:
        yield np.concatenate(held)


def _shard(path: Path, index: int) -> Path:
    return path.with_name(f"{path.name}.{index}")
