"""Every setting of a training run that is not its method's, in groups; users see one flat list of names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ValidationError, model_validator
from pydantic.fields import FieldInfo

from opera.config.distillation import DistillationSettings
from opera.config.encoding import EncodingSettings
from opera.config.evaluation import EvaluationSettings, GuardSettings
from opera.config.lora import LoraOptions, LoraText, lora_options
from opera.config.mixing import MixingSettings
from opera.config.optimisation import MOST_AT_ONCE, BatchingSettings, OptimisationSettings
from opera.config.optional import SERVICES, check_known
from opera.config.trainer_arguments import WITHOUT_EFFECT, TrainerFields
from opera.config.weights import WeightSettings
from opera.core.arguments import MOST
from opera.core.errors import SettingError
from opera.core.paths import expand_user
from opera.core.registry import Registry
from opera.core.settings import OneOf, SettingDoc, Settings, explain, resolved, setting, unknown_setting

DEFAULT_RANGE = (10, 100)
"""Ranks that hard negatives and hard false positives come from by default."""

NEGATIVES: Registry[Any] = Registry("kind of negatives", shipped=("random", "hard", "given", "teacher"))
"""Values of ``negatives``; :mod:`opera.training_set.negatives` defines them."""


_RANK = re.compile(r" *\d{1,10} *", re.ASCII)


def _parse_range(value: Any) -> Any:
    """Read ``LO:HI`` as a pair of ranks."""
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        if not (colon and _RANK.fullmatch(low) and _RANK.fullmatch(high)):
            raise ValueError("must be LO:HI, two ranks such as 10:100")
        value = (int(low), int(high))
    if isinstance(value, tuple | list) and len(value) == 2 and all(type(v) is int for v in value):
        if not 1 <= value[0] <= value[1] <= MOST:
            raise ValueError("must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included)")
        return tuple(value)
    raise ValueError("must be LO:HI, two ranks such as 10:100")


RankRange = Annotated[tuple[int, int], BeforeValidator(_parse_range)]
NegativeKind = Annotated[str, OneOf(NEGATIVES)]
Service = Annotated[str, AfterValidator(partial(check_known, known=SERVICES, kind="a logging service"))]


class AdapterSettings(Settings):
    """What trains instead of the whole model: a residual projection over frozen vectors, or LoRA's matrices."""

    adapter: Literal["query", "both"] | None = setting(
        None,
        "train a projection over frozen vectors instead of the model (--adapter): of queries, so that an index of "
        "documents stays valid, or of both sides; auto: query with query_vectors, else none",
        "OPERA",
    )
    adapter_rank: int | None = setting(None, "rank of the projection; auto: full", "OPERA", ge=1, le=MOST_AT_ONCE)
    query_vectors: Annotated[str, AfterValidator(partial(expand_user, name="query_vectors"))] | None = setting(
        None,
        "file of the queries' vectors, .npy or .parquet, for a model that cannot be loaded (--query-vectors)",
        "OPERA",
    )
    document_vectors: Annotated[str, AfterValidator(partial(expand_user, name="document_vectors"))] | None = setting(
        None, "file of the documents' vectors, likewise (--document-vectors)", "OPERA"
    )

    lora: LoraText | None = setting(
        None,
        "train matrices of rank r beside the frozen weights of a transformer (--lora r=16); more options after commas: "
        "alpha=32 (auto: 2 r), dropout=0.05, target=query;value (auto: all-linear), and merge=false, which saves the "
        "matrices by themselves; auto: none",
        "arXiv:2106.09685",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.lora is not None and self.kind is not None:
            raise ValueError(f"lora: with adapter={self.kind} the model itself does not train; give one of them")
        if (self.query_vectors is None) != (self.document_vectors is None):
            given, absent = ("query", "document") if self.query_vectors else ("document", "query")
            raise ValueError(f"{given}_vectors needs {absent}_vectors: give both files")
        if self.adapter_rank is not None and self.kind is None:
            raise ValueError(f"adapter_rank={self.adapter_rank} needs adapter=query or adapter=both")
        return self

    @property
    def kind(self) -> Literal["query", "both"] | None:
        """Which side is projected; ``None`` where the whole model trains."""
        return self.adapter or ("query" if self.query_vectors else None)

    @property
    def lora_options(self) -> LoraOptions | None:
        """The options of LoRA; ``None`` where the weights themselves train."""
        return None if self.lora is None else lora_options(self.lora)


class NegativeSettings(Settings):
    """Explicit negatives, and which in-batch negatives count."""

    mask_known_positives: bool = setting(
        True, "leave a query's known positives out of its negatives; the paper has no such mask", "OPERA"
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
    mining_reranker: Annotated[str, AfterValidator(partial(expand_user, name="mining_reranker"))] | None = setting(
        None,
        "folder or hub id of a cross-encoder; leave out mined documents that it scores as high as the query's worst "
        "positive; auto: none",
        "OPERA",
    )
    max_mined_negatives: int = setting(200, "hard negatives kept per query", "the release", ge=1, le=MOST_AT_ONCE)
    prune_before_mining: bool = setting(
        False,
        "prune first (sp, sp+cbs, rp, sp+dp) and know only the kept positives from then on: a pruned positive may "
        "become a negative of its query, and mask_known_positives does not leave it out; true as in the release",
        "paper.md, row 12",
    )

    @model_validator(mode="after")
    def _range_needs_hard_negatives(self) -> Self:
        if self.range is not None and self.negatives != "hard":
            negatives = self.negatives or "auto"
            raise ValueError(
                f"range={self.range[0]}:{self.range[1]} needs negatives=hard, but negatives is {negatives}"
            )
        return self

    @model_validator(mode="after")
    def _mining_needs_hard_negatives(self) -> Self:
        for name in ("mining_relative_margin", "mining_absolute_margin", "mining_max_score", "mining_reranker"):
            value = getattr(self, name)
            if value is not None and self.negatives != "hard":
                raise ValueError(f"{name}={value} needs negatives=hard, but negatives is {self.negatives or 'auto'}")
        return self

    @property
    def mining_range(self) -> tuple[int, int]:
        """Ranks that hard negatives come from, 1-based, both ends included."""
        return self.range or DEFAULT_RANGE


class LabelSettings(Settings):
    """Which qrels count as relevant, and the label noise to inject for experiments."""

    relevant_grade: int = setting(
        1, "lowest grade in the qrels that counts as relevant, in every split", "BEIR", ge=1, le=MOST
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
        None, "share of the training pairs that are false after noise=random or hard", "OPERA", gt=0, le=0.95
    )
    noise_range: RankRange | None = setting(
        None, "ranks LO:HI of the pretrained ranking that noise=hard comes from; auto: 10:100", "OPERA"
    )

    @model_validator(mode="after")
    def _noise_is_consistent(self) -> Self:
        for name, kinds in (("noise_grade", ["grade"]), ("noise_share", ["random", "hard"]), ("noise_range", ["hard"])):
            value = getattr(self, name)
            if value is not None and self.noise not in kinds:
                shown = ":".join(map(str, value)) if isinstance(value, tuple) else value
                raise ValueError(f"{name}={shown} needs noise={' or '.join(kinds)}, but noise is {self.noise}")
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


class LoggingSettings(Settings):
    """What a run logs and saves on its way."""

    logging_steps: int = setting(10, "steps between two log lines", "transformers", effect=False, ge=1, le=MOST)
    report_to: Service = setting(
        "none", "where transformers logs to: none, tensorboard, wandb, ...", "transformers", effect=False
    )
    save_steps: int | None = setting(
        None,
        "steps between two checkpoints; auto: a tenth of max_steps, at most 500",
        "OPERA",
        effect=False,
        ge=1,
        le=MOST,
    )
    save_total_limit: int = setting(2, "checkpoints kept", "transformers", effect=False, ge=2, le=MOST)
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


class TrainSettings(Settings):
    """All settings of a run but its method's: groups inside, one flat list of names outside.

    Attributes:
        optimisation: the loss and the optimizer.
        distillation: a teacher's scores, and how ``loss=distill`` learns from them.
        batching: the size of a batch, and how it is loaded.
        encoding: how the model reads texts.
        adapter: what trains instead of the whole model.
        negative_sampling: explicit negatives, and which in-batch negatives count.
        labels: which qrels count as relevant, and injected label noise.
        weights: what weights of pairs are used for.
        mixing: how several data sets are drawn in one run.
        evaluation: evaluation during training, and drawn splits.
        guard: how the share of the fine-tuned weights is chosen.
        logging: what a run logs and saves on its way.
    """

    optimisation: OptimisationSettings = OptimisationSettings()
    distillation: DistillationSettings = DistillationSettings()
    batching: BatchingSettings = BatchingSettings()
    encoding: EncodingSettings = EncodingSettings()
    adapter: AdapterSettings = AdapterSettings()
    negative_sampling: NegativeSettings = NegativeSettings()
    labels: LabelSettings = LabelSettings()
    weights: WeightSettings = WeightSettings()
    mixing: MixingSettings = MixingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    guard: GuardSettings = GuardSettings()
    logging: LoggingSettings = LoggingSettings()

    group_of: ClassVar[dict[str, str]]
    """The group of each setting, by its flat name."""
    flat_fields: ClassVar[dict[str, FieldInfo]]
    """The declaration of each setting, by its flat name."""

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> tuple[Self, list[str]]:
        """Build the groups from flat values.

        Returns:
            The settings, with defaults for a group that has mistakes; and every mistake, a sentence each.
        """
        mistakes = [unknown_setting(name, cls.flat_fields) for name in values if name not in cls.flat_fields]
        groups = {}
        for name, field in cls.model_fields.items():
            group: type[Settings] = field.annotation  # type: ignore[assignment]
            try:
                groups[name] = group(**{key: value for key, value in values.items() if key in group.model_fields})
            except ValidationError as error:
                mistakes += explain(error, group.model_fields)
        return cls(**groups), mistakes

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Build the groups from flat values.

        Raises:
            SettingError: naming every unknown name and every value that breaks its rule.
        """
        settings, mistakes = cls.from_flat(values)
        if mistakes:
            raise SettingError(*mistakes)
        return settings

    @classmethod
    def docs_by_group(cls) -> dict[str, list[SettingDoc]]:
        """Describe each setting, by group."""
        return {name: field.annotation.docs() for name, field in cls.model_fields.items()}  # type: ignore[union-attr]

    @classmethod
    def group_class(cls, name: str) -> type[Settings]:
        """The group that a setting belongs to, by the setting's flat name."""
        group: type[Settings] = cls.model_fields[cls.group_of[name]].annotation  # type: ignore[assignment]
        return group

    @classmethod
    def with_effect(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out the settings that change no result, fields of the trainer among them."""
        kept = {name: value for name, value in values.items() if name not in cls.without_effect()}
        fields = {name: value for name, value in (kept.get("trainer") or {}).items() if name not in WITHOUT_EFFECT}
        return {**kept, "trainer": fields or None} if "trainer" in kept else kept

    @classmethod
    def without_effect(cls) -> set[str]:
        """The settings that change no result, and so are no part of a run's identity."""
        return {name for name, field in cls.flat_fields.items() if not (field.json_schema_extra or {})["effect"]}  # type: ignore[index]

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Replace settings by their flat names. The values are taken as they are, contradictions among them."""
        groups = {name: getattr(self, name) for name in {self.group_of[name] for name in values}}
        return self.model_copy(
            update={
                name: group.model_copy(update={key: values[key] for key in values if self.group_of[key] == name})
                for name, group in groups.items()
            }
        )

    def flat(self) -> dict[str, Any]:
        """All settings by their flat names."""
        return {name: getattr(getattr(self, group), name) for name, group in self.group_of.items()}

    @property
    def needs_dev(self) -> bool:
        """Whether the run uses the dev split, during training or after it."""
        return self.evaluation.needs_dev or self.guard.guard

    @property
    def steps_between_checkpoints(self) -> int:
        """``save_steps``, or its automatic value; with ``load_best_model_at_end`` every evaluation is saved."""
        if self.evaluation.load_best_model_at_end and self.evaluation.eval_steps is not None:
            return self.evaluation.eval_steps
        return self.logging.save_steps or min(500, max(1, resolved(self.optimisation.max_steps) // 10))


_FLAT = {
    setting_name: (group_name, declaration)
    for group_name, group_field in TrainSettings.model_fields.items()
    for setting_name, declaration in group_field.annotation.model_fields.items()  # type: ignore[union-attr]
}
TrainSettings.group_of = {name: group for name, (group, _) in _FLAT.items()}
TrainSettings.flat_fields = {name: declaration for name, (_, declaration) in _FLAT.items()}
