"""``opera quickstart``: teach all-MiniLM-L6-v2 to search the source code of the Python standard library."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe
from opera.core.errors import RunFolderError
from opera.data import load_data, load_python
from opera.methods.default import AUTO
from opera.retrieval.locate import MINILM, minilm_folder
from opera.runs.folder import Run, check_out_folder, holds_run
from opera.training.adapt import adapt

log = logging.getLogger("opera")

RECIPE: dict[str, Any] = {
    "max_steps": 80,
    "save_steps": 40,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "warmup_ratio": 0.0,
    "temperature": 0.05,
    "negatives": "hard",
    "range": "5:50",
    "max_query_length": 32,
    "max_passage_length": 96,
    "dropout": 0.0,
    "attn_implementation": "eager",
    "guard_documents": 1000,
    "refit": False,
}
PACKAGE, TRAIN_QUERIES, TEST_QUERIES = "stdlib", 1500, 200
MARK = "README.txt"


def quickstart(out: Path, method: str = AUTO, seed: int = 0, overwrite: bool = False) -> Run:
    """Write the data to ``out/data`` as a BEIR folder, then adapt MiniLM to it in ``out/run``.

    Raises:
        InputError: if the model's package is missing or ``out/run`` is not free.
    """
    settings = {"method": method, "seed": seed, **RECIPE}
    make_recipe(settings)
    minilm_folder()
    if holds_run(out / "run") and not overwrite:
        raise RunFolderError(f"--out {out}: holds an earlier quickstart; pass --overwrite to replace it")
    check_out_folder(out / "run", resume=False, overwrite=overwrite)
    if (out / "data").exists() and not (out / "data" / MARK).is_file():
        raise RunFolderError(
            f"--out {out}: {out / 'data'} exists and was not written by a quickstart; pass another folder"
        )
    log.info("reading the Python standard library")
    data = load_python(PACKAGE, seed, TRAIN_QUERIES, TEST_QUERIES)
    shutil.rmtree(out / "data", ignore_errors=True)
    data.write_beir(out / "data")
    (out / "data" / MARK).write_text("Written by opera quickstart, which replaces this folder when it runs again.\n")
    return adapt(load_data(out / "data"), model=MINILM, out=out / "run", overwrite=overwrite, **settings)
