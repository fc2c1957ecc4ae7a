"""What a run says before it begins: its data, its model, and the settings that decide most."""

from __future__ import annotations

import logging

import numpy as np

from opera.config.automatic import automatic_rate
from opera.config.presets import PRESET_LEARNING_RATE
from opera.core.settings import resolved
from opera.data.combined import each_set
from opera.methods.mixed import Mixture
from opera.training.fit import listed_counts
from opera.training.session import Session
from opera.training_set.mixing import shares_of
from opera.training_set.prepare import Prepared, is_cosines

log = logging.getLogger("opera")

FAR = 50
"""How many times the automatic learning rate is questioned."""


def announce(session: Session) -> None:
    """Log the inputs of a run, and what is doubtful about them."""
    prepared, record = session.prepared, session.record
    for note in prepared.data.notes:
        log.info("note: %s", note)
    log.info("%s: %s", prepared.data.name, listed_counts(prepared.data.counts()))
    log.info("model %s on %s, %s", record.model.source, record.device, prepared.encoder.precision)
    settings = prepared.settings
    queries = settings.queries_per_step(record.processes)
    log.info(
        "steps %d, epochs %g, queries per step %d, learning rate %g, temperature %g",
        settings.max_steps,
        settings.epochs,
        queries,
        settings.learning_rate,
        settings.temperature,
    )
    _question_rate(prepared)
    _note_repeats(prepared, queries)
    _note_teacher_temperature(prepared)
    if (
        settings.preset
        and settings.learning_rate == PRESET_LEARNING_RATE
        and prepared.situation.model != "large"
    ):
        log.info(
            "note: preset=%s is for bge-large-en-v1.5; give --lr with a smaller model",
            settings.preset,
        )


def _question_rate(prepared: Prepared) -> None:
    """Warn of a learning rate far above what such a model trains with."""
    given = resolved(prepared.settings.learning_rate)
    usual = automatic_rate(prepared.situation)
    if given > FAR * usual:
        log.warning(
            "warning: learning_rate=%g is %.0f times the automatic %g of such a model, and may spoil it; is it meant?",
            given,
            given / usual,
            usual,
        )


def _note_repeats(prepared: Prepared, queries_per_step: int) -> None:
    """Note each data set that gives more pairs to a step than it has queries."""
    settings, sets = prepared.settings, each_set(prepared.data)
    splits = [own.training_split() for own in sets]
    shares = shares_of(prepared.data, [len(train.doc_rows) for train in splits], settings)
    mixture = Mixture(np.empty(0, dtype=np.int64), shares, settings.one_set_per_step)
    for own, train, count in zip(
        sets, splits, mixture.largest(queries_per_step).tolist(), strict=True
    ):
        if count > train.n_queries:
            log.info(
                "note: %s: gives up to %d pairs to a step and has %d training queries, so a batch holds queries more "
                "than once; smaller batches do not (--batch-size)",
                *(own.name, count, train.n_queries),
            )


def _note_teacher_temperature(prepared: Prepared) -> None:
    """Note how an automatic ``teacher_temperature`` came out, and why."""
    teacher, given = prepared.data.teacher, prepared.given.train.teacher_temperature
    if (
        teacher is None
        or len(teacher) == 0
        or given is not None
        or prepared.settings.loss != "distill"
    ):
        return
    low, high = float(teacher.scores.min()), float(teacher.scores.max())
    cosines = is_cosines(teacher)
    log.info(
        "note: teacher_temperature=%g: the teacher's scores are from %.3g to %.3g, %s%s",
        resolved(prepared.settings.teacher_temperature),
        low,
        high,
        "so they count as cosines and get the student's temperature"
        if cosines
        else "so they are no cosines",
        "; if they are probabilities, such as a sigmoid's, set teacher_temperature"
        if cosines and low >= 0
        else "",
    )
