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
from opera.guard.choice import Weights
from opera.guard.dev_corpus import most_documents
from opera.guard.rule import COARSE, FINE
from opera.run.session import PHASES
from opera.run_folder.folder import TRIAL_FOLDER, RunWriter
from opera.training.build import build_training_set
from opera.training.prepare import Prepared
from opera.training.trainer import make_sampler, train

STEPS, TEXTS = 3, 64
"""Steps that are timed, after one for warm-up, and documents that are encoded."""
SLOW_SECONDS = 3.0
"""After so much time no further step is timed."""
TRAININGS = (TRIAL_FOLDER, "train")
"""The phases that train."""


@dataclass(frozen=True)
class Costs:
    """The estimated costs of a run.

    Attributes:
        settings: the run's settings.
        phases: the seconds of each phase that takes long, by its name in ``run.json``, in order.
        memory: peak bytes of the timed steps.
        sentence: total time and memory, and the time of each part.
    """

    settings: dict[str, Any]
    phases: dict[str, float]
    memory: int
    sentence: str

    @property
    def seconds(self) -> float:
        """Seconds of the run."""
        return sum(self.phases.values())

    @property
    def lines(self) -> list[str]:
        """The sentence, and a line for each phase of a second or more."""
        long = {PHASES[name]: value for name, value in self.phases.items() if value >= 1}
        return [self.sentence, *(f"  {title}: {duration(value)}" for title, value in long.items())]

    def as_dict(self) -> dict[str, Any]:
        """Return total time, memory and settings as JSON values."""
        return {
            "seconds": self.seconds,
            "phases": self.phases,
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
    encoding = _encoding_seconds(prepared)
    base = Weights.of(prepared.model.trained)
    try:
        # an adapter trains in seconds
        per_step = _seconds_per_step(prepared) if prepared.model.base is None else 0.0
    finally:
        base.put_into(prepared.model.trained)
        prepared.model.trained.zero_grad()
    phases = {"load": loading}
    for phase, passes in corpus_passes(prepared, of_training).items():
        phases[phase] = passes * encoding
        if phase in TRAININGS:
            phases[phase] += of_training * per_step
    memory, training = _peak_memory(), trainings * of_training * per_step
    sentence = (
        f"about {duration(sum(phases.values()))} in all, {memory / 1e9:.1f} GB of memory: "
        f"{'two trainings of ' * (trainings - 1)}{counted(of_training, 'step')} of "
        f"{per_step:.2g} s ({duration(training)}), "
        f"encoding and measuring ({duration(sum(phases.values()) - training - loading)})"
    )
    return Costs(prepared.recipe.flat(), phases, memory, sentence)


def _encoding_seconds(prepared: Prepared) -> float:
    """Estimate the seconds of encoding the corpus once."""
    settings, data = prepared.settings, prepared.data.with_splits.joined
    if settings.query_vectors is not None:
        return 0.0
    passages = prepared.model.encoder.passages(data)
    corpus = data.corpus if passages is None else passages.table
    rows = np.linspace(0, len(corpus) - 1, min(TEXTS, len(corpus))).astype(np.int64)
    # spread evenly over the corpus, which is often sorted
    texts = corpus.texts(rows, settings.corpus_text)
    start = time.perf_counter()
    prepared.model.encoder.encode(texts, "document")
    return (time.perf_counter() - start) * len(corpus) / len(texts)


def corpus_passes(prepared: Prepared, steps: int) -> dict[str, float]:
    """Estimate how often each phase of a run encodes the corpus, if λ is between 0 and 1.

    A part of the corpus counts as a fraction. A transformer's embeddings of a small corpus stay in
    memory, and those of the base and the final model stay on disk.

    Args:
        prepared: the run.
        steps: of a training.
    """
    settings, data = prepared.settings, prepared.data.with_splits
    if prepared.model.base is not None:  # an adapter needs every text once
        return {"encode": 1.0, "train": 0.0}
    evaluations = 0 if settings.eval_steps is None else steps // settings.eval_steps
    limit = most_documents(prepared.is_static, prepared.model.encoder, data)
    fraction = min(1.0, limit / len(data.joined.corpus))
    static = float(prepared.is_static)  # it encodes faster than a cache would be read
    if not settings.guard:
        ends = {"evaluate_after": 1.0, "review": static}
        return {"evaluate_before": 1.0, "train": fraction * evaluations, **ends}
    is_reduced = fraction < 1.0
    in_memory = not is_reduced and not static
    # the corpus is chosen by a ranking, which a transformer predicts from half of this corpus
    ranking = is_reduced * (1.0 if prepared.ranks_all else fraction / 2)
    choosing = ranking + fraction * (len(FINE if static else COARSE) - 1)
    before = {"evaluate_dev": 1.0, "evaluate_before": static}
    after = {
        "evaluate_fine_tuned": static or float(in_memory and prepared.refits),
        "evaluate_after": 1.0 - in_memory,
        "review": static,
    }
    if not prepared.refits:
        return {
            **before,
            "train": fraction * evaluations,
            "choose_mixing_weight": choosing,
            **after,
        }
    first = {TRIAL_FOLDER: 0.0, "choose_mixing_weight": choosing}
    second = {"train": 0.0, "compare_trainings": fraction}
    return {**before, **first, **second, **after}


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
    timed = replace(prepared, recipe=recipe, data=data)
    training_set = build_training_set(timed, first_passages=True)
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
