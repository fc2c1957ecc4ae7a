"""Trainer callbacks of a run: the trace, signals, the progress bar and logging services."""

from __future__ import annotations

import math
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks

from opera.core.arguments import several
from opera.core.errors import SettingError
from opera.core.intervals import in_points
from opera.core.measure_names import trainer_key
from opera.core.progress import progress
from opera.core.terminal import error_summary, log, shown
from opera.run_folder.folder import RunWriter
from opera.training.checkpoint import mark_complete
from opera.training.distributed import gather_values
from opera.training.sampler import Sampler

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
            mark_complete(checkpoint)


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
