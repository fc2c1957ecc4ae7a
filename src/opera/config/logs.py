"""Settings of what a run logs and saves on its way, and the other fields of the trainer."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from opera.config.optimisation import MOST_AT_ONCE
from opera.config.optional import SERVICES, check_known
from opera.config.trainer_arguments import TrainerFields
from opera.core.arguments import MOST
from opera.core.settings import Settings, setting

Service = Annotated[
    str, AfterValidator(partial(check_known, known=SERVICES, kind="a logging service"))
]


class LoggingSettings(Settings):
    """What a run logs and saves on its way."""

    logging_steps: int = setting(
        10, "steps between two log lines", "transformers", effect=False, ge=1, le=MOST
    )
    report_to: Service = setting(
        "none",
        "where transformers logs to: none, tensorboard, wandb, ...",
        "transformers",
        effect=False,
    )
    save_steps: int | None = setting(
        None,
        "steps between two checkpoints; auto: a tenth of max_steps, at most 500",
        "OPERA",
        effect=False,
        ge=1,
        le=MOST,
    )
    save_total_limit: int = setting(
        2, "checkpoints kept", "transformers", effect=False, ge=2, le=MOST
    )
    trainer: TrainerFields | None = setting(
        None,
        "other fields of sentence-transformers' training arguments, by name (--trainer adam_beta2=0.98, repeatable); "
        "auto: none",
        "sentence-transformers",
    )
    snapshots: int = setting(
        50,
        "steps at which all sampling probabilities are recorded for opera report, at most every fifth step; "
        "0 records none",
        "OPERA",
        ge=0,
        le=MOST_AT_ONCE,
    )
