"""All settings of a training run: declared once here, read from YAML, the command line or Python."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, TypeAdapter, ValidationError, model_validator

from opera.core.errors import SettingError
from opera.core.settings import SettingDoc, Settings, explain, setting, unknown_setting
from opera.methods import METHODS, method_named


def _parse_range(value: Any) -> Any:
    """Read ``LO:HI`` as a pair of ranks."""
    if isinstance(value, str):
        low, colon, high = value.partition(":")
        if not (colon and low.strip().isdigit() and high.strip().isdigit()):
            raise ValueError("must be LO:HI, two ranks such as 10:100")
        value = (int(low), int(high))
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, int) for v in value):
        if not 1 <= value[0] <= value[1]:
            raise ValueError("must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included)")
        return tuple(value)
    raise ValueError("must be LO:HI, two ranks such as 10:100")


def _as_given(value: Any) -> str:
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


PREFETCHED = 2
"""Batches that each worker of the loader reads ahead."""

ARGUMENTS = ("data", "model", "out", "resume", "overwrite", "callbacks", "config")
"""What a run is told beside its settings."""

ALIASES = {"steps": "max_steps", "batch_size": "per_device_train_batch_size", "lr": "learning_rate"}
"""The short names of the command line's options, good in Python and YAML too."""

RankRange = Annotated[tuple[int, int], BeforeValidator(_parse_range)]


