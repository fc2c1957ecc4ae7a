"""What happens around each step of a run: trace, signals, the progress bar, logging services."""

from __future__ import annotations

import inspect
import logging
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, TrainerState
from transformers.integrations import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)

from opera.core.arguments import several
from opera.core.errors import SettingError, TrainingError
from opera.core.processes import everywhere
from opera.core.progress import progress
from opera.core.terminal import in_one_line, shown
from opera.engine.checkpoint import mark_complete
from opera.engine.distributed import gather_values
from opera.engine.sampler import PairSampler
from opera.runs.folder import RunWriter
from opera.runs.names import trainer_key

log = logging.getLogger("opera")

SECOND_INTERRUPT_AFTER = 2.0
"""Seconds after the first Ctrl-C from which another one stops at once."""


def checked_callbacks(callbacks: object) -> list[TrainerCallback]:
    """Return the callbacks of a user, made from their classes where these are given; ``None`` is
    none.

    Raises:
        SettingError: for anything that the trainer cannot call.
    """
    made: list[TrainerCallback] = []
    for callback in (
        () if callbacks is None else several(callbacks, "callbacks", "transformers callbacks")
    ):
        is_class = isinstance(callback, type) and issubclass(callback, TrainerCallback)
        if not is_class and not isinstance(callback, TrainerCallback):
            raise SettingError(
                f"callbacks: must be transformers TrainerCallback objects, got {shown(callback)}"
            )
        try:
            made.append(callback() if is_class else callback)
        except TypeError as error:
            raise SettingError(f"callbacks: {shown(callback)} needs arguments; make one") from error
    return made


class Trace(TrainerCallback):  # type: ignore[misc]
    """Records a row per step: ``step`` counts from 1, ``loss`` is the mean over the step's pairs
    before the update.

    The method's schedule stands between ``learning_rate`` and ``seconds``.
    """

    def __init__(self, sampler: PairSampler, run: RunWriter) -> None:
        self.sampler, self.run = sampler, run
        self.rows: list[dict[str, float | None]] = []
        self._learning_rate, self._step_start = 0.0, time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._step_start = time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record the learning rate that this step uses."""
        self._learning_rate = float(kwargs["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the step's row; its seconds run from the end of the step before."""
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
        """Write the trace, also into the trainer's checkpoint, and mark the checkpoint as
        complete."""
        self.write(self.run)
        PartialState().wait_for_everyone()  # every process has written its part
        if self.run.writes:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.write(RunWriter(checkpoint))
            mark_complete(checkpoint)

    def write(self, run: RunWriter) -> None:
        """Write ``trace.parquet``."""
        run.write_trace(self.rows)


