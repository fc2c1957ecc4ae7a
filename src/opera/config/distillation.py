"""Settings of distillation: learning from a teacher's scores."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from opera.core.paths import expand_user
from opera.core.settings import Settings, setting


class DistillationSettings(Settings):
    """Where a teacher's scores come from, and how ``loss=distill`` learns from them."""

    teacher_scores: (
        Annotated[str, AfterValidator(partial(expand_user, name="teacher_scores"))] | None
    ) = setting(
        None,
        "file of a teacher's scores that opera score wrote, .parquet, .tsv or .jsonl (--teacher); auto: those that "
        "came with the data, such as FlagEmbedding's pos_scores and neg_scores",
        "OPERA",
    )
    teacher_temperature: float | None = setting(
        None,
        "divides the teacher's scores in its softmax; auto: temperature for scores from -1 to 1, such as cosines, 1 "
        "for others, such as a reranker's",
        "OPERA",
        gt=0,
        le=1000,
    )
    distill_weight: float = setting(
        0.5,
        "share of the divergence from the teacher in the loss, the rest is InfoNCE: 0.5 weighs both as FlagEmbedding "
        "does, 1 leaves InfoNCE out",
        "FlagEmbedding",
        gt=0,
        le=1,
    )
