"""``opera.adapt``: fine-tune a retriever on a data set, and compare it with the base model.

``opera quickstart`` adapts all-MiniLM-L6-v2 to the source code of the Python standard library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from opera.config.recipe import make_recipe
from opera.core.arguments import user_path
from opera.core.cache import sole_use
from opera.core.errors import RunFolderError
from opera.core.files import foreign_files, replace_folder
from opera.core.terminal import log
from opera.data import load_data, load_python
from opera.data.loading import ColumnNames
from opera.data.splits import hold_out
from opera.methods import AUTO
from opera.retrieval.locate import MINILM, Model, minilm_folder
from opera.run.check import check
from opera.run.train_reranker import NEEDS_RERANKER, RERANKER, refuse_arguments, train_reranker
from opera.run_folder.folder import Run, holds_run
from opera.run_folder.housekeeping import check_out_folder
from opera.run_folder.reranker_run import RerankerRun

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from opera.run.costs import Costs


@overload
def adapt(data: Any, *, out: str | Path, kind: None = None, **arguments: Any) -> Run: ...
@overload
def adapt(
    data: Any, *, out: str | Path, kind: Literal["reranker"], **arguments: Any
) -> RerankerRun: ...
@overload
def adapt(data: Any, *, out: str | Path, kind: str, **arguments: Any) -> Run: ...
def adapt(
    data: Any,
    *,
    also: Sequence[Any] = (),
    model: Model | None = None,
    out: str | Path,
    method: str = AUTO,
    kind: str | None = None,
    first_stage: Model | None = None,
    depth: int | None = None,
    max_length: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None = None,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    **settings: Any,
) -> Run | RerankerRun:
    """Adapt a retriever or a reranker to a data set, and compare it with the base model.

    Args:
        data: anything that :func:`opera.load_data` reads, such as a DataFrame; or loaded data.
        also: further data sets, to train on all of them together.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer (OPERA trains
            a copy), an OPERA run, or ``minilm``. With ``query_vectors`` and ``document_vectors``:
            any name, which ``run.json`` records.
        out: the run folder to write.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``,
            ``denoise``, or ``auto`` for :data:`opera.methods.DEFAULT_METHOD`; for a reranker
            ``auto`` is ``ft``.
        kind: ``reranker`` trains a cross-encoder on negatives of a first stage, and compares it
            with the first stage (docs/rerankers.md).
        first_stage: of a reranker: ``bm25`` (the default), or a model as ``model``.
        depth: how many documents of each test query a reranker sorts; the default is 100.
        max_length: tokens of query and document together that a reranker reads.
        resume: continue the run in ``out`` from its newest checkpoint; the base model must have the
            same weights.
        overwrite: replace the run in ``out`` as soon as the new one is finished.
        callbacks: additional transformers callbacks for the trainer, or their classes. With
            ``refit``, both trainings call them.
        columns: columns of the first data set, as for :func:`opera.load_data`.
        encoding: encoding of the tables, as for :func:`opera.load_data`, and of the files of
            ``decisions`` and ``teacher_scores``.
        skip_bad_rows: skip rows that break a rule in the same files; ``skipped_rows.csv`` in the
            run lists the skipped rows of the data.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run; for a reranker an ``opera.run_folder.reranker_run.RerankerRun``.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if training fails.
        StorageError: if the disk is full or the run folder cannot be written; ``resume=True``
            continues the run afterwards.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when a checkpoint is saved; ``resume``
            continues.

    Examples:
        >>> run = opera.adapt("example:faq", model="minilm", out="my-run", max_steps=5)
        >>> run.measures["final"]["nDCG@10"] >= 0
        True
    """
    values = {"method": method, **settings}
    reading = {"columns": columns, "encoding": encoding, "skip_bad_rows": skip_bad_rows}
    of_reranker = {"first_stage": first_stage, "depth": depth, "max_length": max_length}
    if kind == RERANKER:
        refuse_arguments({"also": also, "resume": resume, "callbacks": callbacks})
        options: dict[str, Any] = {**of_reranker, **reading, "overwrite": overwrite}
        return train_reranker(data, model=model, out=out, settings=values, **options)
    refuse_arguments(of_reranker, NEEDS_RERANKER)
    if kind is not None:
        values["kind"] = kind
    checked = check(data, also, reading, model, out, values, resume, overwrite)
    # torch takes seconds to load, so mistakes are reported first
    import torch

    from opera.run import steps

    with torch.inference_mode(False):  # else training would fail in a caller's inference_mode
        session = steps.open_session(checked, callbacks)
        if session.record.status != "finished" or checked.target != checked.folder:
            with steps.in_progress(session, checked):
                if session.record.status != "finished":
                    steps.train_and_write(session)
    return Run.open(checked.folder)


def foresee(
    data: Any,
    *,
    also: Sequence[Any] = (),
    model: Model | None = None,
    out: str | Path,
    overwrite: bool = False,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
    **settings: Any,
) -> Costs:
    """Time a few steps of the training that :func:`adapt` would do, and write nothing.

    Arguments and errors are those of :func:`adapt`.
    """
    reading = {"columns": columns, "encoding": encoding, "skip_bad_rows": skip_bad_rows}
    checked = check(data, also, reading, model, out, settings, False, overwrite)
    from opera.run.costs import time_run
    from opera.run.session import announce
    from opera.training.prepare import load_and_check

    prepared = load_and_check(checked.data, checked.model, checked.recipe)
    announce(prepared)
    return time_run(prepared, checked.started)


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
PACKAGE, CHUNKS = "stdlib", 2
TRAIN_QUERIES, DEV_QUERIES, TEST_QUERIES = 780, 400, 400
DATA_FOLDER, RUN_FOLDER = "data", "run"
SPLITS = ("train", "dev", "test")
DATA_FILES = ("corpus.jsonl", "queries.jsonl", *(f"qrels/{split}.tsv" for split in SPLITS))


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
    log.info("reading the Python standard library")
    labelled = TRAIN_QUERIES + DEV_QUERIES
    data = load_python(PACKAGE, seed, labelled, TEST_QUERIES, CHUNKS)
    data = hold_out(data, "dev", DEV_QUERIES / labelled, seed, "like-test")
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
