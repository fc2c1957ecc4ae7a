"""What a cell will cost, measured on a few real training steps and texts before any cell runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.adapter.model import FrozenVectors, set_vectors
from opera.config.automatic import Situation, resolve
from opera.config.recipe import Recipe, make_recipe
from opera.data import RetrievalData
from opera.retrieval.models import is_static
from opera.runs.folder import Run, RunWriter
from opera.training.guard.rule import shares_to_try
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared, prepare

STEPS = 12
WARM_UP = 4
TEXTS = 64
SLOW_SECONDS, SLOW_STEPS = 15.0, 3
FLOAT_BYTES = 4
CHECKPOINTS = 10
"""How many a run saves by default, unless it is very long."""

TIMED_SETTINGS = {
    "adapter",
    "attn_implementation",
    "corpus_text",
    "dev_fraction",
    "document_prompt",
    "document_vectors",
    "dropout",
    "encode_batch_size",
    "future",
    "global_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "guard",
    "guard_documents",
    "max_passage_length",
    "max_query_length",
    "optim",
    "per_device_train_batch_size",
    "precision",
    "preset",
    "query_prompt",
    "query_vectors",
    "refit",
    "seed",
    "test_fraction",
    "train_group_size",
}
"""Settings that decide how long a step takes and what the guard adds; the others are left out of the timing."""


@dataclass(frozen=True)
class CellTiming:
    """What a cell costs.

    Attributes:
        per_step: median seconds per training step, of both trainings where the guard trains twice.
        overhead: seconds to load, to save checkpoints, and to encode the corpus after training, for the guard too.
        encoding: seconds to encode the corpus before training, which all cells share.
        model_bytes: approximate size of the trained model on disk.
        situation: what its automatic settings depend on.
    """

    per_step: float
    overhead: float
    encoding: float
    model_bytes: int
    situation: Situation


class StopWhenSlow(TrainerCallback):  # type: ignore[misc]
    """Stops the training of a slow model after ``SLOW_STEPS`` steps and ``SLOW_SECONDS`` seconds."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._started = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop if both limits are reached."""
        slow = time.monotonic() - self._started > SLOW_SECONDS
        control.should_training_stop |= slow and state.global_step >= SLOW_STEPS


def time_cell(data: RetrievalData, model: str, values: Mapping[str, Any]) -> CellTiming:
    """Train ``STEPS`` steps of plain fine-tuning, fewer of a slow model, encode ``TEXTS`` documents, and keep neither.

    Mining, searching and the cost of a method itself are left out: they are small beside a model's steps.

    Args:
        data: the data set.
        model: the model.
        values: settings of the cell. Those of its method, of noise and of evaluation during training are left out.
    """
    timed = {name: value for name, value in values.items() if name in TIMED_SETTINGS}
    fixed = {
        "method": "ft",
        "max_steps": STEPS,
        "negatives": "random",
        "snapshots": 0,
        "save_steps": STEPS // 2,
    }
    recipe = make_recipe({**timed, **fixed})
    with TemporaryDirectory(prefix="opera-timing-") as folder:
        writer = RunWriter(Path(folder))
        start = time.perf_counter()
        prepared = prepare(data, model, recipe)
        loading = time.perf_counter() - start
        reads_texts = recipe.train.query_vectors is None
        encoding = _time_encoding(prepared, data, recipe) * len(data.corpus) if reads_texts else 0.0
        encoding_after = encoding * _encodings_after(prepared) if prepared.base is None else 0.0
        _train_briefly(prepared, writer)
        seconds = Run(writer.path).trace()["seconds"].to_numpy()
    seconds = seconds[min(WARM_UP, len(seconds) - 2) :]
    per_step, trainings = float(np.median(seconds)), _trainings(prepared, values)
    saving = CHECKPOINTS * trainings * float(seconds.max() - per_step)
    model_bytes = FLOAT_BYTES * prepared.n_parameters
    overhead = loading + encoding_after + saving
    return CellTiming(trainings * per_step, overhead, encoding, model_bytes, prepared.situation)


def _trainings(timed: Prepared, values: Mapping[str, Any]) -> int:
    """How often a cell trains. Its own steps and evaluations decide, not those of the timing."""
    settings = resolve(make_recipe(values).train, timed.situation)
    return (
        2
        if replace(timed, recipe=timed.recipe.model_copy(update={"train": settings})).refits
        else 1
    )


def _encodings_after(prepared: Prepared) -> float:
    """How often the corpus is encoded after training: for test, and by the guard for each share on dev."""
    settings, documents = prepared.settings, len(prepared.data.corpus)
    if not settings.guard:
        return 1.0
    static = is_static(prepared.model)
    ranked = documents if static else min(documents, settings.guard_documents)
    return 2.0 + (len(shares_to_try(static)) - 1) * ranked / documents


def _time_encoding(prepared: Prepared, data: RetrievalData, recipe: Recipe) -> float:
    """Seconds to encode a document, mean over documents from all over the corpus, which is often sorted by length."""
    count = min(TEXTS, len(data.corpus))
    rows = np.linspace(0, len(data.corpus) - 1, count).astype(np.int64)
    texts = data.corpus.texts(rows, recipe.train.corpus_text)
    prepared.encoder.encode(texts[:8], "document")  # warm up
    start = time.perf_counter()
    prepared.encoder.encode(texts, "document")
    return (time.perf_counter() - start) / count


def _train_briefly(prepared: Prepared, writer: RunWriter) -> None:
    if prepared.base is not None:  # any vectors take the same time
        vector = np.full(
            prepared.encoder.dimension, prepared.encoder.dimension**-0.5, dtype=np.float32
        )
        tables = (prepared.data.queries, prepared.data.corpus)
        set_vectors(
            prepared.model,
            FrozenVectors(*(np.broadcast_to(vector, (len(t), len(vector))) for t in tables)),
        )
    training_set = build_training_set(prepared)
    method = prepared.recipe.make_method(training_set.pairs, training_set.scores, processes=1)
    train(
        prepared.model, training_set, method, prepared.settings, writer, callbacks=[StopWhenSlow()]
    )
