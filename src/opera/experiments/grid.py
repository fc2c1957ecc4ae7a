"""Run a grid: one process per run, one or several at a time.

If a process dies, the other runs go on, and the system frees all its memory. The job is a line of
JSON on the standard input of the process. The input stays open: if it closes, the parent has ended,
so the process exits too. The last line of the log says why a run failed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

from pydantic import TypeAdapter

from opera.core.cache import sole_use
from opera.core.environment import threads_are_given, usable_cores
from opera.core.errors import OperaError
from opera.core.figures import PRIMARY, in_points
from opera.core.processes import signals_as_interrupt
from opera.core.progress import duration
from opera.core.registry import load_extensions
from opera.core.terminal import counted, say
from opera.data.names import DataName
from opera.experiments.plan import PlannedRun
from opera.run.adapt import adapt
from opera.run_folder.folder import Run, holds_run, run_in
from opera.run_folder.housekeeping import drop_checkpoints

WAIT_SECONDS = 0.25
ERROR = "opera: error: "
"""Start of the last line in the log of a failed run."""


@dataclass
class Grid:
    """The runs of a grid.

    Attributes:
        out: the folder of the grid.
        runs: the runs in the order in which they are trained.
        jobs: number of runs at once.
        baseline: label of the method that all other methods are tested against; ``None`` lets the
            analysis choose.
        done: the folders of finished runs. A run that cannot be read raises RunFolderError.
        failed: why the runs of this session failed, by folder.
    """

    out: Path
    runs: Sequence[PlannedRun]
    jobs: int = 1
    baseline: str | None = None
    done: set[Path] = field(init=False)
    failed: dict[Path, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        trained = [run_in(planned.folder) for planned in self.runs]
        self.done = {run.path for run in trained if run and run.finished}

    def plan(self, seconds: float) -> dict[str, Any]:
        """The plan of the grid and its estimated time, for JSON."""
        plan = [
            {
                "data": str(planned.data),
                "model": planned.model,
                "method": planned.label,
                "steps": planned.steps,
                "seed": planned.seed,
                "run": str(planned.folder),
                "finished": planned.folder in self.done,
            }
            for planned in self.runs
        ]
        return {"runs": plan, "jobs": self.jobs, "seconds": seconds}

    @property
    def waiting(self) -> list[PlannedRun]:
        """The runs that have neither finished nor failed."""
        ended = self.done | self.failed.keys()
        return [planned for planned in self.runs if planned.folder not in ended]

    def add_ended(
        self,
        planned: PlannedRun,
        failure: str | None,
        session: Sequence[PlannedRun],
        seconds: float,
    ) -> None:
        """Record and print that a run has ended.

        The time left follows from the seconds that the runs of this session have taken.
        """
        if failure is not None:
            self.failed[planned.folder] = failure
            message = f"failed: {planned.title}: {failure}\n  full log: {planned.log}"
            say(message, file=sys.stderr)
            return
        self.done.add(planned.folder)
        value = Run.open(planned.folder).measures["final"][PRIMARY]
        # runs count by their steps, if the grid sets them
        done = sum(run.steps or 1 for run in session if run.folder in self.done)
        left = seconds * sum(run.steps or 1 for run in self.waiting) / done
        remaining = f", about {duration(left)} left" if left else ""
        state = f"{len(self.done)} of {counted(len(self.runs), 'run')} done{remaining}"
        say(f"done: {planned.title}: {PRIMARY} {in_points(value)}; {state}", file=sys.stderr)


class Processes:
    """Processes that run one job each and can be stopped together.

    ``at_once`` processes share the CPU's cores, unless ``OMP_NUM_THREADS`` is set. If there are
    several GPUs, each process sees one, and waits until one is free.
    """

    command: tuple[str, ...] = (sys.executable, "-m", "opera.experiments.grid")

    def __init__(self, at_once: int) -> None:
        # otherwise python -m would import modules from the current folder
        self._environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        if at_once > 1 and not threads_are_given():
            self._environment["OMP_NUM_THREADS"] = str(max(1, usable_cores() // at_once))
        self._gpus: Queue[str] | None = None
        if at_once > 1 and (gpus := visible_gpus()):
            self._gpus = Queue()
            for gpu in gpus:
                self._gpus.put(gpu)
        self._started: list[subprocess.Popen[str]] = []
        self._lock, self._stopping = threading.Lock(), False

    def run(self, job: Mapping[str, Any], log: Path) -> str | None:
        """Run a job whose output is appended to ``log``; return why it failed, if it did."""
        if self._gpus is None:
            return self._run(job, log, self._environment)
        gpu = self._gpus.get()
        try:
            return self._run(job, log, {**self._environment, "CUDA_VISIBLE_DEVICES": gpu})
        finally:
            self._gpus.put(gpu)

    def _run(self, job: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> str | None:
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as output, self._lock:
                if self._stopping:
                    return "stopped"
                process = subprocess.Popen(
                    list(self.command),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    text=True,
                    env=environment,
                    start_new_session=True,  # so that Ctrl-C reaches only the parent
                )
                self._started.append(process)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process:  # it may have died already
                print(json.dumps(job, default=asdict), file=process.stdin, flush=True)
                process.wait()
        except OSError as error:  # the other runs must go on
            return f"{type(error).__name__}: {error}"
        return _failure(process.wait(), log)

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to all processes, and start no more; on SIGTERM they save a checkpoint."""
        with self._lock:
            self._stopping = True
            for process in self._started:
                process.send_signal(number)


