"""Estimate the time and memory of a run from a few steps and texts."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from opera.adapter.model import FrozenVectors, set_vectors
from opera.config.recipe import make_recipe
from opera.core.progress import duration
from opera.core.settings import resolved
from opera.core.terminal import counted
from opera.engine.run_pruning import RunPruning
from opera.engine.train import train
from opera.guard.choice import Weights
from opera.guard.dev_corpus import GUARD_DOCUMENTS
from opera.guard.rule import mixing_weights_to_try
from opera.retrieval.models import is_static
from opera.runs.folder import RunWriter
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared

STEPS, TEXTS = 3, 64
"""Steps that are timed, including one for warm-up, and documents that are encoded."""
SLOW_SECONDS = 3.0
"""After so much time no further step is timed."""


@dataclass(frozen=True)
class Costs:
    """The estimated costs of a run.

    Attributes:
        settings: the run's settings.
        steps: training steps, of both trainings if a run trains twice.
        per_step: seconds per step.
        documents: documents to encode; a document that is encoded twice counts twice.
        per_document: seconds per document.
        loading: seconds until the run was prepared.
        memory: peak bytes of the timed steps.
    """

    settings: dict[str, Any]
    steps: int
    per_step: float
    documents: int
    per_document: float
    loading: float
    memory: int

    @property
    def total(self) -> float:
        """Seconds of the run."""
        return self.loading + self.steps * self.per_step + self.documents * self.per_document

    @property
    def sentence(self) -> str:
        """Total time and memory, and the time of each part."""
        step = self.per_step
        pace = f"{step:.1f} s" if step >= 1 else f"{1000 * step:.0f} ms"
        return (
            f"about {duration(self.total)} in all, {self.memory / 1e9:.1f} GB of memory: "
            f"{counted(self.steps, 'step')} of {pace} ({duration(self.steps * step)}), encoding "
            f"and measuring ({duration(self.documents * self.per_document)})"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return total time, memory and settings as JSON values."""
        return {"seconds": self.total, "memory_bytes": self.memory, "settings": self.settings}


def time_run(prepared: Prepared, began: float) -> Costs:
    """Encode a few documents and train a few steps of plain fine-tuning, then restore the model.

    Mining, search and the method are not timed: they cost little compared with training steps.

    Args:
        prepared: the run.
        began: ``time.perf_counter()`` at its start.

    Raises:
        TrainingError: if the steps fail, as they would in the run.
    """
    loading, per_document = time.perf_counter() - began, 0.0
    if prepared.settings.query_vectors is None:
        per_document = _time_encoding(prepared)
    if prepared.model.base is not None:  # all vectors take the same time
        size = prepared.model.encoder.dimension
        vector = np.full(size, size**-0.5, dtype=np.float32)
        tables = (prepared.data.drawn.queries, prepared.data.drawn.corpus)
        vectors = (np.broadcast_to(vector, (len(table), size)) for table in tables)
        set_vectors(prepared.model.trained, FrozenVectors(*vectors))
    base = Weights.of(prepared.model.trained)
    try:
        with TemporaryDirectory(prefix="opera-timing-") as folder:
            per_step, memory = _time_steps(prepared, Path(folder))
    finally:
        base.put_into(prepared.model.trained)
        prepared.model.trained.zero_grad()
    steps = resolved(prepared.settings.max_steps) * (2 if prepared.refits else 1)
    return Costs(
        settings=prepared.recipe.flat(),
        steps=steps,
        per_step=per_step,
        documents=documents_encoded(prepared, steps),
        per_document=per_document,
        loading=loading,
        memory=memory,
    )


def documents_encoded(prepared: Prepared, steps: int) -> int:
    """Estimate how many documents a run of so many steps encodes."""
    settings, corpus = prepared.settings, len(prepared.data.drawn.corpus)
    if settings.query_vectors is not None:
        return 0
    if prepared.model.base is not None:
        return corpus
    evaluations = 0 if settings.eval_steps is None else steps // settings.eval_steps
    if not settings.guard:
        return corpus * (2 + evaluations)
    static = is_static(prepared.model.trained)
    ranked = corpus if static else min(corpus, GUARD_DOCUMENTS)
    on_test = 1 if ranked == corpus and not static else 3  # test reuses the guard's embeddings
    on_dev = len(mixing_weights_to_try(static)) - 1 + 2 * prepared.refits
    return corpus * (on_test + evaluations) + ranked * on_dev


def _time_encoding(prepared: Prepared) -> float:
    """Return the seconds per encoded document."""
    corpus, encoder = prepared.data.drawn.corpus, prepared.model.encoder
    rows = np.linspace(0, len(corpus) - 1, min(TEXTS, len(corpus))).astype(np.int64)
    # spread evenly over the corpus, which is often sorted
    texts = corpus.texts(rows, prepared.settings.corpus_text)
    encoder.encode(texts[:2], "document")  # warms up
    start = time.perf_counter()
    encoder.encode(texts, "document")
    return (time.perf_counter() - start) / len(texts)


def _time_steps(prepared: Prepared, folder: Path) -> tuple[float, int]:
    """Return the seconds per training step, and the peak bytes of memory."""
    device = prepared.model.encoder.device
    values = {
        "max_steps": STEPS + 1,  # the last step would save a checkpoint, but is never reached
        "eval_steps": None,
        "negatives": "random",
        "loss": "infonce",
        "pair_weights": "none",
        "prune_before_mining": False,
    }
    fields = {"save_steps": STEPS + 1, "load_best_model_at_end": False}
    trainer = {**(prepared.settings.trainer or {}), **fields}
    settings = prepared.settings.with_values({**values, "trainer": trainer})
    recipe = make_recipe({"method": "ft"}).model_copy(update={"train": settings})
    data = replace(prepared.data, negatives="random")
    training_set = build_training_set(replace(prepared, recipe=recipe, data=data))
    if device == "cuda":  # loading and encoding may have used more memory
        torch.cuda.reset_peak_memory_stats()
    timer, writer = _Timer(), RunWriter(folder, writes=False)
    pruning = RunPruning(prepared.model.trained, training_set, recipe)
    train(pruning, writer, callbacks=[timer], show_progress=False)
    return float(np.median(timer.seconds[1:] or timer.seconds)), _memory(device)


class _Timer(TrainerCallback):  # type: ignore[misc]
    """Times steps, and ends the training after a few steps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = time.perf_counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._last = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time."""
        self.seconds.append(time.perf_counter() - self._last)
        slow = len(self.seconds) > 1 and sum(self.seconds) > SLOW_SECONDS
        control.should_training_stop |= slow or len(self.seconds) >= STEPS


def _memory(device: str) -> int:
    """Return the peak bytes of this process."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
