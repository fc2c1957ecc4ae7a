"""Dropout on a CPU: the mask is a hash of the place, where torch draws every random number on one
thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from opera.encoder import kernels
from opera.encoder.kernels import seen_by_numba, use_torch_threads

SMALL = 4_096
"""Numbers up to which torch's own is as fast."""


def threshold_and_key(rate: float) -> tuple[np.uint32, np.uint32]:
    """Say for a rate of dropout which random numbers to use, by torch's generator: whoever restores
    it repeats them.
    """
    if rate == 0:
        return np.uint32(0), np.uint32(0)
    return np.uint32(min(rate * 2**32, 2**32 - 1)), np.uint32(torch.randint(2**32, ()).item())


class HashedDropout(nn.Dropout):
    """``torch.nn.Dropout`` whose mask on a CPU is hashed, in forward and again in backward; none is
    kept.

    One number of torch's generator decides the mask, so whoever restores the generator repeats it.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop numbers with probability ``p`` while training; scale the others by 1 / (1 - p)."""
        computed_here = input.device.type == "cpu" and input.dtype in (
            torch.float32,
            torch.bfloat16,
        )
        if not self.training or not 0 < self.p < 1 or not computed_here or input.numel() <= SMALL:
            return super().forward(input)
        dropped: Tensor = _Dropped.apply(input, *threshold_and_key(self.p))  # type: ignore[no-untyped-call]
        return dropped


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, threshold: np.uint32, key: np.uint32) -> Tensor:
        ctx.threshold, ctx.key = threshold, key
        return _drop(numbers, threshold, key)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _drop(gradient, ctx.threshold, ctx.key), None, None


def _drop(numbers: Tensor, threshold: np.uint32, key: np.uint32) -> Tensor:
    numbers = numbers.contiguous()
    out = torch.empty_like(numbers)
    use_torch_threads()
    rows = (seen_by_numba(part).reshape(-1, numbers.shape[-1]) for part in (numbers, out))
    kernels.drop(*rows, threshold, key)
    return out
