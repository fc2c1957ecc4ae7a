"""What does other work on the same cores cost a training step? By how threads wait, and by how many there are.

    python benchmarks/shared_cores.py [--rounds 3] [--patience 60] [--settings "default,passive"]

Each setting is a process of its own that has MiniLM loaded and trains steps (8 queries, documents and negatives of 64
tokens, in the precision of this processor) when asked to. They take turns: alone, next to one endless loop, and next to
two. A turn begins when nothing else runs, or after ``--patience`` seconds. The script measures what else ran during a
turn. If some turns ran undisturbed, only these count. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from page import table_lines  # noqa: E402

SETTINGS = {
    "GOMP_SPINCOUNT=300000": {"GOMP_SPINCOUNT": "300000"},  # libgomp's default
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
}
CLEARED = ("OMP_", "GOMP_", "KMP_", "MKL_", "NUMBA_")
LOOPS = (0, 1, 2)
STEPS = 3
CALM = 0.15
"""Cores: less other work than this counts as none."""
TICK = os.sysconf("SC_CLK_TCK")


class Turn(NamedTuple):
    """Seconds of each step, and how many cores other programs used meanwhile."""

    steps: list[float]
    others: float


def train_when_asked() -> None:
    """Train as many steps as each line of standard input says; answer with the seconds of each."""
    import torch

    from opera.retrieval.device import autocast, resolve_precision
    from opera.retrieval.models import load_model

    model = load_model("minilm", "cpu")
    model.train()
    precision = resolve_precision("auto", "cpu", is_transformer=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(1000, 20000, (24, 64), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            with autocast(precision, "cpu"):
                embeddings = model(dict(batch))["sentence_embedding"].float()
            unit = torch.nn.functional.normalize(embeddings)
            scores = unit[:8] @ unit[8:].T / 0.02
            torch.nn.functional.cross_entropy(scores, torch.arange(8)).backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


class Trainer:
    """A process that trains with some environment."""

    def __init__(self, variables: dict[str, str]) -> None:
        cleared = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--child"], env={**cleared, **variables},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.turn(1, [])

    def turn(self, steps: int, loops: list[int]) -> Turn:
        """Train some steps beside the loops of these process ids."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mine, start = [self._process.pid, *loops], time.perf_counter()
        before = all_seconds() - seconds_of(mine)
        print(steps, file=self._process.stdin, flush=True)
        seconds = list(json.loads(self._process.stdout.readline()))
        others = all_seconds() - seconds_of(mine) - before
        return Turn(seconds, max(0.0, others) / (time.perf_counter() - start))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def all_seconds() -> float:
    """CPU time of all programs of this machine."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft) / TICK


def seconds_of(pids: list[int]) -> float:
    """CPU time of some processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(process[11]) + int(process[12]) for process in fields) / TICK


def wait_for_calm(seconds: float) -> None:
    """Wait until nothing else runs, but not longer than that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = all_seconds()
        time.sleep(0.5)
        if all_seconds() - before < 0.5 * CALM:
            return


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """Run endless loops beside; yields their process ids."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.2)  # Python has started
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def calmest(turns: list[Turn]) -> list[Turn]:
    """The calm turns; all where there are none."""
    return [turn for turn in turns if turn.others < CALM] or turns


def main() -> None:
    """Measure by turns, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=10)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        train_when_asked()
        return
    trainers = {name: Trainer(SETTINGS[name]) for name in given.settings.split(",")}
    turns: dict[str, dict[int, list[Turn]]] = {name: {count: [] for count in LOOPS} for name in trainers}
    for _ in range(given.rounds):
        for count in LOOPS:
            for name, trainer in trainers.items():
                wait_for_calm(given.patience)
                with busy(count) as loops:
                    turns[name][count].append(trainer.turn(STEPS, loops))
                print(count, name, turns[name][count][-1], flush=True)
        show(turns)
    for trainer in trainers.values():
        trainer.close()


def summary(turns: list[Turn]) -> dict[str, float]:
    """Summarise the calm turns: medians, and how many they are."""
    calm = calmest(turns)
    return {
        "seconds": round(statistics.median(second for turn in calm for second in turn.steps), 4),
        "other_cores": round(statistics.median(turn.others for turn in calm), 2),
        "turns": len(calm),
    }


def show(turns: dict[str, dict[int, list[Turn]]]) -> None:
    """Print the figures so far."""
    figures = {name: {str(count): summary(of) for count, of in by.items()} for name, by in turns.items()}
    rows = [
        [f"`{name}`", *(f"{of['seconds']:.2f}" for of in by.values()),
         f"{max(of['other_cores'] for of in by.values()):.1f}"]
        for name, by in figures.items()
    ]  # fmt: skip
    heads = ["threads wait", "no loop, s", "1 loop, s", "2 loops, s", "other programs, cores"]
    print(table_lines(heads, rows))


if __name__ == "__main__":
    main()
