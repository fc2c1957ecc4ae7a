"""Settings of the loss, the optimizer and the batches, and fields of sentence-transformers'
training arguments, which users pass by their names there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Annotated, Any, Self, get_type_hints

from pydantic import AfterValidator, BeforeValidator, create_model, model_validator

from opera.config.yaml import parse_assignments
from opera.core.arguments import MOST, MOST_SEED, expand_user
from opera.core.errors import SettingError, nearest, raise_first
from opera.core.figures import PRIMARY
from opera.core.registry import Registry
from opera.core.settings import OneOf, Settings, resolved, setting
from opera.core.terminal import shortened, shown

READ: Mapping[str, Any] = {
    "eval_steps": None,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": False,
    "load_best_model_at_end": False,
    "logging_steps": 10,
    "metric_for_best_model": PRIMARY,
    "optim": "adamw_torch",
    "per_device_eval_batch_size": 128,
    "report_to": "none",
    "save_steps": None,
    "save_total_limit": 2,
}
"""The fields that OPERA reads itself, with OPERA's defaults."""

WITHOUT_EFFECT = (
    "include_num_input_tokens_seen", "log_level", "log_level_replica", "log_on_each_node",
    "logging_first_step", "logging_nan_inf_filter", "logging_steps", "logging_strategy", "project",
    "report_to", "run_name", "save_on_each_node", "save_steps", "save_total_limit",
    "skip_memory_metrics", "trackio_bucket_id", "trackio_space_id", "trackio_static_space_id",
)  # fmt: skip
"""Fields that change no result, and so are not part of a run's identity."""

PASSED = (
    *WITHOUT_EFFECT, "adam_beta1", "adam_beta2", "adam_epsilon", "average_tokens_across_devices",
    "debug", "deepspeed", "eval_steps", "fsdp", "fsdp_config", "full_determinism",
    "gradient_accumulation_steps", "gradient_checkpointing", "load_best_model_at_end",
    "lr_scheduler_kwargs", "lr_scheduler_type", "max_grad_norm", "metric_for_best_model", "optim",
    "optim_args", "optim_target_modules", "per_device_eval_batch_size", "tf32", "torch_compile",
    "torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps", "use_cache",
    "weight_decay",
)  # fmt: skip
"""The fields that a user may set. OPERA sets the other fields itself, or they would do nothing or
harm in its runs."""

COUNTS = (
    *("eval_steps", "gradient_accumulation_steps", "logging_steps"),
    *("per_device_eval_batch_size", "save_steps", "save_total_limit"),
)
"""Fields that must be whole numbers above 0; the trainer would accept fractions too."""
BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "adam_beta1": {"ge": 0, "lt": 1},
    "adam_beta2": {"ge": 0, "lt": 1},
    "adam_epsilon": {"gt": 0, "le": 1},
    "max_grad_norm": {"ge": 0},
    "weight_decay": {"ge": 0, "le": 100},
    **{name: {"ge": 1, "le": MOST} for name in COUNTS},
}
"""Outside these bounds torch rejects a field, or the optimizer spoils the weights."""


def as_fields(value: Any) -> dict[str, Any]:
    """Read ``name=value,name=value`` or a mapping.

    Raises:
        SettingError: if OPERA sets a field itself, or the trainer has no such field.
    """
    if isinstance(value, str):
        value = parse_assignments(value.split(","), "trainer", "adam_beta2=0.98")
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise SettingError("trainer: must be fields and values, such as adam_beta2=0.98")
    for name, item in value.items():
        if not is_trainer_field(name):
            if name in _names():
                raise SettingError(
                    f"trainer: OPERA sets {name} itself (opera train --help-settings)"
                )
            hint = nearest(name, PASSED) or "; see SentenceTransformerTrainingArguments"
            raise SettingError(
                f"trainer: {shortened(name)}: no such field, got {shown(item)}{hint}"
            )
    return dict(value)


TrainerFields = Annotated[dict[str, Any], BeforeValidator(as_fields)]


def is_trainer_field(name: str) -> bool:
    """Whether a user may set a field of this name, which the installed trainer has."""
    return name in READ or (name in PASSED and name in _names())


def check_trainer_fields(values: Mapping[str, Any]) -> None:
    """Check types and bounds of the fields, and report every mistake. Imports transformers."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    kinds: dict[str, Any] = get_type_hints(SentenceTransformerTrainingArguments)
    kinds |= dict.fromkeys(COUNTS, int | None)
    declared: dict[str, Any] = {
        name: (kinds[name], setting(..., "", "", **BOUNDS.get(name, {}))) for name in values
    }
    try:
        create_model("TrainerFields", __base__=Settings, **declared).parse(values)
    except SettingError as error:
        raise SettingError(*(f"trainer: {line}" for line in error.lines)) from None


@cache
def _names() -> frozenset[str]:
    """The names of the trainer's fields."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    return frozenset(field.name for field in fields(SentenceTransformerTrainingArguments))


