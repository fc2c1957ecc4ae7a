"""Functions that numba compiles."""

from __future__ import annotations

from typing import Any

from numba import njit


def cached_njit(**options: Any) -> Any:
    """``njit`` with a cache on disk, or without it if numba finds no writable folder."""

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no writable folder; every process compiles
            return njit(**options)(function)

    return compiled
