"""Check the arguments of a run, and load its data. Does not import torch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opera.config.recipe import Recipe, make_recipe
from opera.config.training import reads_lists
from opera.core.arguments import flag, user_path, without_parents
from opera.core.errors import SettingError
from opera.core.files import check_reads_stay
from opera.core.terminal import log
from opera.data import Mixture, check_stays_out, load_all
from opera.data.loading import additional_sources, named_source
from opera.data.names import TableSource, source_title
from opera.retrieval.locate import Model, checked_model, inputs_of
from opera.run_folder.housekeeping import (
    check_out_folder,
    folder_to_write,
    removed_by_overwrite,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Checked:
    """The checked arguments of a run, and its data.

    Attributes:
        data: the loaded data sets.
        model: the model for :func:`opera.retrieval.models.load_model`.
        folder: the run folder to write.
        target: the folder to train in, which is another one if the run replaces the folder's run.
        recipe: all settings.
        resume: whether to continue the run in the folder.
        overwrite: whether to replace the run in the folder.
        started: ``time.perf_counter()`` at the start.
    """

    data: Mixture
    model: str | SentenceTransformer
    folder: Path
    target: Path
    recipe: Recipe
    resume: bool
    overwrite: bool
    started: float


def check(
    data: Any,
    also: Sequence[Any],
    reading: Mapping[str, Any],
    model: Model | None,
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
    model = checked_model("vectors" if model is None else model, "--model")
    folder = without_parents(user_path(out, "--out"))
    check_out_folder(folder, flag(resume, "resume"), flag(overwrite, "overwrite"))
    how = reading["encoding"], reading["skip_bad_rows"]
    first = named_source(data, **reading, strict=not reads_lists(dict(recipe.train)))
    sources = [first, *additional_sources(also, *how)]
    for source in sources:
        check_stays_out(folder, "--out", source)
    if overwrite:
        train = recipe.train
        files = (train.query_vectors, train.document_vectors, train.teacher_scores)
        reads = [Path(file) for file in (*files, *(train.decisions or ())) if file is not None]
        models = [] if train.query_vectors is not None else [model, train.reranker]
        inputs = [path for source in sources for path in inputs_of(source, *models)]
        check_reads_stay(folder, [*reads, *inputs], removed_by_overwrite(folder))
    if names := [source_title(name) for name in sources if isinstance(name, str | TableSource)]:
        log.info("reading %s", ", ".join(names))
    return Checked(
        data=load_all(sources, *how),
        model=model,
        folder=folder,
        target=folder_to_write(folder, resume, overwrite),
        recipe=recipe,
        resume=resume,
        overwrite=overwrite,
        started=started,
    )
