"""Where the time of an OPERA training step goes, and that of encoding: operations by torch's profiler."""

from __future__ import annotations

from with_opera import Documents, train

# isort: split

from typing import Any

from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback
from turns import Turns, job

MOST, DOCUMENTS = 10, 128
"""Operations shown, while the others are summed up; documents encoded."""


def shares(recorded: profile) -> list[tuple[str, float, int]]:
    """Return name, share of all time, and calls of the operations that take most, then of the others together."""
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    rows = [(event.key, event.self_cpu_time_total / total, event.count) for event in events[:MOST]]
    others = events[MOST:]
    left = sum(event.self_cpu_time_total for event in others) / total
    return [*rows, (f"{len(others)} others", left, sum(event.count for event in others))]


class Watched(TrainerCallback):  # type: ignore[misc]
    """Profiles the second step: the first one compiles and allocates. The process ends with it."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self._profile = turns, profile(activities=[ProfilerActivity.CPU])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin; the batch has been looked up and tokenised already."""
        if state.global_step == 1:
            self._profile.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Send the shares."""
        if state.global_step == 2:
            self._profile.__exit__(None, None, None)
            self.turns.done(shares=shares(self._profile))


def encode(work: dict[str, Any], turns: Turns) -> None:
    """Profile the encoding of documents."""
    documents = Documents(work)
    turns.ready()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        documents.encode(DOCUMENTS)
    turns.done(shares=shares(recorded))


def main() -> None:
    """Do the job."""
    work, turns = job(), Turns()
    if work["task"] == "encode":
        encode(work, turns)
    else:
        turns.ready()
        train(work, turns, Watched(turns))


if __name__ == "__main__":
    main()
