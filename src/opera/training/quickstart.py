"""``opera quickstart``: teach all-MiniLM-L6-v2 to search the source code of the Python standard library."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from opera.config.recipe import make_recipe
from opera.core.errors import RunFolderError
from opera.core.files import replace_folder, written_files
from opera.core.locks import refuse_in_use, sole_use
from opera.core.paths import user_path
from opera.data import RetrievalData, load_data, load_python
from opera.methods import AUTO
from opera.retrieval.locate import MINILM, minilm_folder
from opera.runs.folder import Run, holds_run
from opera.runs.housekeeping import check_out_folder
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
DATA_FOLDER, RUN_FOLDER = "data", "run"


def quickstart(out: Path, method: str = AUTO, seed: int = 0, overwrite: bool = False) -> Run:
    """Write the data to ``out/data`` as a BEIR folder, then adapt MiniLM to it in ``out/run``.

    Raises:
        InputError: if the model's package is missing, or ``out/data`` or ``out/run`` is not free.
    """
    settings = {"method": method, "seed": seed, **RECIPE}
    make_recipe(settings)
    minilm_folder()
    out = user_path(out, "--out")
    check_out(out, overwrite)
    refuse_in_use(out)
    log.info("reading the Python standard library")
    data = load_python(PACKAGE, seed, TRAIN_QUERIES, TEST_QUERIES)
    out.mkdir(parents=True, exist_ok=True)
    with sole_use(out, "runs the quickstart"):
        check_out(out, overwrite)
        _write_data(data, out)
        arguments: dict[str, Any] = {
            "model": MINILM,
            "out": out / RUN_FOLDER,
            "overwrite": overwrite,
        }
        return adapt(load_data(out / DATA_FOLDER), **arguments, **settings)


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse a folder where something of the user's, or an earlier quickstart, would be lost. Writes nothing.

    Raises:
        RunFolderError: naming what is in the way.
    """
    data = out / DATA_FOLDER
    if (foreign := _foreign(data)) is not None:
        raise RunFolderError(
            f"--out {out}: {foreign} was not written by a quickstart; pass another folder"
        )
    if not overwrite and (data.exists() or holds_run(out / RUN_FOLDER)):
        raise RunFolderError(
            f"--out {out}: holds an earlier quickstart; pass --overwrite to replace it"
        )
    check_out_folder(out / RUN_FOLDER, resume=False, overwrite=overwrite)


def _foreign(data: Path) -> Path | None:
    """Return what is in the data folder, or in its place, and is not of a quickstart."""
    if not os.path.lexists(data):
        return None
    if data.is_symlink() or not data.is_dir():
        return data
    ours = written_files(data)
    if not ours:
        return data
    foreign = (
        place for place in sorted(data.rglob("*")) if place.is_symlink() or not place.is_dir()
    )
    return next((place for place in foreign if place not in ours), None)


def _write_data(data: RetrievalData, out: Path) -> None:
    """Write the data folder whole; the caller holds ``out`` and has checked what is in it."""
    replace_folder(out / DATA_FOLDER, data.write_beir)
