"""Check everything about a run that can be checked before torch is loaded, which takes seconds."""

from __future__ import annotations

import os
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
from opera.retrieval.locate import inputs_of, locate_model
from opera.runs.housekeeping import check_out_folder, check_reads_survive
from opera.training.clock import Clock


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
        clock: seconds of each phase.
    """

    data: RetrievalData
    model: str
    folder: Path
    recipe: Recipe
    resume: bool
    overwrite: bool
    clock: Clock


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
    recipe = make_recipe(settings)
    model = expand_user(_model_or_vectors(model, recipe.train), "--model")
    folder = Path(os.path.normpath(user_path(out, "--out")))
    check_out_folder(folder, flag(resume, "resume"), flag(overwrite, "overwrite"))
    if not isinstance(data, str | Path | RetrievalData | Sequence):
        raise DataError(
            f"data: must be a path, a RetrievalData or a list of these, got {shown(type(data).__name__)}; a table in "
            "memory is read by RetrievalData.from_pairs(pairs=...)"
        )
    sources = (data,) if isinstance(data, str | Path | RetrievalData) else tuple(data)
    for source in sources:
        check_stays_out(folder, "--out", source, folder=True)
    if overwrite:
        check_reads_survive(
            folder, [path for source in sources for path in _reads(source, model, recipe.train)]
        )
    clock = Clock()
    with clock.phase("load"):
        loaded = load_all(sources)
    return Checked(loaded, str(model), folder, recipe, resume, overwrite, clock)


def _model_or_vectors(model: str | Path | None, settings: TrainSettings) -> str | Path:
    """Return the model that a run names; a run on vectors from files may leave it out."""
    if model is not None:
        return model
    if settings.query_vectors is None:
        raise SettingError(
            "--model: give a model, or its vectors with --query-vectors and --document-vectors"
        )
    return "vectors"


def _reads(data: str | Path | RetrievalData, model: str, settings: TrainSettings) -> list[Path]:
    """The files and folders that a run reads."""
    reranker = settings.mining_reranker
    vectors = [
        Path(file)
        for file in (settings.query_vectors, settings.document_vectors)
        if file is not None
    ]
    others = [Path(file) for file in (settings.teacher_scores,) if file is not None]
    others += [Path(locate_model(reranker))] if reranker is not None else []
    fields = (settings.trainer or {}).values()
    others += [
        Path(value) for value in fields if isinstance(value, str) and "\0" not in value
    ]  # such as deepspeed's
    return [*files_read(data), *vectors, *others] if vectors else [*inputs_of(data, model), *others]
