"""Randomness: every draw comes from a generator named by (seed, name, step), and from nothing else."""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """Return the NumPy generator for one purpose at one step.

    The same (seed, name, step) always gives the same stream, whatever was drawn before or elsewhere; different
    names or steps give independent streams.

    Args:
        seed: the run's seed, 0 or more.
        name: what the draws are for, such as ``"ft.queries"``.
        step: the step, pass or refresh the draws belong to, 0 or more.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode()), step])))
