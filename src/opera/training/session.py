"""One call of ``opera.adapt``: what its phases share, the clock, and the record of how far it is."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from transformers import TrainerCallback

from opera.retrieval.device import describe_device
from opera.runs.folder import Run, RunWriter
from opera.runs.record import DataRecord, ModelRecord, RunRecord, SetRecord
from opera.training.clock import Clock
from opera.training.memory import memory_advice
from opera.training.services import Services
from opera.training_set.prepare import Prepared

log = logging.getLogger("opera")

RECORDED_VERSIONS = (
    "opera-retrieval",
    "torch",
    "sentence-transformers",
    "transformers",
    "accelerate",
    "ir-measures",
    "numpy",
)


@dataclass
class Session:
    """What the phases of a run share.

    Attributes:
        prepared: data, model and settings.
        run: the run folder.
        clock: seconds of each phase.
        resume: whether an earlier session is continued.
        callbacks: additional transformers callbacks for the trainer.
        services: the logging services.
        record: what ``run.json`` holds.
    """

    prepared: Prepared
    run: RunWriter
    clock: Clock
    resume: bool
    callbacks: Sequence[TrainerCallback]
    services: Services
    record: RunRecord

    @classmethod
    def start(
        cls,
        prepared: Prepared,
        run: RunWriter,
        clock: Clock,
        resume: bool,
        callbacks: Sequence[TrainerCallback],
        services: Services,
    ) -> Session:
        """Write the first ``run.json``, or take over the start, the seconds and the guard of an earlier one."""
        record = _new_record(prepared, clock)
        if resume:
            earlier = Run.open(run.path).record
            clock.add(earlier.seconds)
            record = record.model_copy(update={"started": earlier.started, "guard": earlier.guard})
        session = cls(prepared, run, clock, resume, callbacks, services, record)
        session.update()
        return session

    def update(self, **fields: Any) -> None:
        """Change fields of ``run.json`` and write it, with the seconds so far."""
        self.record = self.record.model_copy(update={**fields, "seconds": dict(self.clock.seconds)})
        self.run.write_record(self.record)

    @contextmanager
    def phase(self, name: str, what: str) -> Iterator[None]:
        """Log what happens now and how long the run has taken, and time the block.

        Raises:
            TrainingError: if memory runs out; it says which settings to lower.
        """
        prepared = self.prepared
        log.info("%s (%.0f s so far)", what, self.clock.elapsed)
        with self.clock.phase(name), memory_advice(name, prepared.settings, prepared.model):
            yield


def _new_record(prepared: Prepared, clock: Clock) -> RunRecord:
    data, encoder = prepared.data, prepared.encoder
    resolved = {
        "precision": encoder.precision,
        "negatives": prepared.negatives,
        **prepared.lengths,
        **prepared.prompts,
    }
    return RunRecord(
        status="running",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        identity=prepared.identity,
        data=DataRecord(
            source=data.source,
            fingerprint=data.fingerprint,
            counts=data.counts(),
            notes=list(data.notes),
        ),
        model=ModelRecord(
            source=prepared.model_source,
            fingerprint=encoder.fingerprint,
            parameters=prepared.n_parameters,
        ),
        device=describe_device(encoder.device),
        processes=prepared.processes,
        seed=prepared.settings.seed,
        settings={**prepared.recipe.flat(), **resolved},
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in RECORDED_VERSIONS},
        },
        seconds=dict(clock.seconds),
        sets=[
            SetRecord(
                name=own.name,
                source=own.source,
                fingerprint=own.fingerprint,
                counts=own.counts(),
            )
            for own in data.sets
        ]
        or None,
    )
