"""Out of memory, in one sentence that says which settings to lower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sentence_transformers import SentenceTransformer

from opera.config.training import TrainSettings
from opera.core.errors import TrainingError, is_out_of_memory
from opera.runs.folder import TRIAL_FOLDER
from opera.training.memory_need import GIGABYTE, USABLE, Need, free_memory, need_of, pairs_of

TRAINING = ("train_group_size", "max_passage_length")
ENCODING = ("max_passage_length",)


@contextmanager
def memory_advice(
    phase: str, settings: TrainSettings, model: SentenceTransformer | None = None
) -> Iterator[None]:
    """Turn out of memory inside the block into advice.

    Args:
        phase: of the run: ``train`` and ``trial`` train, all others encode or measure.
        settings: the run's settings.
        model: what trains, for an estimate of what it needs.

    Raises:
        TrainingError: naming the settings to lower, with their values, and how far where that can be estimated.
    """
    trains = phase in ("train", TRIAL_FOLDER)
    free = free_memory(model.device.type) if trains and model is not None else None
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        advice = _training_advice(settings, model, free) if trains else _encoding_advice(settings)
        raise TrainingError(
            f"out of memory while {advice}; then start again with --overwrite"
        ) from error


def _training_advice(
    settings: TrainSettings, model: SentenceTransformer | None, free: float | None
) -> str:
    need = None if model is None else need_of(model, settings)
    if need is None or settings.per_device_train_batch_size is None:
        return _smaller_batches(settings)
    at_once, room = f"{need.of_pairs(pairs_of(settings)) / GIGABYTE:.1f} GB", ""
    if free is not None:
        room = f", {free / GIGABYTE:.1f} GB were free"
        if need.fixed > USABLE * free and settings.lora is None:
            held = f"gradients and the optimizer's state take {need.fixed / GIGABYTE:.1f} GB"
            return f"training: train with --lora r=16 ({held}{room})"
    texts = _fewer_texts(settings, need, free)
    if texts < 1:
        return f"training: {_smaller_texts(settings)}"
    reason = f"batches of {pairs_of(settings)} pairs need about {at_once} at once{room}"
    if settings.gradient_cache is not None:
        reason = "half as many"
    more = (
        ""
        if settings.gradient_checkpointing
        else "; gradient_checkpointing=true trades speed for more"
    )
    return f"training: set gradient_cache={texts} ({reason}), or lower {_now(settings, TRAINING)}{more}"


def _fewer_texts(settings: TrainSettings, need: Need, free: float | None) -> int:
    """Texts per pass: as many as fit by estimate, and at most half of those that did not."""
    half = (settings.gradient_cache or pairs_of(settings)) // 2
    return half if free is None else min(half, need.texts_within(free) or half)


def _smaller_texts(settings: TrainSettings) -> str:
    """What is left where a pass has one text."""
    return f"lower {_now(settings, ['max_passage_length'])}, or set gradient_checkpointing=true, or use a smaller model"


def _smaller_batches(settings: TrainSettings) -> str:
    """Name what makes a batch smaller; where ``global_batch_size`` is given, that is what it is divided by."""
    others = _now(settings, TRAINING)
    trade = "gradient_checkpointing=true trades speed"
    if settings.global_batch_size is None:
        size = settings.per_device_train_batch_size
        kept = "gradient_accumulation_steps keeps a step's queries"
        return (
            f"training: lower per_device_train_batch_size (now {size}), {others}; {kept}, {trade}"
        )
    raised = f"raise gradient_accumulation_steps (now {settings.gradient_accumulation_steps})"
    return f"training: {raised}, which keeps global_batch_size={settings.global_batch_size}, or lower {others}; {trade}"


def _encoding_advice(settings: TrainSettings) -> str:
    now = settings.encode_batch_size
    if now == 1:
        return f"encoding texts: {_smaller_texts(settings)}"
    return f"encoding texts: set encode_batch_size={max(1, now // 4)} (now {now}), or lower {_now(settings, ENCODING)}"


def _now(settings: TrainSettings, names: Sequence[str]) -> str:
    values = settings.flat()
    return ", ".join(f"{name} (now {values[name]})" for name in names)
