"""The state that the steps of a run share, the run's record, and what the log says at its start."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

from opera.config.automatic import KINDS, automatic_rate, reason_for_steps
from opera.config.training import FILES, TrainSettings
from opera.core.arguments import RUN_FILE, absolute_path
from opera.core.errors import TrainingError, is_out_of_memory
from opera.core.progress import duration
from opera.core.settings import resolved
from opera.core.terminal import counted, log, shown
from opera.data import Mixture
from opera.data.names import source_title, with_paths
from opera.data.placeholders import find_placeholders, placeholders_sentence
from opera.data.qrels import TeacherScores
from opera.data.retrieval_data import counts_in_words
from opera.data.splits import is_detail
from opera.retrieval.device import describe_device
from opera.retrieval.lengths import text_lengths
from opera.retrieval.locate import model_title, trained_queries
from opera.retrieval.models import lengths_of
from opera.retrieval.prompts import Role
from opera.run_folder.folder import TRIAL_FOLDER, RunWriter
from opera.run_folder.record import DataRecord, ModelRecord, RunRecord, SetRecord
from opera.training.documents import DocumentPool
from opera.training.prepare import Prepared

RECORDED_VERSIONS = (
    "opera-retrieval",
    "torch",
    "sentence-transformers",
    "transformers",
    "accelerate",
    "ir-measures",
    "numpy",
)

PHASES = {
    "load": "loading",
    "time": "timing a few steps",
    "encode": "encoding all texts for the adapter",
    "evaluate_dev": "measuring the base model on dev",
    "evaluate_before": "measuring the base model on test",
    "score_and_mine": "building the training set",
    TRIAL_FOLDER: "training without the dev queries",
    "choose_mixing_weight": "measuring mixtures of base and fine-tuned weights on dev",
    "train": "training",
    "compare_trainings": "comparing both trainings on dev",
    "evaluate_fine_tuned": "measuring the fine-tuned model on test",
    "evaluate_after": "measuring the final model on test",
    "review": "searching for missing labels",
}
"""What a run does in each phase, by the phase's name in ``run.json``."""


@dataclass
class Session:
    """The state that the steps of a run share.

    Attributes:
        prepared: data, model and settings.
        run: the run folder.
        started: ``time.perf_counter()`` at the start.
        resume: whether to continue an earlier session.
        callbacks: for the trainer: logging services and the user's callbacks.
        record: the content of ``run.json``.
        planned: the estimated seconds of the phases that have not begun, by name; empty if the run
            is too short to estimate.
        dev: the data with the documents that dev queries rank during training; ``None`` if the
            training does not evaluate on dev.
    """

    prepared: Prepared
    run: RunWriter
    started: float
    resume: bool
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]]
    record: RunRecord
    planned: dict[str, float] = field(default_factory=dict)
    dev: Mixture | None = None

    def update(self, **fields: Any) -> None:
        """Change fields of ``run.json`` and write the file."""
        self.record = self.record.model_copy(update=fields)
        self.run.write_json(RUN_FILE, self.record.model_dump())

    @contextmanager
    def phase(self, name: str, description: str | None = None) -> Iterator[None]:
        """Log a description, the run's time so far and the estimated time left; then time the
        block. The description is that of :data:`PHASES` unless the phase has several blocks.

        Raises:
            TrainingError: if memory runs out, with the settings to lower.
        """
        began = time.perf_counter()
        if name in self.planned:  # phases that the run has skipped take no time
            names = list(self.planned)
            self.planned = {later: self.planned[later] for later in names[names.index(name) :]}
        left = sum(self.planned.values())
        self.planned.pop(name, None)
        log.info(
            "%s (%s so far%s)",
            description or PHASES[name],
            duration(began - self.started),
            f", about {duration(left)} left" if left >= 1 else "",
        )
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                f"out of memory while {_memory_advice(name, self.prepared.settings)}; then start "
                "again with --overwrite"
            ) from error
        finally:  # also count the time of an interrupted session
            self.add_seconds(name, time.perf_counter() - began)

    def add_seconds(self, name: str, seconds: float) -> None:
        """Add seconds to a phase, which an earlier session may have begun."""
        totals = self.record.seconds
        totals[name] = round(totals.get(name, 0.0) + seconds, 3)


