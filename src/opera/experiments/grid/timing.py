"""What a cell will cost, measured on a few real training steps and texts before any cell runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.adapter.model import FrozenVectors, set_vectors
from opera.config.automatic import resolve
from opera.config.recipe import Recipe, make_recipe
from opera.data import RetrievalData
from opera.experiments.grid.preview import Timing
from opera.retrieval.models import is_static
from opera.runs.folder import Run, RunWriter
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


class StopWhenSlow(TrainerCallback):  # type: ignore[misc]
    """Stops a slow model after ``SLOW_STEPS`` steps and ``SLOW_SECONDS`` seconds."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
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
    with TemporaryDirectory(prefix="opera-timing-") as folder:
        writer = RunWriter(Path(folder))
        start = time.perf_counter()
        prepared = load_and_check(data, model, recipe)
        overhead, encoding = time.perf_counter() - start, 0.0
        if recipe.train.query_vectors is None:
            encoding = _time_encoding(prepared, data, recipe) * len(data.corpus)
        if prepared.model.base is None:
            overhead += encoding * _encodings_after(prepared)
        _train_briefly(prepared, writer)
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
    settings, documents = prepared.settings, len(prepared.data.drawn.corpus)
    if not settings.guard:
        return 1.0
    static = is_static(prepared.model.trained)
    ranked = documents if static else min(documents, GUARD_DOCUMENTS)
    return 2.0 + (len(shares_to_try(static)) - 1) * ranked / documents


def _time_encoding(prepared: Prepared, data: RetrievalData, recipe: Recipe) -> float:
    """Seconds to encode a document: mean over all the corpus, which is often sorted by length."""
    count = min(TEXTS, len(data.corpus))
    rows = np.linspace(0, len(data.corpus) - 1, count).astype(np.int64)
    texts = data.corpus.texts(rows, recipe.train.corpus_text)
    encoder = prepared.model.encoder
    encoder.encode(texts[:8], "document")  # warm up
    start = time.perf_counter()
    encoder.encode(texts, "document")
    return (time.perf_counter() - start) / count


def _train_briefly(prepared: Prepared, writer: RunWriter) -> None:
    if prepared.model.base is not None:  # any vectors take the same time
        size = prepared.model.encoder.dimension
        vector = np.full(size, size**-0.5, dtype=np.float32)
        tables = (prepared.data.drawn.queries, prepared.data.drawn.corpus)
        vectors = (np.broadcast_to(vector, (len(table), size)) for table in tables)
        set_vectors(prepared.model.trained, FrozenVectors(*vectors))
    training_set = build_training_set(prepared, prepared.data.drawn)
    method = prepared.recipe.make_method(training_set.pairs, training_set.scores, processes=1)
    callbacks = [StopWhenSlow()]
    train(
        prepared.model.trained, training_set, method, prepared.settings, writer, callbacks=callbacks
    )
