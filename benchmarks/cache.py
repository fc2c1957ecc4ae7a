"""What verifying a cache entry costs, beside the search that reads it.

    OMP_NUM_THREADS=1 python benchmarks/cache.py [documents]

Writes the vectors of many documents as a cache entry into a temporary folder, then verifies it and searches it by
turns. Prints medians.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from opera.core.cache import cached, damage

DIMENSION, QUERIES, PART, ROUNDS = 384, 323, 10_000, 5


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(documents: int) -> None:
    """Print the table."""
    part = np.random.default_rng(0).standard_normal((PART, DIMENSION), dtype=np.float32)
    parts, rows = documents // PART, documents // PART * PART
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPERA_CACHE"] = folder

        def write(new: Path) -> None:
            vectors = np.lib.format.open_memmap(new / "v.npy", "w+", np.float32, (rows, DIMENSION))
            vectors.reshape(parts, PART, DIMENSION)[:] = part
            vectors.flush()

        home = cached("vectors", "0" * 32, write)

        def search(path: Path = home / "v.npy") -> None:
            vectors = np.load(path, mmap_mode="r")
            for start in range(0, rows, 65_536):
                part[:QUERIES] @ vectors[start : start + 65_536].T

        times = [(seconds(lambda: damage(home)), seconds(search)) for _ in range(ROUNDS)]
        verify, searching = (statistics.median(column) for column in zip(*times, strict=True))
        size = (home / "v.npy").stat().st_size / 1e9
    print(f"{rows:,} documents of {DIMENSION} dimensions, {size:.2f} GB, medians of {ROUNDS} rounds")
    print(f"verify the entry            {verify:.2f} s ({size / verify:.1f} GB/s)")
    print(f"search it for {QUERIES} queries   {searching:.2f} s")
    print(f"ratio                       {verify / searching:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
