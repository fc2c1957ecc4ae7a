"""The process of a cell: trains it, or times a few of its steps. Under torchrun, all cells."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.adapter.model import FrozenVectors, set_vectors
from opera.config.automatic import resolve
from opera.config.recipe import make_recipe
from opera.core.errors import InputError, OperaError
from opera.core.processes import from_main, process_index
from opera.core.registry import load_extensions
from opera.core.terminal import say
from opera.data import RetrievalData, load_data
from opera.experiments.grid.preview import Timing
from opera.experiments.grid.run import Message, Status
from opera.retrieval.device import join_processes
from opera.retrieval.models import is_static
from opera.runs.folder import Run, RunWriter, holds_run
from opera.runs.housekeeping import drop_checkpoints
from opera.training.adapt import adapt
from opera.training.guard.dev_corpus import GUARD_DOCUMENTS
from opera.training.guard.rule import shares_to_try
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared, load_and_check

STEPS = 12
WARM_UP = 4
TEXTS = 64
SLOW_SECONDS, SLOW_STEPS = 15.0, 3
FLOAT_BYTES = 4
CHECKPOINTS = 10
"""How many a run saves by default, unless it is very long."""

TIMED_SETTINGS = {
    "adapter",
    "corpus_text",
    "document_prompt",
    "document_vectors",
    "dropout",
    "future",
    "global_batch_size",
    "guard",
    "max_passage_length",
    "max_query_length",
    "per_device_train_batch_size",
    "precision",
    "preset",
    "query_prompt",
    "query_vectors",
    "refit",
    "seed",
    "train_group_size",
    "trainer",
}
"""Settings that decide how long a step takes and what the guard adds; others are left out."""


def main() -> None:
    """Run the job on standard input, and say on standard output how it went."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing printed may be taken for the message
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("opera").setLevel(logging.INFO)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        message = run_job(job)
    except KeyboardInterrupt:
        os._exit(130)
    with suppress(BrokenPipeError):  # the parent may be gone
        print(json.dumps(message), file=out, flush=True)


def end_with_parent() -> None:
    """End at once when the parent is gone, so that the next call can train the cell.

    A run that is ended at any moment resumes to the same end.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


def run_job(job: Mapping[str, Any]) -> Message:
    """Train a cell, or time one that has no ``out``; returns how that went."""
    try:
        load_extensions()  # here, so that an error is in the message
        data = load_data(job["data"])
        if "out" not in job:
            return {"timing": asdict(time_cell(data, job["model"], job["values"]))}
        train_cell(data, job["model"], Path(job["out"]), job["values"])
    except OperaError as error:
        return _failed(str(error)) | ({"input": True} if isinstance(error, InputError) else {})
    except OSError as error:
        where = error.filename or job.get("out", job["data"])
        return _failed(f"{where}: {(error.strerror or str(error)).lower()}")
    except Exception as error:
        with suppress(OSError):
            traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return {}


def _failed(reason: str) -> Message:
    with suppress(OSError):  # the log may lie on a full disk
        say(f"opera: error: {reason}", file=sys.stderr)
    return {"failed": reason}


def train_cell(data: RetrievalData, model: str, folder: Path, values: Mapping[str, Any]) -> None:
    """Train a cell, or resume it from its checkpoint, and delete its checkpoints."""
    adapt(data, model=model, out=folder, resume=from_main(holds_run(folder)), **values)
    if process_index() == 0:
        drop_checkpoints(folder)


def run_together(status: Status, model: str) -> None:
    """Run the cells one after another under torchrun, each in all processes; keeps the status.

    The main process decides which are to run. An error ends this process, torchrun then ends the
    others, and the same command goes on.
    """
    processes, load_once = join_processes(), cache(load_data)
    waiting = from_main([str(cell.folder) for cell in status.waiting])
    for cell in status.cells:
        if str(cell.folder) in waiting:
            train_cell(load_once(cell.data), model, cell.folder, cell.values)
            processes.wait_for_everyone()
            status.done.add(cell.folder)


class StopWhenSlow(TrainerCallback):  # type: ignore[misc]
    """Stops a slow model after ``SLOW_STEPS`` steps and ``SLOW_SECONDS`` seconds."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop if both limits are reached."""
        slow = time.monotonic() - self._started > SLOW_SECONDS
        control.should_training_stop |= slow and state.global_step >= SLOW_STEPS


