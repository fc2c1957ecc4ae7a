"""A script: runs the command, or a grid's worker, under a fault at its n-th change of some folders.

``under_fault.py FAULT N FOLDERS COMMAND...``: a change is a file opened for writing, renamed or removed, or a folder
made or removed, inside one of the folders. The faults:

    none   changes are counted, for the line ``87 changes`` at the end
    kill   SIGKILL
    term   SIGTERM
    full   from there on every file opened for writing meets a full disk

Environment variables: ``FILE_LIMIT`` is the most bytes that a file may have. With ``FAULT_IN=worker`` the fault meets
the workers of a grid, each at its own n-th change, and not it.
"""

import errno
import multiprocessing
import os
import resource
import signal
import sys
from types import SimpleNamespace

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
fault, left, folders, *arguments = sys.argv[1:]
remaining, watched = int(left), tuple(folders.split(os.pathsep))
process = os.getpid()


def strike(event: str, details: tuple[object, ...]) -> None:
    """The audit hook: counts changes, and does what the fault says at the chosen one."""
    global remaining
    if os.getpid() != process:  # a worker was forked off with this hook, and has one of its own
        return
    opened = event == "open" and isinstance(details[2], int)
    written = opened and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if not (written or event in CHANGES) or not str(details[0]).startswith(watched):
        return
    remaining -= 1
    if fault == "full":
        if remaining <= 0 and written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(details[0]))
    elif remaining == 0 and fault != "none":
        print(f"struck at {details[0]}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGTERM)


def fork_workers() -> bool:
    """Fork the workers of a grid off this process, under this script; returns whether the fault is theirs."""
    from opera.experiments import grid
    from processes import ForkedWorker

    theirs = os.environ.get("FAULT_IN") == "worker"
    ForkedWorker.context = multiprocessing.get_context("fork")
    grid.subprocess = SimpleNamespace(Popen=ForkedWorker, PIPE=-1)
    script = [__file__, fault if theirs else "none", left, folders, "worker"]
    grid.Processes.command = (sys.executable, *script)
    return theirs


def set_limits() -> None:
    """Limit the size of files."""
    if most := int(os.environ.get("FILE_LIMIT", 0)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def main() -> None:
    """Run the rest of the command line."""
    set_limits()
    bystander = arguments == ["worker"] and os.environ.get("FAULT_IN") != "worker"
    if not bystander and (arguments[0] not in ("compare", "reproduce") or not fork_workers()):
        sys.addaudithook(strike)
    sys.argv = ["opera", *arguments]
    try:
        if arguments == ["worker"]:
            from opera.experiments.grid import main as work

            work()
        else:
            from opera.cli import main as opera

            opera()
    finally:
        if not bystander:
            print(f"{int(left) - remaining} changes", file=sys.stderr)


main()
