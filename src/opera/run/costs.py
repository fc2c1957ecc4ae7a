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

from opera.config.recipe import make_recipe
from opera.core.progress import duration
from opera.core.settings import resolved
from opera.core.terminal import counted
from opera.guard.choice import GUARD_DOCUMENTS, Weights
from opera.guard.rule import COARSE, FINE
from opera.run_folder.folder import RunWriter
from opera.training.build import build_training_set
from opera.training.prepare import Prepared
from opera.training.trainer import make_sampler, train

STEPS, TEXTS = 3, 64
"""Steps that are timed, after one for warm-up, and documents that are encoded."""
SLOW_SECONDS = 3.0
"""After so much time no further step is timed."""


@dataclass(frozen=True)
class Costs:
    """The estimated costs of a run.

    Attributes:
        settings: the run's settings.
        seconds: of the run.
        memory: peak bytes of the timed steps.
        sentence: total time and memory, and the time of each part.
    """

    settings: dict[str, Any]
    seconds: float
    memory: int
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Return total time, memory and settings as JSON values."""
        return {
            "seconds": self.seconds,
            "memory_bytes": self.memory,
            "settings": self.settings,
        }


def time_run(prepared: Prepared, began: float) -> Costs:
    """Encode a few documents and train a few steps of plain fine-tuning, then restore the model.

    Mining, search and the method are not timed: they cost little compared with training steps.

    Args:
        prepared: the run.
        began: ``time.perf_counter()`` at its start.

    Raises:
        TrainingError: if the steps fail, as they would in the run.
    """
    loading = time.perf_counter() - began
    of_training, trainings = resolved(prepared.settings.max_steps), 1 + prepared.refits
    steps = of_training * trainings
    encoding = _encoding_seconds(prepared, steps)
    base = Weights.of(prepared.model.trained)
    try:
        # an adapter trains in seconds
        per_step = _seconds_per_step(prepared) if prepared.model.base is None else 0.0
    finally:
        base.put_into(prepared.model.trained)
        prepared.model.trained.zero_grad()
    memory, seconds = _peak_memory(), loading + encoding + steps * per_step
    sentence = (
        f"about {duration(seconds)} in all, {memory / 1e9:.1f} GB of memory: "
        f"{'two trainings of ' * (trainings - 1)}{counted(of_training, 'step')} of "
        f"{per_step:.2g} s ({duration(steps * per_step)}), "
        f"encoding and measuring ({duration(encoding)})"
    )
    return Costs(prepared.recipe.flat(), seconds, memory, sentence)


def _encoding_seconds(prepared: Prepared, steps: int) -> float:
    """Estimate the seconds of encoding in a run of so many steps."""
    settings, corpus = prepared.settings, prepared.data.with_splits.joined.corpus
    if settings.query_vectors is not None:
        return 0.0
    rows = np.linspace(0, len(corpus) - 1, min(TEXTS, len(corpus))).astype(np.int64)
    # spread evenly over the corpus, which is often sorted
    texts = corpus.texts(rows, settings.corpus_text)
    start = time.perf_counter()
    prepared.model.encoder.encode(texts, "document")
    seconds = (time.perf_counter() - start) / len(texts)
    return corpus_passes(prepared, steps) * len(corpus) * seconds


def corpus_passes(prepared: Prepared, steps: int) -> float:
    """Estimate how often a run of so many steps encodes the corpus, if λ is between 0 and 1.

    A part of the corpus counts as a fraction. A transformer's embeddings of a small corpus stay in
    memory, and those of the base and the final model stay on disk.
    """
    settings, documents = prepared.settings, len(prepared.data.with_splits.joined.corpus)
    if prepared.model.base is not None:  # an adapter needs every text once
        return 1.0
    static, base, final = prepared.is_static, 1, 1
    passes = base + final + (0 if settings.eval_steps is None else steps // settings.eval_steps)
    if static:  # it encodes faster than a cache would be read
        passes += 2  # base on dev, and the search for missing labels
    if not settings.guard:
        return passes
    part = 1.0 if static else min(1.0, GUARD_DOCUMENTS / documents)
    mixtures = len(FINE if static else COARSE) - 1 + prepared.refits
    in_memory = part == 1.0 and not static
    if in_memory:
        return passes - final + mixtures + prepared.refits
    ranking_for_the_guard, fine_tuned = 0 if static else 1, 1
    return passes + ranking_for_the_guard + fine_tuned + part * mixtures


def _seconds_per_step(prepared: Prepared) -> float:
    """Train a few steps, and return their mean seconds."""
    negatives = "none" if prepared.settings.n_negatives == 0 else "random"
    last = STEPS + 2  # the last step would save a checkpoint, but is never reached
    values = {
        "max_steps": last,
        "negatives": negatives,
        "loss": "infonce",
        "pair_weights": "none",
        "prune_before_mining": False,
        "trainer": {
            **(prepared.settings.trainer or {}),
            "save_steps": last,
            "eval_steps": None,
            "load_best_model_at_end": False,
        },
    }
    recipe = make_recipe({"method": "ft"}).model_copy(
        update={"train": prepared.settings.model_copy(update=values)}
    )
    data = replace(prepared.data, negatives=negatives)
    training_set = build_training_set(replace(prepared, recipe=recipe, data=data))
    timer, sampler, model = _Timer(), make_sampler(training_set, recipe), prepared.model.trained
    with TemporaryDirectory(prefix="opera-timing-") as folder:
        writer = RunWriter(Path(folder), writes=False)
        train(model, training_set, sampler, recipe.train, writer, callbacks=[timer])
    return float(np.diff(timer.ends).mean())


class _Timer(TrainerCallback):  # type: ignore[misc]
    """Notes when steps end, and ends the training after a few steps."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time."""
        self.ends.append(time.perf_counter())
        slow = self.ends[-1] - self.ends[0] > SLOW_SECONDS
        control.should_training_stop |= slow or len(self.ends) > STEPS


def _peak_memory() -> int:
    """Return the peak bytes of this process, on the GPU if there is one."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