def time_cell(data: RetrievalData, model: str, values: Mapping[str, Any]) -> Timing:
    """Train ``STEPS`` steps of plain fine-tuning, encode ``TEXTS`` documents, and keep neither.

    Mining, searching and the method itself are left out: they cost little beside a model's steps.
    """
    timed = {name: value for name, value in values.items() if name in TIMED_SETTINGS}
    fixed = {"method": "ft", "max_steps": STEPS, "negatives": "random"}
    recipe = make_recipe({**timed, **fixed, "save_steps": STEPS // 2})
    start = time.perf_counter()
    prepared = load_and_check(data, model, recipe)
    overhead, encoding = time.perf_counter() - start, 0.0
    if recipe.train.query_vectors is None:
        encoding = _time_encoding(prepared) * len(data.corpus)
    if prepared.model.base is None:
        overhead += encoding * _encodings_after(prepared)
    else:  # any vectors take the same time
        size = prepared.model.encoder.dimension
        vector = np.full(size, size**-0.5, dtype=np.float32)
        tables = (prepared.data.drawn.queries, prepared.data.drawn.corpus)
        vectors = (np.broadcast_to(vector, (len(table), size)) for table in tables)
        set_vectors(prepared.model.trained, FrozenVectors(*vectors))
    training_set = build_training_set(prepared, prepared.data.drawn)
    method = prepared.recipe.make_method(training_set.pairs, training_set.scores, processes=1)
    with TemporaryDirectory(prefix="opera-timing-") as folder:
        trained, settings = prepared.model.trained, prepared.settings
        writer = RunWriter(Path(folder))
        train(trained, training_set, method, settings, writer, callbacks=[StopWhenSlow()])
        seconds = Run(writer.path).trace()["seconds"].to_numpy()
    seconds = seconds[min(WARM_UP, len(seconds) - 2) :]
    per_step, trainings = float(np.median(seconds)), _trainings(prepared, values)
    overhead += CHECKPOINTS * trainings * float(seconds.max() - per_step)
    model_bytes = FLOAT_BYTES * prepared.model.n_parameters
    return Timing(trainings * per_step, overhead, encoding, model_bytes, prepared.situation)


def _trainings(timed: Prepared, values: Mapping[str, Any]) -> int:
    """How often a cell trains. Its own steps and evaluations decide, not those of the timing."""
    settings = resolve(make_recipe(values).train, timed.situation)
    own = timed.recipe.model_copy(update={"train": settings})
    return 2 if replace(timed, recipe=own).refits else 1


def _encodings_after(prepared: Prepared) -> float:
    """How often the corpus is encoded after training: for test, and by the guard for each share."""
    if not prepared.settings.guard:
        return 1.0
    documents, static = len(prepared.data.drawn.corpus), is_static(prepared.model.trained)
    ranked = documents if static else min(documents, GUARD_DOCUMENTS)
    return 2.0 + (len(shares_to_try(static)) - 1) * ranked / documents


def _time_encoding(prepared: Prepared) -> float:
    """Seconds to encode a document: mean over all the corpus, which is often sorted by length."""
    corpus, encoder = prepared.data.drawn.corpus, prepared.model.encoder
    rows = np.linspace(0, len(corpus) - 1, min(TEXTS, len(corpus))).astype(np.int64)
    texts = corpus.texts(rows, prepared.recipe.train.corpus_text)
    encoder.encode(texts[:8], "document")  # warm up
    start = time.perf_counter()
    encoder.encode(texts, "document")
    return (time.perf_counter() - start) / len(texts)


if __name__ == "__main__":
    main()
