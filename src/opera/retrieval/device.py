"""The device to compute on, and the precision it supports."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from accelerate import PartialState

from opera.core.errors import SettingError

Precision = Literal["auto", "fp32", "bf16", "fp16"]


def pick_device() -> str:
    """Return the first available of ``cuda``, ``mps`` and ``cpu``; with several GPUs, each process uses its own."""
    return str(PartialState().device.type)


def describe_device(device: str) -> str:
    """Describe the device, such as ``cuda (NVIDIA H100)`` or ``cpu (2 threads)``."""
    if device == "cuda":
        return f"cuda ({torch.cuda.get_device_name()})"
    return f"cpu ({torch.get_num_threads()} threads)" if device == "cpu" else device


def resolve_precision(precision: Precision, device: str, is_transformer: bool) -> Literal["fp32", "bf16", "fp16"]:
    """Resolve ``auto``: fp32 for a static model; for a transformer bf16 where the device supports it.

    CUDA devices without bf16 get fp16, other devices fp32.

    Raises:
        SettingError: for fp16 on a device other than CUDA, where gradients cannot be scaled.
    """
    if precision == "fp16" and device != "cuda":
        raise SettingError(f"precision=fp16: needs CUDA, this machine has {device}; use auto, fp32 or bf16")
    if precision != "auto":
        return precision
    if not is_transformer:
        return "fp32"
    if device == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    return "bf16" if device == "cpu" and _cpu_has_bf16() else "fp32"


def autocast(precision: str, device: str) -> AbstractContextManager[object]:
    """Return the autocast context for a resolved precision."""
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.autocast(device, dtype=dtypes[precision]) if precision in dtypes else nullcontext()


def _cpu_has_bf16() -> bool:
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
