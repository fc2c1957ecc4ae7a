"""Settings of explicit negatives, and of which in-batch negatives count."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from opera.config.optimisation import MOST_AT_ONCE
from opera.config.ranks import DEFAULT_RANGE, RankRange
from opera.config.search_index import SearchIndex
from opera.core.paths import expand_user
from opera.core.registry import Registry
from opera.core.settings import OneOf, Settings, setting

NEGATIVES: Registry[Any] = Registry(
    "kind of negatives", shipped=("random", "hard", "given", "teacher")
)
"""Values of ``negatives``; :mod:`opera.training_set.negatives` defines them."""

NegativeKind = Annotated[str, OneOf(NEGATIVES)]


class NegativeSettings(Settings):
    """Explicit negatives, and which in-batch negatives count."""

    mask_known_positives: bool = setting(
        True,
        "leave a query's known positives out of its negatives; the paper has no such mask",
        "OPERA",
    )
    negatives: NegativeKind | None = setting(
        None,
        "explicit negatives: random from the corpus, hard (mined), given in the data, or those that a teacher scored; "
        "auto: given where the data has them, else random; with loss=distill teacher",
        "Table 9",
    )
    range: RankRange | None = setting(
        None,
        "ranks LO:HI of the pretrained ranking that hard negatives come from, 1 for the best, both ends included; the "
        "release's 100-1100 is 101:1100; auto: 10:100",
        "Table 9; paper.md, row 13",
    )
    mining_relative_margin: float | None = setting(
        None,
        "leave out mined documents more similar to the query than p - margin * |p|, p its least similar positive: they "
        "may be relevant without a label; 0.05 is NV-Retriever's; auto: none",
        "sentence-transformers",
        ge=0,
        le=2,
    )
    mining_absolute_margin: float | None = setting(
        None, "likewise above p - margin; auto: none", "sentence-transformers", ge=0, le=2
    )
    mining_max_score: float | None = setting(
        None, "likewise above this similarity; auto: none", "sentence-transformers", ge=-1, le=1
    )
    mining_reranker: (
        Annotated[str, AfterValidator(partial(expand_user, name="mining_reranker"))] | None
    ) = setting(
        None,
        "folder or hub id of a cross-encoder; leave out mined documents that it scores as high as the query's worst "
        "positive; auto: none",
        "OPERA",
    )
    search_index: SearchIndex = setting(
        "exact",
        "how hard negatives are searched for: exact, or approximately by FAISS's hnsw or ivf (extra faiss); evaluation "
        "is always exact",
        "OPERA",
    )
    max_mined_negatives: int = setting(
        200, "hard negatives kept per query", "the release", ge=1, le=MOST_AT_ONCE
    )
    prune_before_mining: bool = setting(
        False,
        "prune first (sp, sp+cbs, rp, sp+dp) and know only the kept positives from then on: a pruned positive may "
        "become a negative of its query, and mask_known_positives does not leave it out; true as in the release",
        "paper.md, row 12",
    )

    @model_validator(mode="after")
    def _belongs_to_hard_negatives(self) -> Self:
        for name in (
            "range",
            *(name for name in type(self).model_fields if name.startswith("mining_")),
            "search_index",
        ):
            value = getattr(self, name)
            if value not in (None, "exact") and self.negatives != "hard":
                written = ":".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(
                    f"{name}={written} needs negatives=hard, but negatives is {self.negatives or 'auto'}"
                )
        return self

    @property
    def mining_range(self) -> tuple[int, int]:
        """Ranks that hard negatives come from, 1-based, both ends included."""
        return self.range or DEFAULT_RANGE
