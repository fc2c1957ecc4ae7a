"""What recording the sampling probabilities costs: its share of real training runs, and the size of its file.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/snapshots.py

Reads ``../shared``; stops with a message if it is missing. NFCorpus has many pairs (110,575) for a small model's short
step, so the share is at its worst there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import opera
from opera.runs.folder import SAMPLING_FILE
from opera.training.sampler import SamplingRecorder

MODEL = Path("../shared/models/potion-base-4m")
STEPS = (50, 400)


def main() -> None:
    """Train with each method and time the recorder."""
    if not MODEL.is_dir():
        sys.exit(f"{MODEL} is missing: this benchmark reads it")
    record, spent = SamplingRecorder.record, [0.0]

    def timed(self: SamplingRecorder, step: int) -> None:
        start = time.perf_counter()
        record(self, step)
        spent[0] += time.perf_counter() - start

    SamplingRecorder.record = timed  # type: ignore[method-assign]
    print("| data | method | steps | training, s | recording, ms per snapshot | share | file, kB |")
    print("|---|---|---|---|---|---|---|")
    for data in ("nfcorpus", "scifact"):
        for method in ("ft", "sp", "infobatch", "dp"):
            for steps in STEPS:
                spent[0] = 0.0
                with tempfile.TemporaryDirectory() as folder:
                    run = opera.adapt(
                        f"../shared/data/{data}",
                        model=MODEL,
                        out=Path(folder) / "run",
                        method=method,
                        max_steps=steps,
                        per_device_train_batch_size=64,
                        temperature=0.05,
                    )
                    training, size = run.record.seconds["train"], (run.path / SAMPLING_FILE).stat().st_size
                    recorded = run.sampling()
                    assert recorded is not None
                    snapshots = len(recorded.steps)
                cells = [data, method, str(steps), f"{training:.1f}", f"{1000 * spent[0] / snapshots:.2f}"]
                print(
                    "| " + " | ".join([*cells, f"{spent[0] / training:.2%}", f"{size / 1000:.0f}"]) + " |", flush=True
                )


if __name__ == "__main__":
    main()