def _memory_advice(phase: str, settings: TrainSettings) -> str:
    """Return the settings that use memory in a phase, with their values."""
    length = f"max_passage_length (now {settings.max_passage_length})"
    if phase not in ("time", "train", TRIAL_FOLDER):
        return (
            f"encoding texts: lower per_device_eval_batch_size (now {settings.encode_batch_size}) "
            f"or {length}"
        )
    return (
        f"training: lower per_device_train_batch_size (now {settings.per_device_train_batch_size})"
        f", train_group_size (now {settings.train_group_size}) or {length}, or let a transformer "
        "train with gradient_cache=16, gradient_checkpointing=true or --lora r=16"
    )


def new_record(prepared: Prepared, folder: Path) -> RunRecord:
    """Return the record of a run that begins in a folder. Its paths do not depend on the current
    folder.
    """
    mixture, encoder = prepared.data.with_splits, prepared.model.encoder
    data = mixture.joined
    sources = [with_paths(data_set.source, absolute_path) for data_set in mixture.data_sets]
    return RunRecord(
        folder=str(folder.absolute()),
        status="running",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        identity=prepared.identity,
        data=DataRecord(
            source=sources[0] if mixture.is_single else " + ".join(map(source_title, sources)),
            fingerprint=data.fingerprint,
            counts=data.counts(),
            notes=list(data.notes),
        ),
        model=ModelRecord(
            source=model_title(prepared.model.source),
            fingerprint=encoder.fingerprint,
            parameters=prepared.model.n_parameters,
            head_of=prepared.settings.kind if prepared.model.has_new_head else None,
        ),
        device=describe_device(encoder.device),
        processes=prepared.processes,
        seed=prepared.settings.seed,
        settings=_settings_of(prepared),
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in RECORDED_VERSIONS},
        },
        seconds={},
        sets=None
        if mixture.is_single
        else [
            SetRecord(
                name=data_set.name,
                source=source,
                fingerprint=data_set.fingerprint,
                counts=data_set.counts(),
            )
            for data_set, source in zip(mixture.data_sets, sources, strict=True)
        ],
    )


def _settings_of(prepared: Prepared) -> dict[str, Any]:
    """Return all settings, with absolute paths, and with the values that model and data decide."""
    settings = prepared.recipe.flat()
    files = {
        name: list(map(absolute_path, value)) if isinstance(value, list) else absolute_path(value)
        for name in FILES
        if (value := settings[name])
    }
    encoder = prepared.model.encoder
    return {
        **settings,
        **files,
        "precision": encoder.precision,
        "negatives": prepared.data.negatives,
        **lengths_of(encoder.model),
        **prepared.model.prompts,
    }


RATE_WARNING = 50
"""Warn about a learning rate that exceeds this multiple of the automatic one."""


