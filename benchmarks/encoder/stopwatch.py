"""A callback that makes each training step a turn, for every trainer that is built on that of transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from turns import Turns


class Stopwatch(TrainerCallback):  # type: ignore[misc]
    """Ends a turn when a step's loss is logged, after every step.

    A turn holds all of a step: its batch is looked up and tokenised, forward, backward, clipping, optimizer, the log.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait for the first turn."""
        self.turns.ready(optim=str(getattr(args.optim, "value", args.optim)))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """End the turn."""
        if logs and "loss" in logs:
            self.turns.done(loss=float(logs["loss"]))
