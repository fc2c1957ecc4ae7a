"""Where the time of an OPERA training step goes, and that of encoding: operations by torch's profiler."""

from __future__ import annotations

from with_opera import Documents, train

# isort: split

import time
from typing import Any

from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback
from turns import Turns, job

MOST, DOCUMENTS = 10, 128
"""Operations shown, while the others are summed up; documents encoded."""


class Recording:
    """A profile of the block, and how long it took."""

    def __enter__(self) -> Recording:
        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *unused: object) -> None:
        self._seconds = time.perf_counter() - self._start
        self._profile.__exit__(None, None, None)

    def shares(self) -> list[tuple[str, float, int]]:
        """Name, share of the time, and calls of the operations that take most, then of the others together.

        The last row is what runs between torch's operations.
        """
        events = sorted(self._profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
        every = [
            (event.key.removeprefix("aten::"), event.self_cpu_time_total / 1e6 / self._seconds, event.count)
            for event in events
        ]
        shown, others = every[:MOST], every[MOST:]
        left = sum(share for _, share, _ in others)
        outside = max(0.0, 1 - sum(share for _, share, _ in every))
        total = (f"{len(others)} others", left, sum(count for _, _, count in others))
        return [*shown, total, ("outside of torch", outside, 1)]


class Watched(TrainerCallback):  # type: ignore[misc]
    """Profiles the second step: the first one compiles and allocates. The process ends with it."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self._recording = turns, Recording()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin; the batch has been looked up and tokenised already."""
        if state.global_step == 1:
            self._recording.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Send the shares."""
        if state.global_step == 2:
            self._recording.__exit__()
            self.turns.done(shares=self._recording.shares())


def encode(work: dict[str, Any], turns: Turns) -> None:
    """Profile the encoding of documents."""
    documents = Documents(work)
    turns.ready()
    with Recording() as recording:
        documents.encode(DOCUMENTS)
    turns.done(shares=recording.shares())


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
