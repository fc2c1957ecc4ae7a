"""``opera quickstart``: teach all-MiniLM-L6-v2 to search the source code of the Python standard
library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe
from opera.core.arguments import user_path
from opera.core.cache import refuse_in_use, sole_use
from opera.core.errors import RunFolderError
from opera.core.files import foreign_files, replace_folder
from opera.core.terminal import log
from opera.data import load_data, load_python
from opera.methods import AUTO
from opera.retrieval.locate import MINILM, minilm_folder
from opera.run.adapt import adapt
from opera.run_folder.folder import Run, holds_run
from opera.run_folder.housekeeping import check_out_folder

RECIPE: dict[str, Any] = {
    "max_steps": 40,
    "save_steps": 20,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "warmup_ratio": 0.0,
    "temperature": 0.05,
    "negatives": "hard",
    "range": "5:50",
    "max_query_length": 32,
    "max_passage_length": 64,
    "dropout": 0.0,
    "refit": False,
}
PACKAGE, TRAIN_QUERIES, TEST_QUERIES, CHUNKS = "stdlib", 880, 200, 2
DATA_FOLDER, RUN_FOLDER = "data", "run"
DATA_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv")


def quickstart(out: Path, method: str = AUTO, seed: int = 0, overwrite: bool = False) -> Run:
    """Write the data to ``out/data`` as a BEIR folder, then adapt MiniLM to it in ``out/run``.

    Raises:
        InputError: if the model's package is missing, or ``out/data`` or ``out/run`` is not free.
    """
    settings = {"method": method, "seed": seed, **RECIPE}
    make_recipe(settings)
    minilm_folder()
    out = user_path(out, "--out")
    _check_out(out, overwrite)
    refuse_in_use(out)
    log.info("reading the Python standard library")
    data = load_python(PACKAGE, seed, TRAIN_QUERIES, TEST_QUERIES, CHUNKS)
    out.mkdir(parents=True, exist_ok=True)
    with sole_use(out, "runs the quickstart"):
        replace_folder(out / DATA_FOLDER, data.write_beir)
        return adapt(
            load_data(out / DATA_FOLDER),
            model=MINILM,
            out=out / RUN_FOLDER,
            overwrite=overwrite,
            **settings,
        )


def _check_out(out: Path, overwrite: bool) -> None:
    """Reject a folder in which files of the user or an earlier quickstart would be lost.

    Raises:
        RunFolderError: with the file that would be lost.
    """
    data, has_run = out / DATA_FOLDER, holds_run(out / RUN_FOLDER)
    if not overwrite and has_run:
        raise RunFolderError(
            f"--out {out}: holds an earlier quickstart; pass --overwrite to replace it"
        )
    files = foreign_files(data, DATA_FILES) if has_run else [data] * os.path.lexists(data)
    if files:
        raise RunFolderError(
            f"--out {out}: {files[0]} was not written by a finished quickstart; pass another "
            "folder, or remove it"
        )
    check_out_folder(out / RUN_FOLDER, resume=False, overwrite=overwrite)
