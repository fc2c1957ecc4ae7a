"""A training callback for tests of signals: training waits for the signal, so no test has to hit a moment."""

import logging
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback


class WaitsForASignal(TrainerCallback):
    """After ``step`` steps, create the file ``reached`` and wait until the run logs that it stops; only once."""

    def __init__(self, step: int, reached: Path) -> None:
        self._step, self._reached = step, reached
        self._stopping = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step != self._step or self._reached.exists():
            return
        handler = logging.Handler()
        handler.emit = self._read
        logging.getLogger("opera").addHandler(handler)
        self._reached.touch()
        while not self._stopping:
            time.sleep(0.01)

    def _read(self, record: logging.LogRecord) -> None:
        self._stopping |= "saving a checkpoint, then stopping" in record.getMessage()
