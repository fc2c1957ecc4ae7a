"""What a run says before it begins: its data, its model, and the settings that decide most."""

from __future__ import annotations

import logging

from opera.config.automatic import automatic_rate
from opera.config.optimisation import OptimisationSettings
from opera.config.presets import PRESET_LEARNING_RATE
from opera.core.settings import resolved
from opera.training.fit import listed_counts
from opera.training.session import Session
from opera.training_set.prepare import Prepared

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
    optimisation, queries = (
        prepared.settings.optimisation,
        prepared.settings.batching.queries_per_step(record.processes),
    )
    log.info(
        "steps %d, epochs %g, queries per step %d, learning rate %g, temperature %g",
        optimisation.max_steps,
        optimisation.epochs,
        queries,
        optimisation.learning_rate,
        optimisation.temperature,
    )
    _question_rate(optimisation, prepared)
    if (
        optimisation.preset
        and optimisation.learning_rate == PRESET_LEARNING_RATE
        and prepared.situation.model != "large"
    ):
        log.info("note: preset=%s is for bge-large-en-v1.5; give --lr with a smaller model", optimisation.preset)


def _question_rate(optimisation: OptimisationSettings, prepared: Prepared) -> None:
    """Warn of a learning rate far above what such a model trains with."""
    given, usual = resolved(optimisation.learning_rate), automatic_rate(prepared.situation)
    if given > FAR * usual:
        log.warning(
            "warning: learning_rate=%g is %.0f times the automatic %g of such a model, and may spoil it; is it meant?",
            given,
            given / usual,
            usual,
        )
