"""This machine's matrix-product peak in the precision of the work: GFLOP per second."""

from __future__ import annotations

import time
from statistics import median

import torch
from turns import Turns, job

SIZE, REPEATS = 2048, 5


def gflops(dtype: torch.dtype) -> float:
    """Return the median over products of two square matrices."""
    one, other = torch.randn(SIZE, SIZE).to(dtype), torch.randn(SIZE, SIZE).to(dtype)
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        torch.mm(one, other)
        seconds.append(time.perf_counter() - start)
    return 2 * SIZE**3 / median(seconds[1:]) / 1e9


if __name__ == "__main__":
    turns = Turns()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[job()["precision"]]
    turns.ready()
    while True:
        turns.done(gflops=gflops(dtype))
