"""How the C library keeps the memory that tensors on a CPU take and free at every step."""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``: free bytes at the end of the heap that go back to the system,
and bytes from which a block has pages of its own."""
OWN_PAGES = 2**22
MOST_KEPT, MOST_ON_HEAP = 2**31 - 1, 2**25
"""The largest values that glibc takes."""


def keep_freed_memory() -> None:
    """Keep what a transformer's activations free for the next ones, where the C library is glibc.

    It would give such blocks back to the system each time. The next step then gets every page anew,
    filled with zeros: a third of a million pages per step of MiniLM with 32 pairs of 128 tokens, a
    second of the processor's time.
    """
    _set(M_TRIM_THRESHOLD, MOST_KEPT)
    _set(M_MMAP_THRESHOLD, MOST_ON_HEAP)


def give_freed_memory_back() -> None:
    """Give the gradients of a table of tokens pages of their own.

    Every step takes and frees blocks as large as the table. glibc soon puts these on the heap; what
    lives longer then settles in the holes, the next gradient no longer fits, and the heap grows by
    a megabyte per step. Blocks with pages of their own go back to the system when they are freed.
    """
    _set(M_MMAP_THRESHOLD, OWN_PAGES)


def _set(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(parameter, value)
