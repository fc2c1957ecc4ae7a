"""What a run costs, foreseen from a few steps and texts: time, memory, and what would be
shorter."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import TrainerCallback

from opera.adapter.model import FrozenVectors, set_vectors
from opera.config.automatic import TRANSFORMERS, ModelKind, resolve
from opera.config.recipe import make_recipe
from opera.core.files import remove
from opera.core.progress import duration
from opera.core.settings import resolved
from opera.encoder.token_ids import has_token_path, token_ids
from opera.retrieval.encoder import Encoder
from opera.retrieval.models import is_static
from opera.runs.folder import RunWriter
from opera.training.guard.choice import Weights
from opera.training.guard.dev_corpus import GUARD_DOCUMENTS
from opera.training.guard.rule import shares_to_try
from opera.training.train import train
from opera.training_set.build import build_training_set
from opera.training_set.prepare import Prepared

STEPS, WARM_UP = 3, 1
TEXTS, ROUNDS = 64, 6
SLOW_SECONDS = 3.0
"""After this long no further step is timed; of slower steps a part of the batch is."""
TRAINED_AT_ONCE = 3
"""How many times as long as encoding a text its training takes, at a guess: forward and back."""
BYTES_PER_WEIGHT = 12
"""Of its gradient and of AdamW's two moments, whatever the batch."""
STATIC_DOCUMENTS, STATIC_STEPS = 5000, 10
"""Per second, of a small static model on a CPU core."""
LEAST_SAVED = 0.1
"""A change that saves less than this share of the time is not worth naming."""

Seconds = Mapping[str, float]
"""By unit: ``steps`` and ``documents``."""


