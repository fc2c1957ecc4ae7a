"""Fields of sentence-transformers' training arguments: what the trainer has is passed on under its
own name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from opera.config.yaml import parse_assignments
from opera.core.errors import SettingError, nearest
from opera.core.terminal import shortened, shown

PRIMARY = "nDCG@10"
"""The measure by which models are chosen and compared, unless ``metric_for_best_model`` names
another.
"""

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
"""The fields that OPERA reads itself, with its defaults; numbers among them are whole and above
0.
"""

OURS = (
    "accelerator_config", "activation_checkpointing", "auto_find_batch_size", "batch_", "bf16",
    "data_seed", "dataloader_", "ddp_", "disable_tqdm", "do_", "enable_jit_checkpoint",
    "eval_accumulation", "eval_delay", "eval_do_concat", "eval_on_start", "eval_strategy",
    "eval_use_gather",
    "fp16", "gradient_checkpointing_kwargs", "greater_is_better", "hub_", "ignore_data_skip",
    "include_for_metrics", "label_", "length_column_name", "local_rank", "multi_dataset", "neftune",
    "num_train_epochs", "output_dir", "parallelism_config", "prediction_loss_only", "prompts",
    "push_to_hub", "remove_unused_columns", "restore_callback", "resume_from_checkpoint",
    "router_mapping", "save_only_model", "save_strategy", "train_sampling_strategy", "use_cpu",
    "warmup_steps",
)  # fmt: skip
"""How fields begin that OPERA sets by itself, or that would do nothing or harm in its runs."""

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
"""How fields begin that change no result, and so are no part of a run's identity."""


def as_fields(value: Any) -> dict[str, Any]:
    """Read ``name=value,name=value`` or a mapping; a ``ValueError`` says what is wrong."""
    if isinstance(value, str):
        try:
            value = parse_assignments(value.split(","), "trainer", "adam_beta2=0.98")
        except SettingError as error:
            raise ValueError("; ".join(error.lines)) from None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be fields and values, such as adam_beta2=0.98")
    for name, given in value.items():
        if name.startswith(OURS):
            raise ValueError(f"{name}: OPERA sets this itself; see opera train --help-settings")
        counts = name in READ and not isinstance(READ[name], bool | str)
        if counts and given is not None and (type(given) is not int or given < 1):
            raise ValueError(f"{name}: must be a whole number above 0, got {shown(given)}")
        if isinstance(given, float) and not math.isfinite(given):
            raise ValueError(f"{name}: must be a finite number, got {given}")
    return dict(value)


TrainerFields = Annotated[dict[str, Any], BeforeValidator(as_fields)]


@cache
def _hints() -> Mapping[str, Any]:
    """The fields and their types; imports the trainer's library, which takes seconds."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    hints = get_type_hints(SentenceTransformerTrainingArguments)
    return {name: hint for name, hint in hints.items() if not name.startswith("_")}


def is_trainer_field(name: str) -> bool:
    """Whether the trainer has a field of this name that OPERA passes on."""
    return name in READ or (not name.startswith(OURS) and name in _hints())


def check_trainer_fields(values: Mapping[str, Any]) -> None:
    """Check names and types of the fields, and report every mistake."""
    mistakes = []
    for name, value in values.items():
        if not is_trainer_field(name):
            hint = nearest(name, _hints()) or "; see SentenceTransformerTrainingArguments"
            mistakes.append(f"--trainer {shortened(name)}: the trainer has no such field{hint}")
        elif not _fits(value, _hints()[name]):
            kind = str(getattr(_hints()[name], "__name__", _hints()[name])).replace("typing.", "")
            mistakes.append(f"--trainer {name}: must be {kind}, got {shown(value)}")
    if mistakes:
        raise SettingError(*mistakes)


def _fits(value: Any, hint: Any) -> bool:
    try:
        TypeAdapter(hint).validate_python(value)
    except (
        PydanticSchemaGenerationError,
        ValidationError,
    ):  # the first: an object, which no text holds
        return False
    return True
