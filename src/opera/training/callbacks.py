"""What happens around each step: the trace, the sampler's state beside each checkpoint, the progress bar."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm.auto import tqdm
from transformers import TrainerCallback

from opera.core.files import replace_file
from opera.runs.folder import SAMPLER_FILE, WHOLE_FILE, RunWriter
from opera.training.distributed import any_of, barrier, is_main
from opera.training.sampler import PairSampler

log = logging.getLogger("opera")
PATIENCE_SECONDS = 2.0


def trace_schema(schedule: Iterable[str]) -> pa.Schema:
    """The columns of ``trace.parquet`` for a method whose schedule has these names."""
    return pa.schema(
        [("step", pa.int64()), *((name, pa.float64()) for name in ("loss", "learning_rate", *schedule, "seconds"))]
    )


class Trace(TrainerCallback):  # type: ignore[misc]
    """A row a step: steps count from 1; ``loss`` is the mean over the step's pairs, before the update.

    Whenever it is written, the recorded sampling probabilities are written too.
    """

    def __init__(self, sampler: PairSampler, writer: RunWriter) -> None:
        self.sampler, self.writer = sampler, writer
        self.rows: list[dict[str, Any]] = []
        self._losses: list[NDArray[np.float32]] = []
        self._learning_rate = 0.0
        self._before = time.perf_counter()

    def saw(self, losses: NDArray[np.float32]) -> None:
        """Take the losses of one micro-batch."""
        self._losses.append(losses)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._before = time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the learning rate that this step uses."""
        self._learning_rate = float(kwargs["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the step's row; its seconds run from the end of the step before."""
        now = time.perf_counter()
        schedule = self.sampler.finish(state.global_step - 1)
        self.rows.append(
            {
                "step": state.global_step,
                "loss": float(np.concatenate(self._losses).mean(dtype=np.float64)),
                "learning_rate": self._learning_rate,
                **{name: None if math.isnan(value) else value for name, value in schedule.items()},
                "seconds": now - self._before,
            }
        )
        self._losses, self._before = [], now

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the trace and, beside the trainer's checkpoint, the sampler's state; then mark it as whole."""
        self.write()
        barrier()  # every process has written its part
        if not self.writer.writes:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        arrays = flatten(self.sampler.state_dict())
        replace_file(folder / SAMPLER_FILE, lambda temporary: _save_arrays(temporary, arrays))
        seal(folder)

    def write(self) -> None:
        """Write ``trace.parquet`` and, where there are snapshots, ``sampling.npz``."""
        self.writer.write_trace(self.rows, trace_schema(self.sampler.method.schedule(0)))
        if self.sampler.recorder is not None:
            self.writer.write_sampling(self.sampler.recorder.finished())


class Stopper(TrainerCallback):  # type: ignore[misc]
    """Turns Ctrl-C, or the SIGTERM of a cluster, into one more checkpoint and the end of training.

    A second Ctrl-C, two seconds later or more, stops at once. A second SIGTERM is nothing new: clusters send it to
    torchrun and to its processes, and torchrun passes its own on.

    Attributes:
        stopped: whether training was ended so.
    """

    def __init__(self) -> None:
        self.stopped, self._asked_at = False, math.inf
        self._before: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listen."""
        with suppress(ValueError):  # only the main thread may
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop, if any process was asked to."""
        if any_of(self._asked_at < math.inf):
            self.stopped = state.global_step < state.max_steps
            control.should_save = control.should_training_stop = True

    def close(self) -> None:
        """Listen no more."""
        for number, handler in self._before.items():
            if handler is not None:  # one that was not set from Python cannot be given back
                signal.signal(number, handler)
        self._before = {}

    def _ask(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._asked_at == math.inf:
            self._asked_at = now
            log.info("saving a checkpoint, then stopping; Ctrl-C once more stops at once")
        elif number == signal.SIGINT and now - self._asked_at > PATIENCE_SECONDS:
            self.close()
            raise KeyboardInterrupt


def ignore_signals(worker: int) -> None:
    """Leave signals to the training process: a loader's worker that dies of one would take it along."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


class Progress(TrainerCallback):  # type: ignore[misc]
    """One bar for the training: steps, time left, loss, and the dev measure when there is one."""

    def __init__(self, metric: str) -> None:
        self._metric, self._facts = f"eval_{metric}", dict[str, str]()
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar."""
        shown = None if is_main() else True
        self._bar = tqdm(
            total=state.max_steps, initial=state.global_step, desc="training", unit=" steps", disable=shown
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        self._bar.update(state.global_step - self._bar.n)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Show the latest loss and dev measure."""
        for key, label in (("loss", "loss"), (self._metric, self._metric.removeprefix("eval_"))):
            if logs and key in logs:
                self._facts[label] = f"{float(logs[key]):.3f}"
        self._bar.set_postfix(self._facts)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self._bar.close()


def seal(folder: Path) -> None:
    """Mark a checkpoint as whole: the SHA-256 of each of its files."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != WHOLE_FILE]
    parts = {str(path.relative_to(folder)): _digest(path) for path in files}
    text = json.dumps(parts, indent=1)
    replace_file(folder / WHOLE_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def damage(folder: Path) -> str:
    """Say what is wrong with a checkpoint: an empty string where it is whole."""
    try:
        parts = json.loads((folder / WHOLE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "it was cut off while it was written"
    for name, digest in parts.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if _digest(folder / name) != digest:
            return f"{name} is damaged"
    return ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flatten(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings into one, with keys joined by ``/``."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat.update(flatten(value, f"{prefix}{key}/") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo :func:`flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *folders, name = key.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return nested


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)
