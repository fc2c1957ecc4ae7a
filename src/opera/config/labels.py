"""Settings of labels: which qrels count as relevant, and the label noise of experiments."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from opera.config.ranks import DEFAULT_RANGE, RankRange
from opera.core.arguments import MOST
from opera.core.settings import Settings, setting


class LabelSettings(Settings):
    """Which qrels count as relevant, and the label noise to inject for experiments."""

    relevant_grade: int = setting(
        1,
        "lowest grade in the qrels that counts as relevant, in every split",
        "BEIR",
        ge=1,
        le=MOST,
    )
    noise: Literal["none", "grade", "random", "hard"] = setting(
        "none",
        "false positives injected into the training pairs, for experiments: judged below relevant_grade, random "
        "documents, or hard ones from the pretrained ranking",
        "Section 3.5",
    )
    noise_grade: int | None = setting(
        None,
        "lowest grade injected by noise=grade (ANTIQUE: relevant_grade=3, noise_grade=2)",
        "Appendix C.4",
        ge=-MOST,
        le=MOST,
    )
    noise_share: float | None = setting(
        None,
        "share of the training pairs that are false after noise=random or hard",
        "OPERA",
        gt=0,
        le=0.95,
    )
    noise_range: RankRange | None = setting(
        None,
        "ranks LO:HI of the pretrained ranking that noise=hard comes from; auto: 10:100",
        "OPERA",
    )

    @model_validator(mode="after")
    def _noise_is_consistent(self) -> Self:
        for name, kinds in (
            ("noise_grade", ["grade"]),
            ("noise_share", ["random", "hard"]),
            ("noise_range", ["hard"]),
        ):
            value = getattr(self, name)
            if value is not None and self.noise not in kinds:
                shown = ":".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(
                    f"{name}={shown} needs noise={' or '.join(kinds)}, but noise is {self.noise}"
                )
            if value is None and self.noise in kinds and name != "noise_range":
                example = {"noise_grade": 2, "noise_share": 0.3}[name]
                raise ValueError(f"noise={self.noise} needs {name}, such as {name}={example}")
        if self.noise_grade is not None and self.noise_grade >= self.relevant_grade:
            raise ValueError(
                f"noise_grade={self.noise_grade} must be below relevant_grade={self.relevant_grade}, "
                "which such documents would meet"
            )
        return self

    @property
    def noise_ranks(self) -> tuple[int, int]:
        """Ranks that hard false positives come from, 1-based, both ends included."""
        return self.noise_range or DEFAULT_RANGE