def visible_gpus() -> list[str]:
    """Return the GPUs of this process, as values of ``CUDA_VISIBLE_DEVICES``; empty for none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch  # a grid needs it only here

        return [str(number) for number in range(torch.cuda.device_count())]
    return [gpu.strip() for gpu in visible.split(",") if gpu.strip()]


def _failure(status: int, log: Path) -> str | None:
    """Say why a process failed; ``None`` if it did not."""
    if status == 0:
        return None
    if status == -signal.SIGKILL:
        return "its process was killed, as happens when memory runs out"
    last = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    if last.startswith(ERROR):
        return last.removeprefix(ERROR)
    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"its process ended with {reason}"


def train_grid(grid: Grid) -> None:
    """Train the runs that are not finished, while no other process runs a grid in the folder.

    A line is printed when a run ends. An interrupted run resumes from its checkpoint. If a run
    fails, the grid records it and the other runs go on. The runs share the base model's embeddings
    and rankings through the cache. Ctrl-C or SIGTERM stops the runs, waits for their checkpoints,
    and raises KeyboardInterrupt. A second Ctrl-C kills them.
    """
    if not (runs := grid.waiting):
        return
    at_once = min(grid.jobs, len(runs))
    plan = f"{len(runs)} of {counted(len(grid.runs), 'run')} to train, {at_once} at a time"
    say(f"{plan}; the log of the first is {runs[0].log}", file=sys.stderr)
    grid.out.mkdir(parents=True, exist_ok=True)  # it will hold the lock
    with (
        sole_use(grid.out, "runs this grid"),
        ThreadPoolExecutor(at_once) as pool,
        signals_as_interrupt(),
    ):
        _train_runs(grid, runs, Processes(at_once), pool)


def _train_runs(
    grid: Grid, runs: Sequence[PlannedRun], processes: Processes, pool: Executor
) -> None:
    started = time.monotonic()
    futures = {
        pool.submit(processes.run, planned.call(), planned.log): number
        for number, planned in enumerate(runs)
    }
    try:
        waiting = set(futures)
        while waiting:  # with a timeout, as a signal just before a wait does not end the wait
            done, waiting = wait(waiting, WAIT_SECONDS, FIRST_COMPLETED)
            for future in sorted(done, key=futures.__getitem__):  # in the order of the plan
                seconds = time.monotonic() - started
                grid.add_ended(runs[futures[future]], future.result(), runs, seconds)
    except BaseException:
        processes.stop(signal.SIGTERM)
        try:
            while wait(futures, WAIT_SECONDS).not_done:
                pass
        except KeyboardInterrupt:
            processes.stop(signal.SIGKILL)
        raise


def main() -> None:
    """Run the job on standard input. If it fails, the last line of the log gives the reason."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        run_job(job)
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OperaError):
            reason = "; ".join(error.lines)
        else:
            traceback.print_exc()
        say(ERROR + " ".join(reason.split()), file=sys.stderr)
        sys.exit(1)


def run_job(job: Mapping[str, Any]) -> None:
    """Train or resume a run, and delete its checkpoints."""
    load_extensions()
    folder, names = Path(job["out"]), TypeAdapter(DataName)
    data, also = names.validate_python(job["data"]), map(names.validate_python, job["also"])
    adapt(**{**job, "data": data, "also": [*also]}, resume=holds_run(folder))
    drop_checkpoints(folder)


def end_with_parent() -> None:
    """Exit as soon as the parent ends, so that the next call can continue this run.

    An interrupted run always resumes to the same result.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