class TrainSettings(Settings):
    """Settings of a run, apart from those of its method. Names follow transformers and FlagEmbedding."""

    max_steps: int = setting(1000, "optimizer steps (--steps)", "OPERA", ge=1)
    per_device_train_batch_size: int = setting(
        64, "queries a step and device (--batch-size)", "Appendix C.2 (8 on each of 8 devices)", ge=1
    )
    gradient_accumulation_steps: int = setting(1, "batches an optimizer step", "transformers", ge=1)
    learning_rate: float | None = setting(
        None,
        "peak rate (--lr); auto: 1e-2 for a static model, 1e-4 below 50M parameters, 2e-5 above",
        "OPERA (the paper: 1e-6 for bge-large over 32,000 steps)",
        gt=0,
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"] = setting(
        "linear", "how the rate falls after warm-up", "Appendix C.2"
    )
    warmup_ratio: float = setting(0.0, "share of the steps spent warming up", "Appendix C.2", ge=0, lt=1)
    weight_decay: float = setting(0.0, "AdamW's weight decay", "Appendix C.2", ge=0)
    max_grad_norm: float = setting(1.0, "gradient norm to clip at; 0 turns clipping off", "Appendix C.2", ge=0)
    optim: str = setting("adamw_torch", "optimizer, by its name in transformers", "transformers")
    gradient_checkpointing: bool = setting(False, "trade speed for memory", "transformers")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto", "autocast in training and encoding; auto: bf16 where the device computes in it", "OPERA"
    )
    dropout: float | None = setting(None, "dropout rate in training; auto: the model's own", "OPERA", ge=0, lt=1)
    attn_implementation: Literal["eager", "sdpa", "flash_attention_2"] | None = setting(
        None, "how attention is computed; auto: what transformers picks", "transformers"
    )
    seed: int = setting(0, "of every random draw (--seed)", "OPERA", ge=0, lt=2**32)
    snapshots: int = setting(
        50,
        "steps at which to record all sampling probabilities, one in five at most, for opera report; 0 records none",
        "OPERA",
        ge=0,
    )
    dataloader_num_workers: int = setting(0, "processes that look texts up ahead of training", "transformers", ge=0)
    lag: int | None = setting(
        None,
        "steps between an observation and the first draw that uses it; auto: as few as the loader's workers allow, "
        "1 without workers",
        "OPERA",
        ge=1,
    )

    temperature: float = setting(0.02, "divides the cosine similarities in the loss", "Appendix C.2", gt=0)
    mask_known_positives: bool = setting(
        True, "leave a query's known positives out of its negatives; the paper has no such mask", "OPERA"
    )
    train_group_size: int = setting(
        2, "documents a query in the batch: one positive, the rest negatives", "FlagEmbedding", ge=1
    )
    negatives: Literal["random", "hard", "given"] | None = setting(
        None,
        "explicit negatives: random from the corpus, hard (mined), or given in the data; "
        "auto: given where the data has them, else random",
        "Table 9",
    )
    range: RankRange | None = setting(
        None,
        "ranks LO:HI of the pretrained ranking that hard negatives come from; auto: 10:100",
        "Table 9",
    )
    max_mined_negatives: int = setting(200, "hard negatives kept for a query", "the release", ge=1)

    relevant_grade: int = setting(1, "lowest score in the qrels that counts as relevant, in every split", "BEIR", ge=1)
    noise: Literal["none", "grade", "random", "hard"] = setting(
        "none",
        "false positives put into the training pairs, for experiments: judged below relevant_grade, random documents, "
        "or hard ones from the pretrained ranking",
        "Section 3.5",
    )
    noise_grade: int | None = setting(
        None, "lowest score let in by noise=grade (ANTIQUE: relevant_grade=3, noise_grade=2)", "Appendix C.4"
    )
    noise_share: float | None = setting(
        None, "share of the training pairs that are false after noise=random or hard", "OPERA", gt=0, le=0.95
    )
    noise_range: RankRange | None = setting(
        None, "ranks LO:HI of the pretrained ranking that noise=hard comes from; auto: 10:100", "OPERA"
    )

    max_query_length: int = setting(128, "tokens of a query, at most the model's own limit", "Appendix C.2", ge=1)
    max_passage_length: int = setting(512, "tokens of a document, at most the model's own limit", "Appendix C.2", ge=1)
    corpus_text: Literal["title_text", "text"] = setting(
        "title_text", "what of a document is encoded; text alone is the release's way", "paper.md, row 11"
    )
    encode_batch_size: int = setting(128, "texts a batch when encoding", "OPERA", ge=1)

    logging_steps: int = setting(10, "steps between two log lines", "transformers", ge=1)
    report_to: str = setting("none", "where transformers logs to: none, tensorboard, wandb, ...", "transformers")
    save_steps: int | None = setting(
        None, "steps between two checkpoints; auto: a tenth of max_steps, at most 500", "OPERA", ge=1
    )
    save_total_limit: int = setting(2, "checkpoints kept", "transformers", ge=2)
    eval_steps: int | None = setting(
        None, "steps between two evaluations on the dev split; auto: none", "transformers", ge=1
    )
    metric_for_best_model: str = setting("nDCG@10", "dev measure that best model and patience go by", "OPERA")
    load_best_model_at_end: bool = setting(
        False, "keep the model of the best evaluation; needs eval_steps, and saves at each", "transformers"
    )
    early_stopping_patience: int | None = setting(
        None, "evaluations without a better one before training stops; needs eval_steps", "transformers", ge=1
    )
    dev_fraction: float = setting(
        0.1, "share of train queries drawn as dev, where dev is needed and absent", "OPERA", gt=0, lt=1
    )
    test_fraction: float = setting(
        0.1, "share of train queries drawn as test, where the data has no test split", "OPERA", gt=0, lt=1
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.range is not None and self.negatives != "hard":
            raise ValueError(f"range={self.range[0]}:{self.range[1]} needs negatives=hard, got {self.negatives}")
        for name, kinds in (("noise_grade", ["grade"]), ("noise_share", ["random", "hard"]), ("noise_range", ["hard"])):
            value = getattr(self, name)
            if value is not None and self.noise not in kinds:
                raise ValueError(f"{name}={_as_given(value)} needs noise={' or '.join(kinds)}, got {self.noise}")
            if value is None and self.noise in kinds and name != "noise_range":
                raise ValueError(f"noise={self.noise} needs {name}")
        if self.noise_grade is not None and self.noise_grade >= self.relevant_grade:
            raise ValueError(
                f"noise_grade={self.noise_grade} must be below relevant_grade={self.relevant_grade}, "
                "which such documents would meet"
            )
        least = self.model_copy(update={"lag": None}).stated_lag
        if self.lag is not None and self.lag < least:
            raise ValueError(
                f"lag={self.lag}: with dataloader_num_workers={self.dataloader_num_workers} batches are drawn "
                f"{least - 1} steps ahead; give {least} or more"
            )
        for name in ("load_best_model_at_end", "early_stopping_patience"):
            if getattr(self, name) and self.eval_steps is None:
                raise ValueError(f"{name}={getattr(self, name)} needs eval_steps: steps between two evaluations")
        return self

    @property
    def steps_between_checkpoints(self) -> int:
        """``save_steps``, or what ``auto`` means; with ``load_best_model_at_end`` every evaluation is saved."""
        if self.load_best_model_at_end and self.eval_steps is not None:
            return self.eval_steps
        return self.save_steps or min(500, max(1, self.max_steps // 10))

    @property
    def stated_lag(self) -> int:
        """``lag``, or what ``auto`` means: a loader with workers has read so many batches ahead of the model."""
        ahead = PREFETCHED * self.dataloader_num_workers
        return self.lag or 1 + math.ceil(ahead / self.gradient_accumulation_steps)

    @property
    def needs_dev(self) -> bool:
        """Whether some setting evaluates on the dev split during training."""
        return self.eval_steps is not None

    @property
    def mining_range(self) -> tuple[int, int]:
        """The rank range of hard negatives."""
        return self.range or (10, 100)

    @property
    def noise_ranks(self) -> tuple[int, int]:
        """The rank range of hard false positives."""
        return self.noise_range or (10, 100)


class Recipe(Settings):
    """Everything that decides a run, apart from its data and model."""

    method: str
    train: TrainSettings
    method_settings: Any

    def flat(self) -> dict[str, Any]:
        """All settings under their own names, as written to ``run.json``."""
        values = {"method": self.method, **self.train.model_dump(), **self.method_settings.model_dump()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from flat values: ``method`` (default ``dp``), any training setting, any of the method's.

    Raises:
        SettingError: telling every mistake at once: unknown names with the nearest known one, values out of
            range, settings that contradict each other, settings of another method.
    """
    values = {ALIASES.get(key, key): value for key, value in values.items()}
    method = method_named(str(values.get("method", "dp")))
    name = method.name
    own, general = method.settings_class.model_fields, TrainSettings.model_fields
    mistakes = [_misplaced(key, name) for key in values if key != "method" and key not in own and key not in general]
    parts = []
    for part in (TrainSettings, method.settings_class):
        try:
            parts.append(part(**{key: value for key, value in values.items() if key in part.model_fields}))
        except ValidationError as error:
            mistakes += explain(error, part.model_fields)
    if mistakes:
        raise SettingError("\n".join(mistakes))
    return Recipe(method=name, train=parts[0], method_settings=parts[1])


def parsed_value(name: str, value: Any) -> Any:
    """A training setting as it is kept, however it was written: ``range`` as 1:50 or (1, 50); others as they are."""
    field = TrainSettings.model_fields.get(ALIASES.get(name, name))
    if field is None:
        return value
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind).validate_python(value)


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _misplaced(key: str, method: str) -> str:
    owners = [other for other, cls in METHODS.items() if key in cls.settings_class.model_fields]
    if owners:
        return f"setting '{key}' belongs to method {_listed(owners)}; this run's method is {method}"
    if key in ARGUMENTS:
        return f"'{key}' is no setting: give it as the argument or option {key} of the command"
    known = [*TrainSettings.model_fields, *method_named(method).settings_class.model_fields, "method"]
    return unknown_setting(key, dict.fromkeys(known))


class _Loader(yaml.SafeLoader):
    """YAML without base-60 numbers, in which ``range: 10:50`` would be 650."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?\d+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$"), list("-+.0123456789")
)


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the flat values of a YAML recipe.

    Raises:
        SettingError: if the file is missing, is not YAML, or is not a mapping of names to values.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise SettingError(f"--config {path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingError(f"--config {path}: not YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(values, dict):
        raise SettingError(f"--config {path}: must map setting names to values, got {type(values).__name__}")
    return {str(key): value for key, value in values.items()}


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Read ``--set key=value`` arguments; values are YAML scalars.

    Raises:
        SettingError: if one is not ``key=value``.
    """
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"--set {assignment}: must be key=value, such as --set temperature=0.05")
        try:
            values[key.strip()] = yaml.load(text, _Loader)
        except yaml.YAMLError:
            values[key.strip()] = text
    return values


def all_docs() -> dict[str, list[SettingDoc]]:
    """Describe every setting, grouped: ``training`` first, then by method (those with the same settings together)."""
    groups: dict[type[Settings], list[str]] = {}
    for name, method in METHODS.items():
        if method.settings_class.model_fields:
            groups.setdefault(method.settings_class, []).append(name)
    described = {f"method {', '.join(names)}": cls.docs() for cls, names in groups.items()}
    return {"training": TrainSettings.docs(), **described}