LARGEST_BATCH = 100_000
"""An upper bound, so that a typing error does not fill the memory."""

LOSSES: Registry[Any] = Registry("loss", shipped=("infonce", "distill"))
"""Values of ``loss``; :mod:`opera.training.loss` defines them."""


def _parse_sizes(value: Any) -> Any:
    """Read ``256,128,64``, or one number, as numbers of dimensions, the largest first."""
    parts = re.split(r"[,;]", value) if isinstance(value, str) else value
    if type(parts) is int:
        parts = [parts]
    if isinstance(parts, list | tuple) and all(
        re.fullmatch(r" *\d{1,6} *", str(part), re.ASCII) for part in parts
    ):
        sizes = sorted({int(part) for part in parts}, reverse=True)
        if sizes and sizes[-1] >= 1:
            return tuple(sizes)
    raise ValueError("must be numbers of dimensions, such as 256,128,64")


class OptimisationSettings(Settings):
    """The loss, the optimizer and the size of a batch. Names follow transformers.

    Automatic values come from :func:`opera.config.automatic.resolve`.
    """

    epochs: float | None = setting(
        None,
        "passes over the training queries, instead of max_steps; auto: from the data and the model",
        "docs/training.md",
        gt=0,
        le=1_000_000,
        flag="--epochs",
    )
    max_steps: int | None = setting(
        None,
        "optimizer steps; auto: by the epochs, within limits",
        "docs/training.md",
        ge=1,
        le=MOST,
        flag="--steps",
    )
    learning_rate: float | None = setting(
        None,
        "peak learning rate; auto: 1e-2 for a static model, 3e-3 for an adapter, 1e-4 for a "
        "transformer below 50M parameters, 2e-5 above; ten times as much with lora",
        "docs/training.md (the paper: 1e-6 for bge-large over 32,000 steps)",
        gt=0,
        le=1,
        flag="--lr",
    )
    warmup_ratio: float | None = setting(
        None,
        "fraction of the steps for warm-up; auto: 0.1 for a transformer, else 0",
        "docs/training.md (the paper: 0)",
        ge=0,
        lt=1,
    )
    temperature: float | None = setting(
        None,
        "temperature of the InfoNCE loss; auto: 0.05 over cosines, 0.07 for a static model, 1 for "
        "a sparse or multi-vector model",
        "docs/training.md (the paper: 0.02)",
        ge=0.0001,
        le=100,
    )
    query_regularizer_weight: float = setting(
        5e-5,
        "weight of FLOPS of the queries in the loss of a sparse model",
        "sentence-transformers",
        ge=0,
        le=100,
    )
    document_regularizer_weight: float = setting(
        3e-5,
        "weight of FLOPS of the documents in the loss of a sparse model",
        "sentence-transformers",
        ge=0,
        le=100,
    )
    loss: Annotated[str, OneOf(LOSSES)] = setting(
        "infonce",
        "loss of a pair in its batch: infonce, distill (InfoNCE and a teacher's scores), or a loss "
        "that you registered",
        "OPERA",
    )
    matryoshka: Annotated[tuple[int, ...], BeforeValidator(_parse_sizes)] | None = setting(
        None,
        "numbers of first dimensions, such as 256,128,64, that work as embeddings on their own: "
        "the loss is the mean over these sizes and the full size; auto: none",
        "arXiv:2205.13147",
        flag="--matryoshka",
    )
    seed: int = setting(0, "random seed", "OPERA", ge=0, lt=MOST_SEED + 1, flag="--seed")

    teacher_scores: (
        Annotated[str, AfterValidator(partial(expand_user, name="teacher_scores"))] | None
    ) = setting(
        None,
        "file of teacher scores from opera score: .parquet, .tsv or .jsonl; auto: scores in the "
        "data, such as FlagEmbedding's pos_scores and neg_scores",
        "OPERA",
        flag="--teacher",
    )
    distill_weight: float = setting(
        0.5,
        "weight of the divergence from the teacher in the loss; the rest is InfoNCE: 0.5 weighs "
        "both as FlagEmbedding does, 1 drops InfoNCE",
        "FlagEmbedding",
        gt=0,
        le=1,
    )
    trainer: TrainerFields | None = setting(
        None,
        "fields of sentence-transformers' training arguments, such as weight_decay=0.01 "
        "(--trainer adam_beta2=0.98, repeatable; --set and recipes take them too); auto: none",
        "sentence-transformers",
    )

    global_batch_size: int | None = setting(
        None,
        "queries per optimizer step, over all processes and accumulated batches; replaces the "
        "size per device",
        "Appendix C.2",
        ge=1,
        le=MOST,
    )
    per_device_train_batch_size: int | None = setting(
        None,
        "queries per batch and device; auto: from global_batch_size; without it, over all "
        "devices: 512 for a static model, 256 for an adapter, 64 for a transformer, but at most "
        "the training queries",
        "docs/training.md (the paper: 8 on each of 8 devices)",
        ge=1,
        le=LARGEST_BATCH,
        flag="--batch-size",
    )
    gradient_cache: int | None = setting(
        None,
        "texts per forward pass: large batches train in the memory of small ones, at the cost of "
        "a second forward pass; auto: the whole batch at once",
        "arXiv:2101.06983",
        ge=1,
        le=LARGEST_BATCH,
    )

    def of_trainer(self, name: str) -> Any:
        """Return the value of a field of the trainer that OPERA reads itself."""
        return (self.trainer or {}).get(name, READ[name])

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether a finished run keeps its checkpoints: if the user says how to save them."""
        return not {"save_steps", "save_total_limit"}.isdisjoint(self.trainer or {})

    @property
    def gradient_accumulation_steps(self) -> int:
        """Batches per optimizer step."""
        return int(self.of_trainer("gradient_accumulation_steps"))

    @property
    def encode_batch_size(self) -> int:
        """Texts of 128 tokens per batch when encoding. Other batches have as many tokens."""
        return int(self.of_trainer("per_device_eval_batch_size"))

    @property
    def eval_steps(self) -> int | None:
        """Steps between two evaluations on the dev split; ``None`` for none."""
        return self.of_trainer("eval_steps")

    @property
    def metric_for_best_model(self) -> str:
        """The dev measure by which the guard chooses λ, and training the best checkpoint."""
        return str(self.of_trainer("metric_for_best_model"))

    @property
    def steps_between_checkpoints(self) -> int:
        """``save_steps``, or a tenth of the run. With ``load_best_model_at_end`` every evaluation
        saves a checkpoint.
        """
        if self.of_trainer("load_best_model_at_end") and self.eval_steps is not None:
            return self.eval_steps
        save_steps: int | None = self.of_trainer("save_steps")
        return save_steps or min(500, max(1, resolved(self.max_steps) // 10))

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        raise_first(
            ValueError,
            (
                self.of_trainer("load_best_model_at_end") and self.eval_steps is None,
                "load_best_model_at_end=True needs eval_steps, the steps between two evaluations",
            ),
            (
                self.epochs is not None and self.max_steps is not None,
                f"epochs={self.epochs or 0:g} and max_steps={self.max_steps}: both say how long to "
                "train; give one of them",
            ),
            (
                self.global_batch_size is not None and self.per_device_train_batch_size is not None,
                f"global_batch_size={self.global_batch_size} and per_device_train_batch_size="
                f"{self.per_device_train_batch_size}: both say how large a batch is; give one of "
                "them",
            ),
        )
        return self

    def explicit_batch_size(self, processes: int) -> int | None:
        """Return the queries per batch and device; ``None`` if no batch size is set.

        Raises:
            SettingError: if ``global_batch_size`` does not divide evenly; it says which numbers do.
        """
        global_size, accumulated = self.global_batch_size, self.gradient_accumulation_steps
        if global_size is None:
            return self.per_device_train_batch_size
        batches = processes * accumulated
        if global_size % batches == 0:
            return global_size // batches
        lower = global_size - global_size % batches
        advice = f"{lower} or {lower + batches}" if lower else f"{batches}"
        raise SettingError(
            f"global_batch_size={global_size}: does not divide evenly over {processes} "
            f"process{'es' * (processes > 1)} with gradient_accumulation_steps={accumulated}, "
            f"{batches} batch{'es' * (batches > 1)} per step; give {advice}"
        )

    def queries_per_pass(self, processes: int) -> int:
        """Return the queries in one forward pass of all processes, which share their documents as
        in-batch negatives.
        """
        return resolved(self.per_device_train_batch_size) * processes

    def queries_per_step(self, processes: int) -> int:
        """Return the queries per optimizer step, over all processes and accumulated batches."""
        return self.queries_per_pass(processes) * self.gradient_accumulation_steps
