"""How numba sees torch's tensors, and on how many threads it works."""

from __future__ import annotations

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if numba.config.THREADING_LAYER_PRIORITY[0] == "tbb":  # its default: the user has not chosen
    # OpenMP is what torch works with: where torch was imported first, both share one pool of threads.
    numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]


def use_torch_threads() -> None:
    """Let numba work on as many threads as torch does."""
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))


def seen_by_numba(tensor: Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    """See a tensor on the CPU as an array over the same memory: float32, or the bits of bfloat16 as uint16."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        bits: NDArray[np.uint16] = tensor.view(torch.uint16).numpy()
        return bits
    return tensor.numpy()
