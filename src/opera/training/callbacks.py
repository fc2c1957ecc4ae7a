"""Trainer callbacks: checkpoints of samplers, the trace, signals, progress, logging services."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks

from opera.core.arguments import several
from opera.core.errors import SettingError
from opera.core.figures import in_points, trainer_key
from opera.core.files import finish_folder, remove, replace_file, write_arrays, writing
from opera.core.progress import progress
from opera.core.terminal import error_summary, log, shown
from opera.retrieval.device import gather_values
from opera.run_folder.folder import COMPLETE_FILE, SAMPLER_FILE, RunWriter, checkpoint_folders
from opera.training.sampler import Sampler

PREFIX = "opera/"
"""The names of OPERA's curves begin with it."""


class SamplerCallback(TrainerCallback):  # type: ignore[misc]
    """Saves the state of samplers with each checkpoint of the trainer, and logs their curves.

    Attributes:
        samplers: a run has one; a script has one per data set.
        names: of the data sets, which begin the names of their curves.
    """

    def __init__(self, samplers: Sequence[Sampler] = (), names: Sequence[str] = ("",)) -> None:
        self.samplers, self.names = list(samplers), names

    def curves(self) -> dict[str, float]:
        """Return the schedule at the last trained step, and the fractions of pairs and queries that
        were trained so far."""
        curves: dict[str, float] = {}
        for name, sampler in zip(self.names, self.samplers, strict=False):
            trained_queries = np.logical_or.reduceat(
                sampler.trained, sampler.pairs.query_offsets[:-1]
            )
            values = {
                **sampler.schedule,
                "coverage_pairs": float(sampler.trained.mean()),
                "coverage_queries": float(trained_queries.mean()),
            }
            prefix = f"{PREFIX}{name}_" if name else PREFIX
            curves |= {f"{prefix}{curve}": value for curve, value in values.items()}
        return {name: value for name, value in curves.items() if math.isfinite(value)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two optimizer steps."""
        return {str(number): sampler.state_dict() for number, sampler in enumerate(self.samplers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            TrainingError: if it belongs to other training pairs.
        """
        for number, sampler in enumerate(self.samplers):
            sampler.load_state_dict(state[str(number)])

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the state next to the trainer's; only the main process does, for all are equal."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_arrays(folder / SAMPLER_FILE, flatten(self.state_dict()))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Add the curves to the log line of a training step."""
        if logs is not None and "loss" in logs:
            logs.update(self.curves())
            state.log_history[-1].update(self.curves())


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest complete checkpoint, or ``None``; delete newer incomplete ones.

    Raises:
        StorageError: if a checkpoint cannot be deleted.
    """
    for folder in reversed(checkpoint_folders(checkpoints).values()):
        if not folder.is_symlink() and (folder / COMPLETE_FILE).is_file():
            return folder
        log.info("note: %s is incomplete; trying the previous checkpoint", folder.name)
        with writing(folder):
            remove(folder)
    return None


def flatten(state: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings, with keys joined by ``/``."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat.update(
            flatten(value, f"{prefix}{key}/")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo :func:`flatten`; numbers are Python numbers again."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *folders, name = key.split("/")
        parent = nested
        for folder in folders:
            parent = parent.setdefault(folder, {})
        parent[name] = value if value.ndim else value.item()
    return nested


SECOND_INTERRUPT_AFTER = 2.0
"""A second Ctrl-C stops at once if it comes at least so many seconds after the first."""


def checked_callbacks(callbacks: object) -> tuple[TrainerCallback | type[TrainerCallback], ...]:
    """Return the user's callbacks, which may be classes, as a tuple.

    Raises:
        SettingError: if one is not a ``TrainerCallback``.
    """
    user_callbacks = several(callbacks or (), "callbacks", "transformers callbacks")
    for callback in user_callbacks:
        kind = callback if isinstance(callback, type) else type(callback)
        if not issubclass(kind, TrainerCallback):
            raise SettingError(
                f"callbacks: must be transformers TrainerCallback objects, got {shown(callback)}"
            )
    return user_callbacks


class Trace(TrainerCallback):  # type: ignore[misc]
    """Records one row per step.

    ``step`` counts from 1. ``loss`` is the mean over the step's pairs before the update. The
    method's schedule adds columns between ``learning_rate`` and ``seconds``.
    """

    def __init__(self, sampler: Sampler, run: RunWriter) -> None:
        self.sampler, self.run = sampler, run
        self.rows: list[dict[str, float | None]] = []
        self._learning_rate, self._step_start = 0.0, time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the learning rate that this step uses."""
        self._learning_rate = float(kwargs["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the step's row. Its seconds count from the end of the previous step."""
        now = time.perf_counter()
        schedule = self.sampler.schedule
        self.rows.append(
            {
                "step": state.global_step,
                "loss": self.sampler.mean_loss,
                "learning_rate": self._learning_rate,
                **{name: None if math.isnan(value) else value for name, value in schedule.items()},
                "seconds": now - self._step_start,
            }
        )
        self._step_start = now

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the trace to the run and to the checkpoint; then mark the checkpoint complete."""
        self.run.write_trace(self.rows)
        PartialState().wait_for_everyone()  # every process has written its part
        if self.run.writes:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            RunWriter(checkpoint).write_trace(self.rows)
            finish_folder(checkpoint)  # once its files are on the disk, it is complete
            replace_file(checkpoint / COMPLETE_FILE, Path.touch)


class Stopper(TrainerCallback):  # type: ignore[misc]
    """Saves a checkpoint and ends training after Ctrl-C, SIGTERM or SIGHUP (unless ignored).

    Clusters send SIGTERM, and a terminal that closes sends SIGHUP. A second Ctrl-C stops at once
    after :data:`SECOND_INTERRUPT_AFTER`. A second SIGTERM changes nothing: clusters send it to
    torchrun and to its processes, and torchrun forwards its own.

    Attributes:
        stopped: whether training ended this way.
    """

    def __init__(self) -> None:
        self.stopped, self._signalled_at = False, math.inf
        self._previous: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Install the signal handlers."""
        with suppress(ValueError):  # only the main thread may install them
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop if any process received a signal."""
        signalled = torch.tensor([int(self._signalled_at < math.inf)], device=args.device)
        if gather_values(signalled).any():
            self.stopped = True
            control.should_save = control.should_training_stop = True

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._previous.items():
            if handler is not None:  # only handlers set from Python can be restored
                signal.signal(number, handler)
        self._previous = {}

    def _handle(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._signalled_at == math.inf:
            self._signalled_at = now
            log.info(
                "after this step: saving a checkpoint, then stopping; to stop at once, press "
                "Ctrl-C again"
            )
        elif number == signal.SIGINT and now - self._signalled_at > SECOND_INTERRUPT_AFTER:
            self.close()
            raise KeyboardInterrupt


class Progress(TrainerCallback):  # type: ignore[misc]
    """Shows a progress bar with steps, time left, loss and, if dev is evaluated, its measure."""

    def __init__(self, measure: str, shown: bool) -> None:
        self._measure, self._shown, self._postfix = measure, shown, dict[str, str]()
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar."""
        self._bar = progress(
            "training",
            state.max_steps,
            "steps",
            hidden=not self._shown,
            initial=state.global_step,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Show the latest loss and dev measure."""
        logs, measured = logs or {}, trainer_key(self._measure)
        if "loss" in logs:
            self._postfix["loss"] = f"{float(logs['loss']):.3f}"
        if measured in logs:
            self._postfix[self._measure] = in_points(logs[measured])
        self._bar.set_postfix(self._postfix, refresh=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self._bar.close()


def logging_services(report_to: str | list[str]) -> list[TrainerCallback]:
    """Return the logging services of ``report_to``; ``all`` means every installed service.

    Raises:
        SettingError: if a service is unknown, or its package is missing.
    """
    try:
        return [service() for service in get_reporting_integration_callbacks(report_to)]
    except Exception as error:  # services raise errors of many classes
        raise SettingError(
            f"report_to={report_to}: {error_summary(error)}; fix the service, or remove report_to"
        ) from error
