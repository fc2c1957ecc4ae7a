"""Snapshots of the sampling probabilities during training: one byte per probability, at up to 50
steps.

Code 0 is a probability of zero. Codes 1 to 255 stand for 1/4096 to 4096 times fine-tuning's
probability (Equation 1), in equal steps of the logarithm, which makes a probability at most 3.4%
off. Ratios beyond these ends are clipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import FloatArray
from opera.runs.reading import broken, read_arrays

MAX_LOG_RATIO = 12.0
"""Logarithm, to base 2, of the largest ratio that a code can express."""

CODES = 255


def quantised(ratio: FloatArray) -> NDArray[np.uint8]:
    """Encode ratios to fine-tuning's probability: uint8 of the same shape."""
    with np.errstate(divide="ignore"):
        code = 1 + (np.log2(ratio) + MAX_LOG_RATIO) / (2 * MAX_LOG_RATIO) * (CODES - 1)
    return np.where(np.asarray(ratio) > 0, np.rint(np.clip(code, 1, CODES)), 0).astype(np.uint8)


def ratios(codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Decode what :func:`quantised` encoded: float64 of the same shape."""
    exponent = (codes.astype(np.float64) - 1) / (CODES - 1) * 2 * MAX_LOG_RATIO - MAX_LOG_RATIO
    return np.where(codes > 0, np.exp2(exponent), 0.0)


ARRAYS = {
    "steps": ("int32", 1),
    "query_ids": ("int32", 1),
    "pair_ids": ("int32", 1),
    "query_codes": ("uint8", 2),
    "document_codes": ("uint8", 2),
}
"""Type and number of dimensions of each array in the file."""


@dataclass(frozen=True)
class SamplingRecord:
    """The recorded sampling probabilities of a run: ``T`` snapshots of ``S`` queries with ``P``
    pairs.

    Attributes:
        steps: int32 ``[T]``, ascending, from 0: the steps for whose draws the probabilities hold.
        query_ids: int32 ``[S]``, ascending, numbers of training queries; all of them, except for
            large training sets.
        pair_ids: int32 ``[P]``, their pairs (rows of ``pairs.parquet``), by query.
        query_codes: uint8 ``[T, S]``, n·P(q).
        document_codes: uint8 ``[T, P]``, m_q·P(d|q).
    """

    steps: NDArray[np.int32]
    query_ids: NDArray[np.int32]
    pair_ids: NDArray[np.int32]
    query_codes: NDArray[np.uint8]
    document_codes: NDArray[np.uint8]

    @classmethod
    def read(cls, path: Path) -> SamplingRecord:
        """Read what :meth:`write` wrote.

        Raises:
            RunFolderError: if the file holds anything else.
        """
        arrays = read_arrays(path)
        kinds = {name: (array.dtype.name, array.ndim) for name, array in arrays.items()}
        if kinds != ARRAYS:
            raise broken(path, f"must hold the arrays {', '.join(ARRAYS)}")
        record = cls(**arrays)
        snapshots, queries, pairs = len(record.steps), len(record.query_ids), len(record.pair_ids)
        if (
            record.query_codes.shape != (snapshots, queries)
            or record.document_codes.shape != (snapshots, pairs)
            or (record.steps < 0).any()
            or (np.diff(record.steps) <= 0).any()
        ):
            raise broken(path, "its arrays do not fit each other")
        return record

    def write(self, path: Path) -> None:
        """Write a compressed ``.npz`` file."""
        with path.open("wb") as file:
            np.savez_compressed(file, **vars(self))

    def until(self, step: int) -> SamplingRecord:
        """Return the snapshots of the steps before ``step``."""
        earlier = self.steps < step
        by_step = ("steps", "query_codes", "document_codes")
        return SamplingRecord(
            **{k: v[earlier] if k in by_step else v for k, v in vars(self).items()}
        )

    def query(self) -> NDArray[np.float64]:
        """n·P(q): float64 ``[T, S]``, 1 where a query is as likely as in fine-tuning."""
        return ratios(self.query_codes)

    def document(self) -> NDArray[np.float64]:
        """m_q·P(d|q): float64 ``[T, P]``."""
        return ratios(self.document_codes)
