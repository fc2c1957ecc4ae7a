"""Random numbers: every generator is named by (seed, name, step)."""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """Return the NumPy generator for a purpose at a step.

    The same (seed, name, step) always has the same stream, whatever other generators do. Different
    names or steps have independent streams.

    Args:
        seed: the run's seed, 0 or more.
        name: the purpose, such as ``"ft.queries"``.
        step: the step, pass or refresh, 0 or more.

    Examples:
        >>> from opera.methods import generator
        >>> generator(0, "my.choice", step=3).random() == generator(0, "my.choice", step=3).random()
        True
    """
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode()), step]))
    )