class Stopper(TrainerCallback):  # type: ignore[misc]
    """Turns Ctrl-C, a cluster's SIGTERM, or the end of a terminal (SIGHUP, unless it is ignored)
    into one more checkpoint and the end of training.

    A second Ctrl-C, two seconds later or more, stops at once. A second SIGTERM changes nothing:
    clusters send it to torchrun and to its processes, and torchrun passes its own on.

    Attributes:
        stopped: whether training ended this way.
    """

    def __init__(self) -> None:
        self.stopped, self._signalled_at = False, math.inf
        self._previous: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Install the signal handlers."""
        with suppress(ValueError):  # only the main thread may
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop, if any process received a signal."""
        signalled = torch.tensor([int(self._signalled_at < math.inf)], device=args.device)
        if gather_values(signalled).any():
            self.stopped = state.global_step < state.max_steps
            control.should_save = control.should_training_stop = True

    def close(self) -> None:
        """Restore the signal handlers from before."""
        for number, handler in self._previous.items():
            if handler is not None:  # a handler that was not set from Python cannot be restored
                signal.signal(number, handler)
        self._previous = {}

    def _handle(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._signalled_at == math.inf:
            self._signalled_at = now
            log.info(
                "after this step: saving a checkpoint, then stopping; press Ctrl-C again to stop "
                "at once"
            )
        elif number == signal.SIGINT and now - self._signalled_at > SECOND_INTERRUPT_AFTER:
            self.close()
            raise KeyboardInterrupt


class Progress(TrainerCallback):  # type: ignore[misc]
    """The progress of training: steps, time left, loss, and the dev measure where there is one."""

    def __init__(self, measure: str, shown: bool = True) -> None:
        self._measure, self._postfix = measure, dict[str, str]()
        self._shown = shown
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar."""
        hidden = not (self._shown and PartialState().is_main_process)
        self._bar = progress(
            "training", state.max_steps, "steps", hidden=hidden, initial=state.global_step
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar."""
        self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Show the latest loss and dev measure."""
        for key, label in (("loss", "loss"), (trainer_key(self._measure), self._measure)):
            if logs and key in logs:
                self._postfix[label] = f"{float(logs[key]):.3f}"
        self._bar.show(self._postfix)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self._bar.close()


def service_names(report_to: str | list[str]) -> list[str]:
    """The services that ``report_to`` stands for; ``all`` is what is installed."""
    if report_to == "all":
        return list(get_available_reporting_integrations())
    names = [report_to] if isinstance(report_to, str) else report_to
    return [name for name in names if name != "none"]


class Services:
    """Passes every event of a trainer on to the services, the end of a training only when the next
    one begins, or at close.

    So what follows training, the guard's choice, is logged beside its curves.

    Raises:
        SettingError: if a service cannot be opened: its package is broken, or a login failed.
    """

    def __init__(
        self,
        names: Sequence[str],
        arguments: SentenceTransformerTrainingArguments,
        model: SentenceTransformer,
    ) -> None:
        self._names, self._arguments, self._model = names, arguments, model
        self._end: Callable[[str, dict[str, Any]], None] | None = None
        everywhere(self._open)

    def __getattr__(self, event: str) -> Callable[..., None]:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return partial(self._pass_on, event)

    def on_init_end(self, *arguments: Any, **more: Any) -> None:
        """Open the services anew where a training has ended before this one."""
        if self._end is not None:
            self.close()
            everywhere(self._open)
        self._pass_on("on_init_end", *arguments, **more)

    def on_train_end(self, *arguments: Any, **more: Any) -> None:
        """Keep the end back."""
        self._end = lambda event, values: self._pass_on(event, *arguments, **more, **values)

    def log(self, values: Mapping[str, float]) -> None:
        """Log values of the training that has ended; nothing where none has."""
        if values and self._end is not None:
            self._end("on_log", {"logs": dict(values)})

    def close(self) -> None:
        """Pass the end of the last training on."""
        if self._end is not None:
            end, self._end = self._end, None
            end("on_train_end", {})

    def _open(self) -> None:
        self._callbacks: dict[str, TrainerCallback] = {}
        state = TrainerState(
            is_local_process_zero=PartialState().is_local_main_process,
            is_world_process_zero=PartialState().is_main_process,
        )
        for name in self._names:
            try:
                callback = get_reporting_integration_callbacks([name])[0]()
                if setup := getattr(callback, "setup", None):
                    takes_class = "processing_class" in inspect.signature(setup).parameters
                    more = {"processing_class": None} if takes_class else {}
                    setup(self._arguments, state, self._model, **more)
            except Exception as error:  # whatever a service raises
                raise SettingError(
                    f"report_to={name}: cannot be opened ({in_one_line(error)}); fix it, or leave "
                    "report_to out"
                ) from error
            self._callbacks[name] = callback

    def _pass_on(self, event: str, *arguments: Any, **more: Any) -> None:
        for name, callback in self._callbacks.items():
            try:
                getattr(callback, event)(*arguments, **more)
            except Exception as error:
                raise TrainingError(
                    f"report_to={name}: failed ({in_one_line(error)}); the run goes on with "
                    "--resume, also with another report_to"
                ) from error
