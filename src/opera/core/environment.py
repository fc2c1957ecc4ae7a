"""Environment variables that NumPy, torch and their OpenMP read as they load: how threads wait, and
which kernels.

GNU OpenMP's threads wait for each other by spinning. On cores of their own that saves a wake-up;
beside other work the thread that spins uses up the time slice of the thread it waits for, at each
of thousands of barriers per step (docs/benchmarks.md has the figures). And torch starts a thread
per core of the host, also in a container that may use two of them.

These libraries hold several versions of their kernels, choose by processor, and add numbers in
another order in each. ``OPERA_REPRODUCIBLE=1`` pins the versions for AVX2, which nearly all
processors since 2015 have (docs/benchmarks.md).
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from opera.core.errors import SettingError

VARIABLE = "OPERA_REPRODUCIBLE"
KERNELS = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # torch's matrix products; the one version that MKL has for every maker of processors
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",  # NumPy's and SciPy's
    "NPY_DISABLE_CPU_FEATURES": (
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    ),
}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Each decides how threads wait; one that the user has set is left alone, and so are the others."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""What the container's control group may use of the processors: microseconds, and in how many."""


def share_cores() -> None:
    """Let threads wait asleep, and start no more than a container may use; the command line calls
    this.

    Child processes inherit it. Where torch was imported first, it has made its choice, and nothing
    is set.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    cores = usable_cores()
    if THREADS[0] not in os.environ and cores < (os.cpu_count() or 1):
        os.environ[THREADS[0]] = _chosen[THREADS[0]] = str(cores)


def usable_cores() -> int:
    """How many cores this process may use: those that its CPU set and its control group leave it,
    as in a container or a cluster's job.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError, ZeroDivisionError):  # another system, or "max"
        used, period = map(int, QUOTA.read_text(encoding="ascii").split())
        cores = min(cores, max(1, used // period))
    return cores


def threads_are_given() -> bool:
    """Whether the user said how many threads a process starts."""
    return os.environ.get(THREADS[0]) not in (None, _chosen.get(THREADS[0]))


def is_reproducible() -> bool:
    """Whether the user asked for arithmetic that machines agree on."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def fix_arithmetic() -> None:
    """Set the variables if the user asked for it; ``import opera`` calls this, and child processes
    inherit them.

    The number of threads is 1, or ``OMP_NUM_THREADS`` where that is set: machines agree if it is
    the same on both.
    """
    if not is_reproducible() or _problem():
        return
    threads = dict.fromkeys(THREADS, os.environ.get("OMP_NUM_THREADS") or "1")
    os.environ.update({**KERNELS, **threads, "MKL_DYNAMIC": "FALSE", "CUDA_VISIBLE_DEVICES": ""})
    warnings.filterwarnings(
        "ignore", "During parsing environment variable: 'NPY_DISABLE", ImportWarning
    )


def check_arithmetic() -> None:
    """Check that what the user asked for could be had; called before anything is computed.

    Raises:
        SettingError: if the processor has no AVX2, or NumPy or torch were imported before and have
            made their choice.
    """
    was_set = all(os.environ.get(name) == value for name, value in KERNELS.items())
    if is_reproducible() and not was_set:
        raise SettingError(f"{VARIABLE}={os.environ[VARIABLE]}: {_problem()}")


_chosen: dict[str, str] = {}
"""What :func:`share_cores` set."""


def _problem() -> str:
    """Say why the kernels cannot be chosen; empty if they can."""
    facts = Path("/proc/cpuinfo")
    flags = facts.read_text(encoding="utf-8", errors="replace") if facts.is_file() else "avx2"
    if platform.machine().lower() not in ("x86_64", "amd64") or "avx2" not in flags:
        return f"needs an x86-64 processor with AVX2, this is {platform.machine()}; unset it"
    if {"numpy", "torch"} & sys.modules.keys():
        return "NumPy or torch was imported first and has chosen its kernels; import opera first"
    return ""
