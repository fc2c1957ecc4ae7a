"""Log the inputs and the settings of a run before it starts."""

from __future__ import annotations

import numpy as np

from opera.config.automatic import KINDS, automatic_rate, reason_for_steps
from opera.core.settings import resolved
from opera.core.terminal import counted, log, shown
from opera.data.qrels import TeacherScores
from opera.data.retrieval_data import counts_in_words
from opera.retrieval.device import describe_device
from opera.retrieval.locate import model_title, trained_queries
from opera.training.documents import DocumentPool
from opera.training.prepare import Prepared

RATE_WARNING = 50
"""Warn about a learning rate that exceeds this multiple of the automatic one."""


def announce(prepared: Prepared) -> None:
    """Log the inputs and settings of a run, with notes and warnings about them."""
    settings, device, data = (
        prepared.settings,
        prepared.model.encoder.device,
        prepared.data.with_splits.joined,
    )
    for note in data.notes:
        log.info("note: %s", note)
    log.info("%s: %s", data.name, counts_in_words(data.counts()))
    model = model_title(prepared.model.source)
    log.info(
        "model %s on %s, %s",
        *(model, describe_device(device), prepared.model.encoder.precision),
    )
    held_out = [qrels.query_rows for name, qrels in data.splits.items() if name != "train"]
    ids = data.queries.ids(np.concatenate([*held_out, np.empty(0, dtype=np.int64)]))
    if known := trained_queries(data, prepared.model.source, ids):
        log.warning(
            "warning: %s was trained on %d of the %d dev and test queries, so their scores are too "
            "high; train a model that has not seen them",
            *(model, known, len(ids)),
        )
    if changes := prepared.model.overridden:
        log.info(
            "note: the run uses %s, and saves it with the fine-tuned model; OPERA measures the "
            "base model with the settings of its folder, and with prompts that the folder lacks",
            ", ".join(
                f"{name} {shown(value)} (folder: {shown(folder_value)})"
                for name, (folder_value, value) in changes.items()
            ),
        )
    _announce_steps(prepared)
    if data.teacher is not None and len(data.teacher) and settings.loss == "distill":
        _announce_teacher(data.teacher, resolved(settings.temperature))


def _announce_steps(prepared: Prepared) -> None:
    """Log how long the training is, what its negatives are, and whether its rate is too high."""
    settings, data = prepared.settings, prepared.data.with_splits.joined
    log.info(
        "steps %d (%s), epochs %g, queries per step %d, learning rate %g, temperature %g; "
        "automatic values suit %s (opera train --help-settings)",
        settings.max_steps,
        reason_for_steps(prepared.user_recipe.train, prepared.situation),
        settings.epochs,
        settings.queries_per_step(prepared.processes),
        settings.learning_rate,
        settings.temperature,
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
