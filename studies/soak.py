"""Train for long and run a large grid, and watch memory, open files and threads.

    make soak                 # 20,000 steps and 200 cells; docs/reliability.md has the table
    python studies/soak.py --steps 2000 --cells 20 --out soak.json

The training is ``dp`` with ``update_interval=1`` and a checkpoint every 500 steps, on EntailmentBank with a static
model if ``../shared`` is beside the checkout, else on the tiny world of the tests. The grid's cells are tiny; its
parent and its worker are watched.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

import opera
from chaos_commands import World, write_beir

SHARED = Path(__file__).parents[2] / "shared"
RESULTS = Path(__file__).parent / "results" / "soak.json"
WARM_UP = 0.2
"""Share of the samples left out: caches fill, code compiles and the allocator settles."""

Sample = tuple[float, float, int, int]
"""Where it was taken (steps or cells), megabytes resident, open files, threads."""


def sample(at: float, process: int | str = "self") -> Sample:
    """Look at a process in ``/proc``."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line
    )
    opened = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    return at, int(status["VmRSS"].split()[0]) / 1024, opened, int(status["Threads"])


class Watch(TrainerCallback):  # type: ignore[misc]
    """Looks at this process every ``every`` steps."""

    def __init__(self, every: int) -> None:
        self.every, self.samples = every, list[Sample]()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take a sample, if it is time."""
        if state.global_step % self.every == 0:
            self.samples.append(sample(state.global_step))
        if state.global_step % (20 * self.every) == 0:
            print(*self.samples[-1], flush=True)


def watched(call: Callable[[], object], done: Callable[[], int], seconds: float = 2.0) -> dict[str, list[Sample]]:
    """Run a call and look at this process and its largest child all the while, by how many cells are done."""
    samples: dict[str, list[Sample]] = {"parent": [], "worker": []}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(seconds):
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            children += [
                c for task in Path("/proc/self/task").iterdir() for c in (task / "children").read_text().split()
            ]
            try:
                samples["parent"].append(sample(done()))
                workers = [sample(done(), child) for child in set(children)]
            except OSError:  # one has just ended
                continue
            if workers:
                samples["worker"].append(max(workers, key=lambda found: found[1]))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        call()
    finally:
        ended.set()
        watcher.join()
    return samples


def summary(samples: list[Sample], per: int) -> dict[str, Any]:
    """Slope of the resident memory after warm-up in megabytes per ``per`` steps or cells, and the ends of the rest."""
    rest = np.array(samples[int(WARM_UP * len(samples)) :])
    slope = float(np.polyfit(rest[:, 0], rest[:, 1], 1)[0]) * per
    first, last = rest[: max(1, len(rest) // 10)], rest[-max(1, len(rest) // 10) :]
    return {
        "samples": len(samples),
        f"MB per {per}": round(slope, 3),
        "MB first tenth": round(float(np.median(first[:, 1])), 1),
        "MB last tenth": round(float(np.median(last[:, 1])), 1),
        "files first": int(np.median(first[:, 2])),
        "files last": int(np.median(last[:, 2])),
        "files most": int(rest[:, 2].max()),
        "threads first": int(np.median(first[:, 3])),
        "threads last": int(np.median(last[:, 3])),
        "MB at": {int(at): round(megabytes) for at, megabytes, *_ in samples[:: max(1, len(samples) // 20)]},
    }


def soak_training(steps: int, home: Path) -> dict[str, Any]:
    """Train for long."""
    data, model = SHARED / "data" / "entailmentbank", SHARED / "models" / "potion-base-4m"
    if not (data.is_dir() and model.is_dir()):
        data, model = _tiny(home)
    watch, started = Watch(max(1, steps // 400)), time.perf_counter()
    opera.adapt(
        data, model=model, out=home / "run", method="dp", update_interval=1, max_steps=steps, guard=False,
        save_steps=max(1, steps // 40), per_device_train_batch_size=16, callbacks=[watch],
    )  # fmt: skip
    seconds = round(time.perf_counter() - started)
    return {"steps": steps, "data": data.name, "seconds": seconds, "trainer": summary(watch.samples, 1000)}


def soak_grid(cells: int, home: Path) -> dict[str, Any]:
    """Run a large grid of tiny cells."""
    data, model = _tiny(home)
    out, started = home / "grid", time.perf_counter()

    def run() -> None:
        opera.compare(
            data, model=model, out=out, methods=["ft", "sp:k=0.5"], seeds=range(cells // 2), steps=[4],
            per_device_train_batch_size=8, refit=False,
        )  # fmt: skip

    samples = watched(run, lambda: len(list(out.rglob("measures.json"))))
    seconds = round(time.perf_counter() - started)
    return {"cells": cells, "seconds": seconds, **{who: summary(found, 100) for who, found in samples.items()}}


def _tiny(home: Path) -> tuple[Path, Path]:
    world = World(home / "world")
    if not world.bert.exists():
        world.write()
        write_beir(home / "small", n_docs=40, n_train=16, n_test=6)
    return home / "small", world.static


def main() -> None:
    """Soak both, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opera-soak-") as folder:
        found = {"training": soak_training(options.steps, Path(folder))} if options.steps else {}
        if options.cells:
            found["grid"] = soak_grid(options.cells, Path(folder))
    if options.out.exists():
        found = {**json.loads(options.out.read_text(encoding="utf-8")), **found}
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
