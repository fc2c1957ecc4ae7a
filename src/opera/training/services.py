"""The logging services of ``report_to``: opened before anything is written, and closed when the run
is done."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate import PartialState
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, TrainerState
from transformers.integrations import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)

from opera.core.errors import SettingError, TrainingError
from opera.core.processes import everywhere
from opera.core.terminal import shortened


def service_names(report_to: str | list[str]) -> list[str]:
    """The services that ``report_to`` stands for; ``all`` is what is installed."""
    if report_to == "all":
        return list(get_available_reporting_integrations())
    given = [report_to] if isinstance(report_to, str) else report_to
    return [name for name in given if name != "none"]


class Services(TrainerCallback):  # type: ignore[misc]
    """Passes every event on to the services, the end of a training only when the next one begins,
    or at close.

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
        self._end: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._open()

    def on_init_end(self, *given: Any, **more: Any) -> None:
        """Open the services anew where a training has ended before this one."""
        if self._end is not None:
            self.close()
            self._open()
        self._pass_on("on_init_end", given, more)

    def on_train_end(self, *given: Any, **more: Any) -> None:
        """Keep the end back."""
        self._end = given, more

    def log(self, values: Mapping[str, float]) -> None:
        """Log values of the training that has ended; nothing where none has."""
        if values and self._end is not None:
            given, more = self._end
            self._pass_on("on_log", given, {**more, "logs": dict(values)})

    def close(self) -> None:
        """Pass the end of the last training on."""
        if self._end is not None:
            (given, more), self._end = self._end, None
            self._pass_on("on_train_end", given, more)

    def _open(self) -> None:
        self._callbacks: dict[str, TrainerCallback] = {}
        everywhere(
            lambda: self._callbacks.update((name, self._opened(name)) for name in self._names)
        )

    def _opened(self, name: str) -> TrainerCallback:
        state = TrainerState(
            is_local_process_zero=PartialState().is_local_main_process,
            is_world_process_zero=PartialState().is_main_process,
        )
        try:
            callback = get_reporting_integration_callbacks([name])[0]()
            if setup := getattr(callback, "setup", None):
                takes_class = "processing_class" in inspect.signature(setup).parameters
                more = {"processing_class": None} if takes_class else {}
                setup(self._arguments, state, self._model, **more)
        except Exception as error:  # whatever a service raises
            raise SettingError(
                f"report_to={name}: cannot be opened ({_in_one_line(error)}); fix it, or leave "
                "report_to out"
            ) from error
        return callback

    def _pass_on(self, event: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
        for name, callback in self._callbacks.items():
            try:
                getattr(callback, event)(*given, **more)
            except Exception as error:
                raise TrainingError(
                    f"report_to={name}: failed ({_in_one_line(error)}); the run goes on with "
                    "--resume, also with "
                    "another report_to"
                ) from error


def _in_one_line(error: Exception) -> str:
    return shortened(" ".join(f"{type(error).__name__}: {error}".split()), 200)


def _passing_on(event: str) -> Any:
    def pass_on(self: Services, *given: Any, **more: Any) -> None:
        self._pass_on(event, given, more)

    return pass_on


for _event in dir(TrainerCallback):
    if _event.startswith("on_") and _event not in vars(Services):
        setattr(Services, _event, _passing_on(_event))
