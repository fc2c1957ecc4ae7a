"""Random numbers: every draw comes from a generator named by (seed, name, step)."""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """Return the NumPy generator for one purpose at one step.

    The same (seed, name, step) always gives the same stream, whatever was drawn elsewhere.
    Different names or steps give independent streams.

    Args:
        seed: seed of the run, 0 or more.
        name: purpose of the draws, such as ``"ft.queries"``.
        step: the step, pass or refresh the draws belong to, 0 or more.
    """
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode()), step]))
    )
