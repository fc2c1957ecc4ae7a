"""Approximate dot products, fast, and a bound of how far they are from the exact ones.

Exact search needs no exact products: what an approximate product leaves a chance is scored again. So products may be
computed in bf16, which some processors multiply twice as fast, and summed in any order. For a query q and a document d
that are rounded to q' and d', |q·d - q'·d'| ≤ |q - q'||d| + |q'||d - d'|.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from opera.core.errors import ModelError
from opera.retrieval._top_kernels import round_to_bf16
from opera.retrieval.device import resolve_precision

FEW_QUERIES = 16
"""So many queries are multiplied in float32: rounding the documents would take longer than it saves."""
SUM_ERROR = 2.0**-23
"""A sum of n float32 products is off by n·2⁻²⁴ of the lengths; libraries fuse and reorder, so allow for twice that."""
DEVICE_ERROR = 2.0**-10
"""What a GPU may round off a factor, of its length: TF32 keeps 11 bits, where the user allows it. Twice that."""
STORED_ERROR = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}
"""What is rounded off a product when it is stored, of its size."""
SAFETY = 1.001
"""The bounds are computed in floating point themselves."""

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Factors:
    """Rows as they are multiplied.

    Attributes:
        rows: float32 or bf16 ``[n, dimension]``, on the device that multiplies them.
        lengths: float64 ``[n]``, of the rows before they were rounded.
        errors: float64 ``[n]``, lengths of what was rounded off.
    """

    rows: torch.Tensor
    lengths: NDArray[np.float64]
    errors: NDArray[np.float64]

    def slack(self, tile: Factors) -> NDArray[np.float32]:
        """How far products of these queries with a tile may be off: float32 ``[n]``.

        Raises:
            ModelError: if an embedding holds a value that is no number, whose documents no search would find.
        """
        length, error = float(tile.lengths.max()), float(tile.errors.max())
        with np.errstate(invalid="ignore", over="ignore"):
            off = self.errors * length + (self.lengths + self.errors) * error
            summing = self.rows.shape[1] * SUM_ERROR * (self.lengths + self.errors) * (length + error)
            slack = np.asarray((off + summing) * SAFETY + 1e-30, dtype=np.float32)
        if not np.isfinite(slack).all():
            raise ModelError("search: embeddings hold values that are no numbers, or too large; use another model")
        return slack


def in_bf16(queries: int) -> bool:
    """Whether the CPU multiplies so many queries in bf16."""
    return queries > FEW_QUERIES and resolve_precision("auto", "cpu", True) == "bf16"


def factors(rows: NDArray[np.float32], bf16: bool, run: Run = map) -> Factors:
    """Make rows ready to be multiplied on the CPU; ``run`` may share the work among threads."""
    lengths, errors = np.empty(len(rows)), np.zeros(len(rows))
    if not bf16:
        lengths[:] = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float32))
        return Factors(torch.from_numpy(rows), lengths * SAFETY, errors)
    bits = np.empty(rows.shape, dtype=np.uint16)
    parts = [slice(start, start + 2048) for start in range(0, len(rows), 2048)]
    for _ in run(lambda part: round_to_bf16(rows[part], bits[part], lengths[part], errors[part]), parts):
        pass
    return Factors(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16), lengths, errors)


def device_factors(rows: NDArray[np.float32], device: str) -> Factors:
    """Copy rows to a GPU."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float32)).astype(np.float64) * SAFETY
    return Factors(torch.from_numpy(rows).to(device), lengths, lengths * DEVICE_ERROR)


def bits_of(products: torch.Tensor) -> tuple[NDArray[Any], np.uint32]:
    """The bits of CPU products as unsigned numbers, and how far to shift them to be those of float32."""
    if products.dtype == torch.bfloat16:
        return products.view(torch.int16).numpy().view(np.uint16), np.uint32(16)
    return products.numpy().view(np.uint32), np.uint32(0)


@contextmanager
def own_threads() -> Iterator[Run]:
    """Threads that multiply each by itself: as many as torch uses. Gives a ``map``.

    OpenMP's team would wait for its slowest member at the end of each product, which costs much where other work takes
    a core away; these meet once per tile.
    """
    count = torch.get_num_threads()
    if count == 1:
        yield map
        return
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(count)  # the threads' own number is also that of threads to come
