"""Several processes that train together, as torchrun starts them: who this one is, and what they tell each other.

With one process everything here is nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from opera.core.errors import TrainingError

T = TypeVar("T")


def world_size() -> int:
    """How many processes there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Which of those on this machine this is, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_main() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


def barrier() -> None:
    """Wait for the others."""
    if world_size() > 1:
        dist.barrier()


@contextmanager
def main_first() -> Iterator[None]:
    """Let the main process do something alone, and the others after it: they find what it left in the cache."""
    if not is_main():
        barrier()
    yield
    if is_main():
        barrier()


def from_main(value: T) -> T:
    """Give every process the main one's value, which must be picklable."""
    if world_size() == 1:
        return value
    box: list[Any] = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]  # type: ignore[no-any-return]


def any_of(flag: bool) -> bool:
    """Whether the flag is up in any process."""
    if world_size() == 1:
        return flag
    flags = torch.tensor([int(flag)], device=_device())
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def refuse_differences(what: str, fingerprint: int) -> None:
    """Refuse to go on where processes do not hold the same.

    Raises:
        TrainingError: naming the processes that differ from the main one.
    """
    if world_size() == 1:
        return
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, fingerprint)
    if others := [str(at) for at, value in enumerate(found) if value != found[0]]:
        raise TrainingError(
            f"{what} of process {', '.join(others)} differ from those of process 0: all must read the same data and "
            "compute on devices of one kind"
        )


def gather_numbers(ids: NDArray[np.int64], values: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Gather what each process saw, in the order of the processes.

    Ids travel as int64 and values as float32, in two messages: in one tensor of floats large ids would be rounded.

    Args:
        ids: int64 ``[m]``, as many in every process.
        values: float32 ``[m, k]``.

    Returns:
        int64 ``[W·m]`` and float32 ``[W·m, k]``.
    """
    if world_size() == 1:
        return ids, values
    gathered = []
    for part in (torch.from_numpy(np.ascontiguousarray(ids)), torch.from_numpy(np.ascontiguousarray(values))):
        mine = part.to(_device())
        parts = [torch.empty_like(mine) for _ in range(world_size())]
        dist.all_gather(parts, mine)
        gathered.append(torch.cat(parts).cpu().numpy())
    return gathered[0], gathered[1]


def gather_with_gradient(vectors: Tensor) -> Tensor:
    """Gather vectors ``[m, dimension]`` of all processes to ``[W·m, dimension]``, in their order.

    The gradient flows back to the process that a vector came from: W processes with a batch of B/W each then have the
    gradient of one process with B (docs/paper.md, row 10).
    """
    return _Gather.apply(vectors) if world_size() > 1 else vectors  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        parts = [torch.empty_like(vectors) for _ in range(world_size())]
        dist.all_gather(parts, vectors.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total.chunk(world_size())[rank()]


def _device() -> str:
    return f"cuda:{local_rank()}" if dist.get_backend() == "nccl" else "cpu"