def announce(prepared: Prepared) -> None:
    """Log the inputs and settings of a run, with notes and warnings about them. Details go to the
    log file alone.
    """
    settings, device, data = (
        prepared.settings,
        prepared.model.encoder.device,
        prepared.data.with_splits.joined,
    )
    for note in data.notes:
        log.log(logging.DEBUG if is_detail(note) else logging.INFO, "note: %s", note)
    log.info("%s: %s", data.name, counts_in_words(data.counts()))
    model = model_title(prepared.model.source)
    log.info("%s on %s, %s", model, describe_device(device), prepared.model.encoder.precision)
    for data_set in prepared.data.with_splits.data_sets:
        if (sentence := placeholders_sentence(find_placeholders(data_set))) is not None:
            log.warning("warning: %s: %s", data_set.name, sentence)
    held_out = [qrels.query_rows for name, qrels in data.splits.items() if name != "train"]
    ids = data.queries.ids(np.concatenate([*held_out, np.empty(0, dtype=np.int64)]))
    if known := trained_queries(data, prepared.model.source, ids):
        log.warning(
            "warning: %s was trained on %d of the %d dev and test queries, so their scores are too "
            "high; train a model that has not seen them",
            *(model, known, len(ids)),
        )
    if changes := prepared.model.overridden:
        log.debug(
            "note: the run uses %s, and saves it with the fine-tuned model; OPERA measures the "
            "base model with the settings of its folder, and with prompts that the folder lacks",
            ", ".join(
                f"{name} {shown(value)} (folder: {shown(folder_value)})"
                for name, (folder_value, value) in changes.items()
            ),
        )
    _announce_steps(prepared)
    if settings.query_vectors is None:
        _announce_lengths(prepared)
    if data.teacher is not None and len(data.teacher) and settings.loss == "distill":
        _announce_teacher(data.teacher, resolved(settings.temperature))


def _announce_lengths(prepared: Prepared) -> None:
    """Log once into how many passages the documents are split, and how much of the texts the model
    does not read, if that is more than a little.
    """
    settings, data = prepared.settings, prepared.data.with_splits.joined
    if (passages := prepared.model.base_as_saved.passages(data)) is not None:
        documents = counted(len(data.corpus), "document")
        log.info("note: split %s into %s", documents, counted(len(passages.table), "passage"))
    limits: dict[Role, int] = {
        "query": settings.max_query_length,
        "document": settings.max_passage_length,
    }
    for role, limit in limits.items():
        text = settings.corpus_text if role == "document" else "text"
        lengths = text_lengths(
            prepared.model.base_as_saved,
            data,
            role,
            limit,
            text,
            may_split=settings.adapter_kind is None,
        )
        if lengths is not None and lengths.advice is not None:
            log.info("note: %s; %s", lengths.sentence, lengths.advice)


def _announce_steps(prepared: Prepared) -> None:
    """Log how long the training is, what its negatives are, and whether its rate is too high."""
    settings, data = prepared.settings, prepared.data.with_splits.joined
    log.info(
        "%s: %d steps of %d queries (%.3g epochs), learning rate %g, temperature %g",
        prepared.recipe.method,
        settings.max_steps,
        settings.queries_per_step(prepared.processes),
        settings.epochs,
        settings.learning_rate,
        settings.temperature,
    )
    log.debug(
        "number of steps: %s; automatic values suit %s (opera train --help-settings)",
        reason_for_steps(prepared.user_recipe.train, prepared.situation),
        KINDS[prepared.situation.model],
    )
    if (
        prepared.data.negatives == "labelled"
        and settings.negatives is None
        and (
            others := DocumentPool.of(data, settings.corpus_text).others(
                data.training_split().doc_rows
            )
        )
    ):
        log.info(
            "note: the random negatives leave out %s without a training pair; the training would "
            "draw each %.0f times, and teach the model that they are never the answer",
            counted(others, "document"),
            settings.draws_per_document(len(data.corpus), prepared.processes),
        )
    rate, usual = resolved(settings.learning_rate), automatic_rate(prepared.situation)
    if rate > RATE_WARNING * usual:
        log.warning(
            "warning: learning_rate=%g is probably too high: %.0f times the automatic %g for such "
            "a model",
            *(rate, rate / usual, usual),
        )


def _announce_teacher(teacher: TeacherScores, temperature: float) -> None:
    """Log how the loss reads a teacher's scores."""
    cosines = teacher.are_cosines
    log.info(
        "note: the teacher's temperature is %g: its scores range from %.3g to %.3g, so OPERA "
        "takes them for %s; if they are probabilities, pass logits instead",
        temperature if cosines else 1.0,
        teacher.scores.min(),
        teacher.scores.max(),
        "cosines, with the student's temperature" if cosines else "logits",
    )
