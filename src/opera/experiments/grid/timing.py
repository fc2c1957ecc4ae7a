"""What a cell will cost, measured on a few real training steps and texts, before any cell runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.data import RetrievalData
from opera.methods import Plan
from opera.runs.folder import Run, RunWriter
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import prepare

STEPS = 12
WARM_UP = 4
TEXTS = 64
ENOUGH_SECONDS, ENOUGH_STEPS = 15.0, 3
FLOAT_BYTES = 4
CHECKPOINTS = 10
"""How many a run saves, unless it is told otherwise or is very long."""


@dataclass(frozen=True)
class Timed:
    """What a cell costs.

    Attributes:
        step: seconds of a training step, the median.
        around: seconds of loading, of saving checkpoints, and of encoding the corpus after training.
        once: seconds of encoding the corpus before training, for all cells.
        model_bytes: what the trained model takes on disk, about.
    """

    step: float
    around: float
    once: float
    model_bytes: int


class Enough(TrainerCallback):  # type: ignore[misc]
    """Ends training after a few steps of a slow model."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop, if these were enough."""
        late = time.monotonic() - self._began > ENOUGH_SECONDS
        control.should_training_stop |= late and state.global_step >= ENOUGH_STEPS


def time_cell(data: RetrievalData, model: str, values: Mapping[str, Any]) -> Timed:
    """Train ``STEPS`` steps of plain fine-tuning, fewer of a slow model; encode ``TEXTS`` documents; forget both.

    Mining, searching and what a method itself costs are left out: they are small beside a model's steps.

    Args:
        data: the data set.
        model: the model.
        values: settings of the cell; those of its method, of noise and of evaluation during training do not count.
    """
    kept = {"per_device_train_batch_size", "gradient_accumulation_steps", "train_group_size", "precision", "dropout"}
    kept |= {"max_query_length", "max_passage_length", "encode_batch_size", "gradient_checkpointing", "optim", "seed"}
    kept |= {"attn_implementation", "corpus_text"}
    plain = {name: value for name, value in values.items() if name in kept & TrainSettings.flat_fields.keys()}
    recipe = make_recipe(
        {**plain, "method": "ft", "max_steps": STEPS, "negatives": "random", "snapshots": 0, "save_steps": STEPS // 2}
    )
    with TemporaryDirectory(prefix="opera-timing-") as folder:
        writer = RunWriter(Path(folder))
        start = time.perf_counter()
        prepared = prepare(data, model, recipe)
        loading = time.perf_counter() - start
        count = min(TEXTS, len(data.corpus))
        rows = np.linspace(0, len(data.corpus) - 1, count).astype(np.int64)  # corpora are often sorted by length
        texts = data.corpus.texts(rows, recipe.train.encoding.corpus_text)
        prepared.encoder.encode(texts[:8], "document")
        start = time.perf_counter()
        prepared.encoder.encode(texts, "document")
        encoding = (time.perf_counter() - start) / count
        training_set = build_training_set(prepared)
        plan = Plan(0, STEPS, recipe.train.batching.queries_per_step(processes=1))
        method = recipe.method_class(training_set.pairs, plan, recipe.method_settings, None)
        train(prepared.model, training_set, method, recipe.train, writer, callbacks=[Enough()])
        seconds = Run(writer.path).trace()["seconds"].to_numpy()
        seconds = seconds[min(WARM_UP, len(seconds) - 2) :]
        step = float(np.median(seconds))
        saving = CHECKPOINTS * float(seconds.max() - step)
    size = FLOAT_BYTES * prepared.n_parameters
    corpus = encoding * len(data.corpus)
    return Timed(step, loading + corpus + saving, corpus, size)
