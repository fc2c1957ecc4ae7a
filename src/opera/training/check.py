"""Check everything about a run that can be checked before torch is loaded, which takes seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opera.config.recipe import Recipe, make_recipe
from opera.config.training import TrainSettings
from opera.core.arguments import flag
from opera.core.errors import DataError, SettingError
from opera.core.paths import expand_user, user_path
from opera.core.terminal import shown
from opera.data import RetrievalData, check_stays_out, files_read, load_all
from opera.retrieval.locate import inputs_of
from opera.runs.housekeeping import check_out_folder, check_reads_survive


@dataclass(frozen=True)
class Checked:
    """What was asked for, and the data.

    Attributes:
        data: the data, loaded; several sets as one.
        model: as :func:`opera.retrieval.models.load_model` takes it.
        folder: the run folder to write.
        recipe: all settings.
        resume: whether to continue the run in the folder.
        overwrite: whether to replace it.
        started: ``time.perf_counter()`` at the start.
    """

    data: RetrievalData
    model: str
    folder: Path
    recipe: Recipe
    resume: bool
    overwrite: bool
    started: float


def check(
    data: str | Path | RetrievalData | Sequence[str | Path | RetrievalData],
    model: str | Path | None,
    out: str | Path,
    settings: Mapping[str, Any],
    resume: bool,
    overwrite: bool,
) -> Checked:
    """Check the arguments of :func:`opera.adapt`, and load the data.

    Raises:
        InputError: for invalid input.
    """
    started = time.perf_counter()
    recipe = make_recipe(settings)
    if model is None and recipe.train.query_vectors is None:
        raise SettingError(
            "--model: give a model, or its vectors with --query-vectors and --document-vectors"
        )
    model = expand_user("vectors" if model is None else model, "--model")
    folder = Path(os.path.normpath(user_path(out, "--out")))
    check_out_folder(folder, flag(resume, "resume"), flag(overwrite, "overwrite"))
    if not isinstance(data, str | Path | RetrievalData | Sequence):
        raise DataError(
            "data: must be a path, a RetrievalData or a list of these, got "
            f"{shown(type(data).__name__)}; a table in "
            "memory is read by RetrievalData.from_pairs(pairs=...)"
        )
    sources = (data,) if isinstance(data, str | Path | RetrievalData) else tuple(data)
    for source in sources:
        check_stays_out(folder, "--out", source, folder=True)
    if overwrite:
        check_reads_survive(
            folder, [path for source in sources for path in _reads(source, model, recipe.train)]
        )
    return Checked(load_all(sources), str(model), folder, recipe, resume, overwrite, started)


def _reads(data: str | Path | RetrievalData, model: str, settings: TrainSettings) -> list[Path]:
    """The files and folders that a run reads."""
    files = [settings.query_vectors, settings.document_vectors, settings.teacher_scores]
    # fields of the trainer may name files too, such as deepspeed's
    files += [value for value in (settings.trainer or {}).values() if isinstance(value, str)]
    read = [Path(file) for file in files if file is not None and "\0" not in file]
    own = files_read(data) if settings.query_vectors is not None else inputs_of(data, model)
    return [*own, *read]
