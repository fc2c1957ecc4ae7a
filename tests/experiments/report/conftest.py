"""A grid of real runs whose data set tries to break out of the page, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

import opera
from tiny_world import write_beir


@pytest.fixture(scope="package")
def hostile_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder whose name tries to break out of the page."""
    return write_beir(tmp_path_factory.mktemp("page") / "<i>topics")


@pytest.fixture(scope="package")
def grid(hostile_data: Path, static_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, two seeds, two numbers of steps."""
    out = tmp_path_factory.mktemp("grid")
    for method in ("ft", "sp", "dp"):
        for seed in (0, 1):
            for steps in (4, 16):
                opera.adapt(
                    hostile_data,
                    model=static_model,
                    out=out / method / f"steps{steps}" / f"seed{seed}",
                    method=method,
                    seed=seed,
                    max_steps=steps,
                    save_steps=100,  # never
                    per_device_train_batch_size=8,
                    learning_rate=0.05,
                )
    return out


@pytest.fixture(scope="package")
def page_file(grid: Path) -> Path:
    return opera.report(grid)