@dataclass(frozen=True)
class Costs:
    """What a run needs.

    Attributes:
        prepared: the run.
        seconds: of a training step and of encoding a document.
        loading: seconds until it was prepared.
        memory: bytes at the peak of the timed steps.
    """

    prepared: Prepared
    seconds: Seconds
    loading: float
    memory: int

    @property
    def total(self) -> float:
        """Seconds of the whole run."""
        return self._total(self.prepared)

    def parts(self) -> dict[str, float]:
        """Seconds by phase, with what comes before them as ``load``."""
        return {"load": self.loading, **seconds_by_phase(self.prepared, self.seconds)}

    def shorter(self) -> dict[str, float]:
        """What would take less time, as options of ``opera train``, with the seconds of each."""
        prepared, found = self.prepared, dict[str, float]()
        settings, kind = prepared.settings, prepared.situation.model
        if prepared.refits:
            found["--set refit=false"] = self._total(_changed(prepared, refit=False))
        epochs = float(f"{resolved(settings.epochs) / 2:.2g}")
        steps = math.ceil(resolved(settings.max_steps) / 2)
        fewer = _changed(prepared, max_steps=steps, epochs=epochs)
        given = prepared.given.train.max_steps is not None
        found[f"--steps {steps}" if given else f"--epochs {epochs:g}"] = self._total(fewer)
        if kind in TRANSFORMERS:
            found |= self._with_shorter_texts()
            documents = len(prepared.data.drawn.corpus)
            every = documents + len(prepared.data.drawn.queries)
            if settings.lora is None:
                seconds = every * self.seconds["documents"]
                found["--adapter query"] = self.loading + seconds + self._quick("adapter", every)
            found["a static model for --model"] = self.loading + self._quick("static", documents)
        most = (1 - LEAST_SAVED) * self.total
        return {name: seconds for name, seconds in found.items() if seconds < most}

    def lines(self) -> list[str]:
        """Say what the run will take, and what would be shorter."""
        prepared, parts = self.prepared, self.parts()
        steps = resolved(prepared.settings.max_steps)
        training = sum(parts.get(name, 0.0) for name in ("trial", "train"))
        documents = sum(parts.values()) - training - self.loading
        found = [
            f"about {duration(self.total)} in all, {self.memory / 1e9:.1f} GB of memory: "
            f"{'2 trainings of ' if prepared.refits else ''}{steps:,} steps of "
            f"{_pace(self.seconds['steps'])} ({duration(training)}), encoding and measuring "
            f"({duration(documents)})"
        ]
        if shorter := self.shorter():
            every = sorted(shorter.items(), key=lambda item: item[1])
            named = ", ".join(f"{name} ({duration(seconds)})" for name, seconds in every)
            found.append(f"shorter, each by itself: {named}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The same, for JSON, with all settings of the run."""
        return {
            "seconds": self.total,
            "memory_bytes": self.memory,
            "seconds_by_phase": self.parts(),
            "shorter": self.shorter(),
            "settings": self.prepared.recipe.flat(),
        }

    def _total(self, prepared: Prepared, texts: float = 1.0, steps: float = 1.0) -> float:
        """Seconds with other settings, and texts and steps that take another share of the time."""
        changed = {
            "steps": self.seconds["steps"] * steps,
            "documents": self.seconds["documents"] * texts,
        }
        return self.loading + sum(seconds_by_phase(prepared, changed).values())

    def _with_shorter_texts(self) -> dict[str, float]:
        """Half the longest passage, where texts are long enough for that to matter."""
        prepared, limit = self.prepared, self.prepared.model.lengths["max_passage_length"]
        lengths = _token_lengths(prepared, prepared.model.encoder)
        if lengths is None or limit is None:
            return {}
        half = 2 ** math.floor(math.log2(min(limit - 1, np.median(lengths["document"]))))
        queries, documents = (float(lengths[role].mean()) for role in ("query", "document"))
        cut, group = float(np.minimum(lengths["document"], half).mean()), prepared.settings
        in_step = queries + group.train_group_size * documents
        steps = (queries + group.train_group_size * cut) / in_step
        name = f"--set max_passage_length={half}"
        return {name: self._total(prepared, cut / documents, steps)}

    def _quick(self, kind: ModelKind, texts: int) -> float:
        """Seconds of training a static model or an adapter, and of reading its texts."""
        situation = replace(self.prepared.situation, model=kind)
        steps = 2 * resolved(resolve(self.prepared.given.train, situation).max_steps)
        return (
            steps / STATIC_STEPS / (1 if kind == "static" else 10) + 10 * texts / STATIC_DOCUMENTS
        )


def time_run(prepared: Prepared, began: float, folder: Path | None = None) -> Costs:
    """Encode a few documents and train a few steps of plain fine-tuning; the model stays as it was.

    Mining, searching and the method itself are left out: they cost little beside a model's steps.

    Args:
        prepared: the run.
        began: ``time.perf_counter()`` at its start.
        folder: for what the trainer writes, removed in the end; default one among temporary files.

    Raises:
        TrainingError: if the steps fail, as those of the run would.
    """
    loading, documents = time.perf_counter() - began, 0.0
    if prepared.settings.query_vectors is None:
        documents = _time_encoding(prepared)
    if prepared.model.base is not None:  # any vectors take the same time
        size = prepared.model.encoder.dimension
        vector = np.full(size, size**-0.5, dtype=np.float32)
        tables = (prepared.data.drawn.queries, prepared.data.drawn.corpus)
        vectors = (np.broadcast_to(vector, (len(table), size)) for table in tables)
        set_vectors(prepared.model.trained, FrozenVectors(*vectors))
    before = Weights.of(prepared.model.trained)
    home = folder or Path(mkdtemp(prefix="opera-timing-"))
    try:
        step, memory = _time_steps(prepared, documents, home)
    finally:
        remove(home)
        before.put_into(prepared.model.trained)
        prepared.model.trained.zero_grad()
    every = prepared.settings.eval_steps
    if every is not None and prepared.model.base is None:
        step += documents * len(prepared.data.drawn.corpus) / every
    return Costs(prepared, {"steps": step, "documents": documents}, loading, memory)


def work_of(prepared: Prepared) -> dict[str, dict[str, float]]:
    """What a run has to do, by phase: training steps, and documents to encode."""
    settings, documents = prepared.settings, len(prepared.data.drawn.corpus)
    steps = float(resolved(settings.max_steps))
    work: dict[str, dict[str, float]] = {}
    if settings.query_vectors is None:
        first = "evaluate_dev" if settings.guard else "evaluate_before"
        if prepared.model.base is not None:
            work["encode"] = {"documents": documents}
        if prepared.model.base is None or prepared.model.served is not prepared.model.encoder:
            work[first] = {"documents": documents * _length_as_served(prepared)}
    if prepared.refits:
        work["trial"] = {"steps": steps}
    work["train"] = {"steps": steps}
    if prepared.model.base is not None:
        return work
    static = is_static(prepared.model.trained)
    ranked = documents if static else min(documents, GUARD_DOCUMENTS)
    kept = settings.guard and not static and ranked == documents
    if settings.guard:
        searched = documents if ranked < documents else 0  # for the fine-tuned model's best
        work["choose_share"] = {"documents": (len(shares_to_try(static)) - 1) * ranked + searched}
        work["evaluate_fine_tuned"] = {
            "documents": 0 if kept and not prepared.refits else documents
        }
    if prepared.refits:
        work["compare_trainings"] = {"documents": ranked}
    work["evaluate_after"] = {"documents": 0 if kept else documents}
    return work


def seconds_by_phase(prepared: Prepared, seconds: Seconds) -> dict[str, float]:
    """Seconds of each phase, by those of a unit."""
    return {
        phase: sum(number * seconds[unit] for unit, number in units.items())
        for phase, units in work_of(prepared).items()
    }


def _pace(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _changed(prepared: Prepared, **values: Any) -> Prepared:
    """The same run with other settings."""
    train = prepared.settings.with_values(values)
    return replace(prepared, recipe=prepared.recipe.model_copy(update={"train": train}))


def _length_as_served(prepared: Prepared) -> float:
    """Tokens that the base model reads of a document, compared with the run's model."""
    model = prepared.model
    if model.served is model.encoder:
        return 1.0
    lengths = [_token_lengths(prepared, encoder) for encoder in (model.served, model.encoder)]
    served, trained = (1.0 if each is None else each["document"].mean() for each in lengths)
    return float(served / trained)


def _token_lengths(prepared: Prepared, encoder: Encoder) -> dict[str, NDArray[np.int64]] | None:
    """Tokens of a few texts as the model reads them; ``None`` where tokens do not say all."""
    data = prepared.data.drawn
    if not has_token_path(encoder.model):
        return None
    text = prepared.settings.corpus_text
    documents = data.corpus.texts(_some(len(data.corpus)), text)
    queries = data.queries.texts(_some(len(data.queries)), "text")
    prompts = encoder.prompts
    ids = {
        "query": token_ids(encoder.model, queries, "query", prompts["query"]),
        "document": token_ids(encoder.model, documents, "document", prompts["document"]),
    }
    return {role: np.array([len(own) for own in found]) for role, found in ids.items()}


def _some(count: int) -> NDArray[np.int64]:
    """Rows from all over a table, which is often sorted by length."""
    return np.linspace(0, count - 1, min(TEXTS, count)).astype(np.int64)


def _time_encoding(prepared: Prepared) -> float:
    """Seconds to encode a document."""
    corpus, encoder = prepared.data.drawn.corpus, prepared.model.encoder
    texts = corpus.texts(_some(len(corpus)), prepared.settings.corpus_text)
    encoder.encode(texts[:2], "document")  # warms up
    began, seconds = time.perf_counter(), list[float]()
    while not seconds or (len(seconds) < ROUNDS and time.perf_counter() - began < SLOW_SECONDS / 2):
        part = texts if seconds and seconds[0] * len(texts) < SLOW_SECONDS else texts[::8]
        start = time.perf_counter()
        encoder.encode(part, "document")
        seconds.append((time.perf_counter() - start) / len(part))
    return float(np.median(seconds[1:] or seconds))


def _time_steps(prepared: Prepared, document: float, folder: Path) -> tuple[float, int]:
    """Seconds of a training step, and bytes of memory at most.

    Args:
        prepared: the run.
        document: seconds to encode one.
        folder: for what the trainer writes.
    """
    settings, device = prepared.settings, prepared.model.encoder.device
    whole = resolved(settings.per_device_train_batch_size)
    guess = TRAINED_AT_ONCE * document * settings.queries_per_step(1) * settings.train_group_size
    batch = whole
    if not prepared.is_static and settings.gradient_cache is None:
        batch = max(min(whole, 4), int(whole * min(1.0, SLOW_SECONDS / 3 / max(guess, 1e-9))))
    timed = {
        "max_steps": STEPS + 1,  # the last saves a checkpoint, and is never reached
        "per_device_train_batch_size": batch,
        "global_batch_size": None,
        "eval_steps": None,
        "negatives": "random",
        "loss": "infonce",
        "pair_weights": "none",
        "prune_before_mining": False,
    }
    fields = {"save_steps": STEPS + 1, "load_best_model_at_end": False}
    own = settings.with_values({**timed, "trainer": {**(settings.trainer or {}), **fields}})
    recipe = make_recipe({"method": "ft"}).model_copy(update={"train": own})
    data = replace(prepared.data, negatives="random")
    quick = replace(prepared, recipe=recipe, data=data)
    training_set = build_training_set(quick)
    method = recipe.make_method(training_set.pairs, training_set.scores, 1, training_set.mixture)
    if device == "cuda":  # loading and encoding may have taken more
        torch.cuda.reset_peak_memory_stats()
    at_rest, timer = _memory(device), _Timer()
    writer = RunWriter(folder, writes=False)
    model = prepared.model.trained
    train(model, training_set, method, own, writer, callbacks=[timer], show_progress=False)
    used, share = _memory(device) - at_rest, whole / batch
    parameters = sum(
        own.numel() for own in prepared.model.trained.parameters() if own.requires_grad
    )
    fixed = min(used, BYTES_PER_WEIGHT * parameters)
    memory = at_rest + fixed + (used - fixed) * share
    return float(np.median(timer.seconds)) * share, int(memory)


class _Timer(TrainerCallback):  # type: ignore[misc]
    """Times steps, and ends the training after a few."""

    def __init__(self) -> None:
        self._all: list[float] = []
        self._last = self._start = time.perf_counter()

    @property
    def seconds(self) -> list[float]:
        """Of each step, those that warm up left out."""
        return self._all[min(WARM_UP, len(self._all) - 1) :]

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._last = self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the time."""
        now = time.perf_counter()
        self._all.append(now - self._last)
        self._last = now
        slow = now - self._start > SLOW_SECONDS and len(self._all) > 1
        control.should_training_stop |= slow or len(self._all) >= STEPS


def _memory(device: str) -> int:
    """Bytes that this process has used at most."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
