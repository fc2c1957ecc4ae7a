"""Random numbers: every generator is named by (seed, name, step)."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


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


def order_of_texts(digests: NDArray[np.uint64], seed: int, name: str) -> NDArray[np.int64]:
    """Put texts into a random order that a new export of the same data keeps.

    Which of two texts comes first depends only on the texts and on (seed, name). So other ids,
    another order of the rows, and additional rows do not change it.

    Args:
        digests: uint64 ``[n]``, the hashes of different texts.
        seed: as for :func:`generator`.
        name: as for :func:`generator`.

    Returns:
        The positions of the texts in their random order: int64 ``[n]``.
    """
    keys = digests ^ generator(seed, name).integers(2**64, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    return np.argsort(keys ^ (keys >> np.uint64(31)), kind="stable")
