"""Fields of sentence-transformers' training arguments, which users pass by their names there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, create_model

from opera.config.yaml import parse_assignments
from opera.core.arguments import MOST
from opera.core.errors import SettingError, nearest
from opera.core.figures import PRIMARY
from opera.core.settings import Settings, setting
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

OURS = (
    "learning_rate", "max_steps", "per_device_train_batch_size", "seed", "warmup_ratio",
    "accelerator_config", "activation_checkpointing", "auto_find_batch_size", "batch_", "bf16",
    "data_seed", "dataloader_", "ddp_", "disable_tqdm", "do_", "enable_jit_checkpoint",
    "eval_accumulation", "eval_delay", "eval_do_concat", "eval_on_start", "eval_strategy",
    "eval_use_gather",
    "fp16", "gradient_checkpointing_kwargs", "greater_is_better", "hub_", "ignore_data_skip",
    "include_for_metrics", "label_", "length_column_name", "liger", "local_rank", "multi_dataset",
    "neftune",
    "num_train_epochs", "output_dir", "parallelism_config", "prediction_loss_only", "prompts",
    "push_to_hub", "remove_unused_columns", "restore_callback", "resume_from_checkpoint",
    "router_mapping", "save_only_model", "save_strategy", "train_sampling_strategy", "use_cpu",
    "use_liger", "warmup_steps",
)  # fmt: skip
"""Prefixes of fields that OPERA sets itself, or that would do nothing or harm in its runs."""

WITHOUT_EFFECT = (
    "include_num",
    "log",
    "project",
    "report_to",
    "run_name",
    "save_",
    "skip_memory",
    "trackio",
)
"""Prefixes of fields that change no result, and so are not part of a run's identity."""


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
        if name.startswith(OURS):
            raise SettingError(f"trainer: OPERA sets {name} itself (opera train --help-settings)")
        if not is_trainer_field(name):
            hint = nearest(name, _names()) or "; see SentenceTransformerTrainingArguments"
            raise SettingError(
                f"trainer: {shortened(name)}: no such field, got {shown(item)}{hint}"
            )
    return dict(value)


TrainerFields = Annotated[dict[str, Any], BeforeValidator(as_fields)]


def is_trainer_field(name: str) -> bool:
    """Whether the trainer has a field of this name that OPERA passes on."""
    return name in READ or (not name.startswith(OURS) and name in _names())


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
