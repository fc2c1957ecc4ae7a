"""How many threads compute, and how they wait: environment variables that torch's OpenMP library reads as it loads.

GNU OpenMP's threads wait for each other by spinning. On cores of their own that saves a wake-up; beside other work
the thread that spins uses up the time slice of the thread it waits for, at each of thousands of barriers per step
(docs/performance.md has the figures). And torch starts a thread per core of the host, also in a container that may use
two of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

THREADS = "OMP_NUM_THREADS"
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Each decides how threads wait; one that the user has set is left alone, and so are the others."""


def share_cores() -> None:
    """Let threads wait asleep, and start no more than there are cores to be used; ``import opera`` calls this.

    Child processes inherit it. Where torch was imported first, it has made its choice, and nothing is set.
    """
    if "torch" in sys.modules:
        return
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    quota = cpu_quota()
    if quota is not None and THREADS not in os.environ:
        threads = max(1, int(quota))
        if threads < usable_cores():
            os.environ[THREADS] = str(threads)


def usable_cores() -> int:
    """Count the cores that this process may run on; what torch takes by itself where nothing is set."""
    if not hasattr(os, "sched_getaffinity"):  # macOS and Windows
        return os.cpu_count() or 1
    allowed = os.sched_getaffinity(0)
    siblings = {
        _read(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
        for cpu in allowed
    }
    return len(allowed) if "" in siblings else len(siblings)


def cpu_quota(
    groups: Path = Path("/proc/self/cgroup"), version_2: Path = Path("/sys/fs/cgroup"),
    version_1: Path = Path("/sys/fs/cgroup/cpu"),
) -> float | None:  # fmt: skip
    """Return how many cores' time the container may use, which need not be a whole number; ``None`` for all.

    Of the control group and those above it, the smallest quota counts. Both versions of Linux's control groups are
    read.

    Args:
        groups: the file that names this process's groups.
        version_2: where the groups of version 2 are mounted.
        version_1: where those of version 1 are, of the controller ``cpu``.
    """
    quotas = []
    for line in _read(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        home = (
            version_2 if not controllers else version_1 if "cpu" in controllers.split(",") else None
        )
        if home is None:
            continue
        group = home / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == home.parent:
                break
            limit = _read(folder / "cpu.max").split() or [
                _read(folder / "cpu.cfs_quota_us"),
                _read(folder / "cpu.cfs_period_us"),
            ]
            if len(limit) == 2 and all(each.isdecimal() for each in limit) and int(limit[1]) > 0:
                quotas.append(int(limit[0]) / int(limit[1]))
    return min(quotas, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return ""
