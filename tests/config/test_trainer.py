"""Every training argument of sentence-transformers is passed on, or OPERA decides it and rejects the user's value."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.metadata import version

import pytest

from documents import ROOT
from opera.config.trainer import as_fields, is_trainer_field
from opera.core.errors import SettingError

PASSED = {
    "adam_beta1", "adam_beta2", "adam_epsilon", "average_tokens_across_devices", "debug", "deepspeed",
    "eval_steps", "fsdp", "fsdp_config", "full_determinism", "gradient_accumulation_steps",
    "gradient_checkpointing", "include_num_input_tokens_seen", "load_best_model_at_end", "log_level",
    "log_level_replica", "log_on_each_node", "logging_first_step", "logging_nan_inf_filter", "logging_steps",
    "logging_strategy", "lr_scheduler_kwargs", "lr_scheduler_type", "max_grad_norm", "metric_for_best_model",
    "optim", "optim_args", "optim_target_modules", "per_device_eval_batch_size", "project", "report_to",
    "run_name", "save_on_each_node", "save_steps", "save_total_limit", "skip_memory_metrics", "tf32",
    "torch_compile", "torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps",
    "trackio_bucket_id", "trackio_space_id", "trackio_static_space_id", "use_cache", "weight_decay",
}  # fmt: skip
"""The arguments that ``--trainer`` takes. A new version of the library may add arguments: decide on each."""


def is_locked(package: str) -> bool:
    pinned = re.search(rf"^{package}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return pinned is not None and pinned[1] == version(package)


def names() -> set[str]:
    from sentence_transformers import SentenceTransformerTrainingArguments

    return {field.name for field in fields(SentenceTransformerTrainingArguments)}


@pytest.mark.skipif(not is_locked("transformers"), reason="another version of transformers may have other arguments")
def test_the_list_of_passed_arguments_is_complete() -> None:
    assert {name for name in names() if is_trainer_field(name)} == PASSED


def test_opera_rejects_the_arguments_that_it_decides() -> None:
    decided = {name for name in names() if not is_trainer_field(name)}
    assert {"max_steps", "learning_rate", "output_dir", "prompts", "batch_sampler"} <= decided
    for name in decided:
        with pytest.raises(SettingError, match=f"OPERA sets {name} itself"):
            as_fields({name: 1})
