"""Settings of the training set: negatives, labels, weights, several data sets."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from opera.core.arguments import MOST, expand_paths, expand_user
from opera.core.registry import Registry
from opera.core.settings import OneOf, Settings, setting

DEFAULT_RANGE = (10, 100)
"""The default ranks of hard negatives and hard false positives."""
KEEP = "maximum number of mined negatives per query"


def _parse_range(value: Any) -> Any:
    """Read ``LO:HI`` as a pair of ranks."""
    if isinstance(value, str) and (
        match := re.fullmatch(r" *(\d{1,10}) *: *(\d{1,10}) *", value, re.ASCII)
    ):
        value = (int(match[1]), int(match[2]))
    if isinstance(value, tuple | list) and len(value) == 2 and all(type(v) is int for v in value):
        if not 1 <= value[0] <= value[1] <= MOST:
            raise ValueError(
                "must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included)"
            )
        return tuple(value)
    raise ValueError("must be LO:HI, two ranks such as 10:100")


NEGATIVES: Registry[Any] = Registry(
    "kind of negatives", shipped=("none", "random", "labelled", "hard", "given", "teacher")
)
"""Values of ``negatives``; :mod:`opera.training.negatives` defines them."""
RANDOM_KINDS = ("random", "labelled")
"""Kinds with which a document can be compared with random documents."""


class MiningSettings(Settings):
    """Which documents of a ranking become hard negatives, in training and in ``opera mine``."""

    range: Annotated[tuple[int, int], BeforeValidator(_parse_range)] | None = setting(
        None,
        "ranks LO:HI of the model's ranking to mine hard negatives from; 1 is the best, both ends "
        "are included; the release's 100-1100 is 101:1100; auto: 10:100",
        "Table 9; erratum 13",
        flag="--range",
    )
    keep: int = setting(15, KEEP, "FlagEmbedding", ge=1, le=MOST)
    relative_margin: float | None = setting(
        None,
        "leave out mined documents more similar to the query than p - margin * |p|, where p is its "
        "least similar positive: they may be relevant without a label; NV-Retriever uses 0.05; "
        "auto: none",
        "sentence-transformers",
        ge=0,
        le=2,
    )
    absolute_margin: float | None = setting(
        None,
        "leave out mined documents more similar to the query than p - margin; auto: none",
        "sentence-transformers",
        ge=0,
        le=2,
    )
    max_score: float | None = setting(
        None,
        "leave out mined documents more similar to the query than this; auto: none",
        "sentence-transformers",
        ge=-1,
        le=1,
    )
    reranker: Annotated[str, AfterValidator(partial(expand_user, name="reranker"))] | None = (
        setting(
            None,
            "cross-encoder: leave out mined documents that it scores as high as a positive; auto: "
            "none",
            "OPERA",
        )
    )

    @property
    def ranks(self) -> tuple[int, int]:
        """The range, or its automatic value."""
        return self.range or DEFAULT_RANGE


class NegativeSettings(MiningSettings):
    """Explicit negatives, and which in-batch negatives count."""

    keep: int = setting(200, KEEP, "the release", ge=1, le=MOST)
    mask_known_positives: bool = setting(
        True,
        "exclude a query's known positives from its negatives; the paper has no such mask",
        "OPERA",
    )
    negatives: Annotated[str, OneOf(NEGATIVES)] | None = setting(
        None,
        "explicit negatives: none, random (from the corpus), labelled (random documents that have "
        "a training pair), hard (mined), given (in the data) or teacher (scored by a teacher); "
        "auto: given if the data has them, else random, or labelled if the run would draw each "
        "document more than 15 times; with loss=distill: those with teacher scores",
        "Table 9",
        flag="--negatives",
    )
    train_group_size: int = setting(
        2,
        "documents per query in a batch: one positive, the rest negatives",
        "FlagEmbedding",
        ge=1,
        le=1000,
    )
    prune_before_mining: bool = setting(
        False,
        "prune (sp, sp+cbs, rp, sp+dp) before mining and forget the pruned positives: they may "
        "become negatives of their queries, and mask_known_positives does not exclude them; the "
        "release does so",
        "erratum 12",
    )

    @property
    def n_negatives(self) -> int:
        """Explicit negatives per query."""
        return 0 if self.negatives == "none" else self.train_group_size - 1

    @model_validator(mode="after")
    def _mining_needs_hard_negatives(self) -> Self:
        for name in MiningSettings.model_fields:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default and self.negatives != "hard":
                value_text = ":".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(
                    f"{name}={value_text} needs negatives=hard, but negatives is "
                    f"{self.negatives or 'auto'}"
                )
        return self


class LabelSettings(Settings):
    """Which grades count as relevant, and decisions about labels."""

    relevant_grade: int = setting(
        1,
        "lowest grade that counts as relevant, in every split",
        "BEIR",
        ge=1,
        le=MOST,
    )
    decisions: (
        Annotated[tuple[str, ...], BeforeValidator(partial(expand_paths, name="decisions"))] | None
    ) = setting(
        None,
        "tables from opera review with query_id, doc_id and decision (wrong, correct, missing); "
        "all pairs of a run's suspicious_pairs.csv are wrong",
        "docs/noisy-labels.md",
        flag="--decisions",
    )


class WeightSettings(Settings):
    """How training uses the weights that come with the data."""

    pair_weights: Literal["none", "loss"] = setting(
        "none",
        "use of the weights in the data: none; loss multiplies a pair's loss by its weight, "
        "divided by the mean weight",
        "docs/data.md",
    )


def _check_mix(value: str) -> str:
    """Check the form of ``mix``. Only the data can tell whether its names exist."""
    if value not in ("proportional", "equal"):
        shares_by_name(value)
    return value


def shares_by_name(mix: str) -> dict[str, float]:
    """Parse ``NAME=SHARE,NAME=SHARE``.

    Raises:
        ValueError: if the text has another form.
    """
    assignments = re.findall(r"(?:^|,) *([^,]+)=([0-9.eE+-]+) *(?=,|$)", mix)
    try:
        shares = {name: float(number) for name, number in assignments}
    except ValueError:
        shares = {}
    are_positive = all(0 < share < math.inf for share in shares.values())
    if len(shares) != mix.count(",") + 1 or not are_positive:
        raise ValueError(
            "must be proportional, equal, or NAME=SHARE,... with shares above 0, such as "
            "nfcorpus=2,scifact=1"
        )
    return shares


class MixingSettings(Settings):
    """How a run samples from several data sets."""

    mix: Annotated[str, AfterValidator(_check_mix)] = setting(
        "proportional",
        "how often a run samples each of several data sets: proportional to its training pairs, "
        "equal, or by shares, NAME=2,NAME=1",
        "OPERA",
        flag="--mix",
    )
    one_set_per_step: bool = setting(
        False,
        "sample all pairs of a step from one data set, so that in-batch negatives come from it",
        "FlagEmbedding",
    )
