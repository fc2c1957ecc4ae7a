"""How long does an adapter train, beside the model that it adapts? all-MiniLM-L6-v2 on EntailmentBank.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/adapter.py

Reads ``../shared``; stops with a message if it is missing. Encoding all texts once comes first, and is cached.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from opera.config.recipe import make_recipe
from opera.data import load_all
from opera.run_folder.folder import Run, RunWriter
from opera.training.build import build_training_set
from opera.training.prepare import load_and_check
from opera.training.trainer import make_sampler, train

DATA = Path("../shared/data/entailmentbank")
WARM_UP = 2
SHARED = {"method": "ft", "per_device_train_batch_size": 256, "guard": False}
TRAININGS: dict[str, dict[str, Any]] = {
    "whole model": {"max_steps": 6},
    "adapter=query": {"max_steps": 300, "adapter": "query"},
    "adapter=both": {"max_steps": 300, "adapter": "both"},
}


def seconds_of(values: dict[str, Any]) -> tuple[float, float, float]:
    """Train; return the seconds of encoding, those of the whole training, and the median ones of a step."""
    prepared = load_and_check(load_all([str(DATA)]), "minilm", make_recipe({**SHARED, **values, "save_steps": 300}))
    start = time.perf_counter()
    prepared.encode()
    encoded = time.perf_counter()
    training_set = build_training_set(prepared)
    with TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder))
        sampler = make_sampler(training_set, prepared.recipe)
        train(prepared.model.trained, training_set, sampler, prepared.settings, writer)
        steps = Run(writer.path).trace()["seconds"].to_numpy()[WARM_UP:]
    return encoded - start, time.perf_counter() - encoded, float(np.median(steps))


def main() -> None:
    """Print a table."""
    if not DATA.is_dir():
        sys.exit(f"{DATA} is missing: this benchmark reads it")
    print("| trained | encoding, s | steps | training, s | median step, ms | whole model's step / step |")
    print("|---|---|---|---|---|---|")
    whole = None
    for name, values in TRAININGS.items():
        encoding, training, step = seconds_of(values)
        whole = whole or step
        cells = [f"{encoding:.1f}", str(values["max_steps"]), f"{training:.1f}", f"{1000 * step:.0f}"]
        print("| " + " | ".join([name, *cells, f"{whole / step:.0f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
