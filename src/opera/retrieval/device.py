"""The device to compute on, the precision it supports, and tensors that processes share."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Literal

import numpy as np
import torch
from accelerate import PartialState
from numpy.typing import NDArray
from sentence_transformers.util import all_gather, all_gather_with_grad
from torch import Tensor

from opera.core.environment import VARIABLE, check_arithmetic, is_reproducible
from opera.core.errors import SettingError, TrainingError
from opera.core.processes import everywhere, process_count, several_processes
from opera.core.processor import processor_defaults
from opera.core.terminal import counted

Precision = Literal["auto", "fp32", "bf16", "fp16"]

WAIT = timedelta(days=1)
"""How long processes wait for each other: one of them may encode for hours."""


def join_processes() -> PartialState:
    """Join the other processes that torchrun started, if any, and return this process's state.

    Call this before any other use of ``PartialState()``: the first call fixes backend and timeout.
    accelerate keeps one state per process.
    """
    has_gpu = torch.cuda.is_available()
    backend = {"backend": "gloo"} if several_processes() and not has_gpu else {}
    return PartialState(
        cpu=not has_gpu and not torch.backends.mps.is_available(), timeout=WAIT, **backend
    )


def pick_device() -> str:
    """Return the first available of ``cuda``, ``mps`` and ``cpu``; each process uses one GPU.

    Raises:
        SettingError: if this processor or process cannot do what ``OPERA_REPRODUCIBLE`` asks for.
    """
    check_arithmetic()  # it also hides the GPUs
    if several_processes():
        return str(join_processes().device.type)
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def describe_device(device: str) -> str:
    """Describe the device, such as ``cuda (NVIDIA H100)`` or ``cpu (2 threads)``."""
    if device == "cuda":
        return f"cuda ({torch.cuda.get_device_name()})"
    threads = counted(torch.get_num_threads(), "thread") + ", reproducible" * is_reproducible()
    return f"cpu ({threads})" if device == "cpu" else device


def resolve_precision(
    precision: Precision, device: str, is_transformer: bool
) -> Literal["fp32", "bf16", "fp16"]:
    """Resolve ``auto``: fp32 for a static model, bf16 for a transformer if the device supports it.

    Without bf16, a CUDA device gets fp16 and any other device fp32. ``OPERA_REPRODUCIBLE`` always
    means fp32.

    Raises:
        SettingError: for fp16 without CUDA, because gradients cannot be scaled there; for half
            precision with ``OPERA_REPRODUCIBLE``, because its kernels differ by processor.
    """
    if is_reproducible():
        if precision not in ("auto", "fp32"):
            raise SettingError(
                f"precision={precision}: {VARIABLE} computes in fp32; leave the setting out, or "
                f"unset {VARIABLE}"
            )
        return "fp32"
    if precision == "fp16" and device != "cuda":
        raise SettingError(
            f"precision=fp16: needs CUDA, but this machine has {device}; use auto, fp32 or bf16"
        )
    if precision != "auto":
        return precision
    if not is_transformer:
        return "fp32"
    if device == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return processor_defaults().precision if device == "cpu" else "fp32"


def autocast(precision: str, device: str) -> AbstractContextManager[object]:
    """Return the autocast context for a resolved precision."""
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.autocast(device, dtype=dtypes[precision]) if precision in dtypes else nullcontext()


# sentence-transformers calls a function that torch has renamed. A filter around each call would
# reset Python's record of shown warnings, so that other warnings would appear at every step.
warnings.filterwarnings(
    "ignore", message="torch.distributed.nn.functional.all_gather", category=FutureWarning
)


def refuse_differences(content: str, arrays: Iterable[NDArray[Any]]) -> None:
    """Stop if the processes hold different arrays; ``content`` names them in the error.

    Raises:
        TrainingError: naming the processes that differ from process 0.
    """
    checksums = everywhere(lambda: [zlib.crc32(array.tobytes()) for array in arrays])
    different = [str(index) for index, sums in enumerate(checksums) if sums != checksums[0]]
    if different:
        raise TrainingError(
            f"{content} of process {', '.join(different)} differ from those of process 0; let all "
            "processes read the same data, and compute on devices of one kind"
        )


def gather_embeddings(embeddings: Tensor) -> Tensor:
    """Gather embeddings ``[m, dimension]`` of all processes to ``[W·m, dimension]``, in rank order.

    Gradients flow back to the process that computed the embedding. So W processes with B/W pairs
    each have the gradient of one process with B pairs (erratum 10).
    """
    return all_gather_with_grad(embeddings) if process_count() > 1 else embeddings


def gather_values(values: Tensor) -> Tensor:
    """Gather values ``[m, k]`` of all processes to ``[W·m, k]``, without gradients."""
    return all_gather(values) if process_count() > 1 else values


def gather_columns(*columns: Tensor) -> NDArray[np.float32]:
    """Gather columns ``[m]`` of all processes: float32 ``[columns, W·m]``, without gradients."""
    values = torch.stack([column.float() for column in columns], dim=1)
    return np.asarray(gather_values(values).cpu().numpy().T)
