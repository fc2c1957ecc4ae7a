"""The main job: data and a model in, a better retriever and the evidence for it out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opera.data import RetrievalData
from opera.methods import AUTO
from opera.runs.folder import Run
from opera.training.check import check

if TYPE_CHECKING:
    from transformers import TrainerCallback


def adapt(
    data: str | Path | RetrievalData | Sequence[str | Path | RetrievalData],
    *,
    model: str | Path | None = None,
    out: str | Path,
    method: str = AUTO,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None = None,
    **settings: Any,
) -> Run:
    """Adapt a retriever to a data set and measure it before and after.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data; or a list of several, to train
            on all of them.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``; with
            ``query_vectors`` and ``document_vectors`` any name, for the record.
        out: the run folder to write.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``, or ``auto``
            for :data:`opera.methods.DEFAULT_METHOD`.
        resume: continue the run in ``out`` from its newest checkpoint.
        overwrite: replace the run in ``out``.
        callbacks: additional transformers callbacks for the trainer, or their classes; a run that
            trains twice calls them in both.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if training fails.
        StorageError: if the disk is full, or the run folder cannot be written to any more;
            ``resume`` continues.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; a checkpoint is saved first, from which
            ``resume`` continues.
    """
    checked = check(data, model, out, {"method": method, **settings}, resume, overwrite)
    # torch takes seconds to load: what is wrong is said before
    from opera.training import run
    from opera.training.train import train_first

    with run.prepare(checked, callbacks) as session:
        if not session.finished:
            untrained = run.measure(session)
            trained = train_first(session)
            chosen = run.choose(session, untrained, trained)
            run.write(session, untrained, chosen)
    return Run.open(checked.folder)
