"""Every training argument of sentence-transformers is passed on, fixed by OPERA, or refused."""

import re
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

import pytest

from documents import ROOT
from opera.config.optimisation import PASSED, READ, as_fields, is_trainer_field
from opera.config.training import TrainSettings
from opera.core.errors import SettingError

FIXED = {
    "bf16", "ddp_backend", "ddp_broadcast_buffers", "ddp_find_unused_parameters", "ddp_timeout", "eval_strategy",
    "fp16", "greater_is_better", "ignore_data_skip", "learning_rate", "max_steps", "output_dir",
    "per_device_train_batch_size", "prompts", "restore_callback_states_from_checkpoint", "router_mapping",
    "save_strategy", "seed", "use_cpu", "warmup_steps",
}  # fmt: skip
"""OPERA sets these arguments itself, or has its own setting for each."""
REFUSED = {
    "accelerator_config", "activation_checkpointing", "activation_checkpointing_kwargs", "auto_find_batch_size",
    "batch_eval_metrics", "batch_sampler", "dataloader_in_order", "learning_rate_mapping",
    "bf16_full_eval", "data_seed", "dataloader_drop_last", "dataloader_multiprocessing_context",
    "dataloader_num_workers", "dataloader_persistent_workers", "dataloader_pin_memory", "dataloader_prefetch_factor",
    "ddp_bucket_cap_mb", "ddp_static_graph", "disable_tqdm", "do_eval", "do_predict", "do_train",
    "enable_jit_checkpoint", "eval_accumulation_steps", "eval_delay", "eval_do_concat_batches", "eval_on_start",
    "eval_use_gather_object", "fp16_full_eval", "gradient_checkpointing_kwargs", "hub_always_push", "hub_model_id",
    "hub_private_repo", "hub_revision", "hub_strategy", "hub_token", "include_for_metrics", "label_names",
    "label_smoothing_factor", "length_column_name", "liger_kernel_config", "local_rank",
    "multi_dataset_batch_sampler", "neftune_noise_alpha", "num_train_epochs", "parallelism_config",
    "prediction_loss_only", "push_to_hub", "remove_unused_columns", "resume_from_checkpoint", "save_only_model",
    "train_sampling_strategy", "use_liger_kernel", "warmup_ratio",
}  # fmt: skip
"""These arguments would do nothing or harm in a run of OPERA, and keep the library's default. A new version of the
library may add arguments: decide on each."""
BOTH = set(READ) - {"per_device_eval_batch_size"}
"""OPERA reads these arguments of the user, and passes them on itself."""


def is_locked(package: str) -> bool:
    pinned = re.search(rf"^{package}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return pinned is not None and pinned[1] == version(package)


def names() -> set[str]:
    from sentence_transformers import SentenceTransformerTrainingArguments

    return {field.name for field in fields(SentenceTransformerTrainingArguments)}


@pytest.mark.skipif(not is_locked("transformers"), reason="another version of transformers may have other arguments")
def test_every_argument_is_in_one_list():
    assert sorted([*PASSED, *FIXED, *REFUSED]) == sorted(names())
    assert {name for name in names() if is_trainer_field(name)} == {*PASSED} > {*READ}


def test_opera_fixes_the_arguments_of_its_list(static_model, monkeypatch):
    from opera.retrieval.models import load_model
    from opera.training import trainer

    settings = TrainSettings.parse({"max_steps": 8, "per_device_train_batch_size": 4, "learning_rate": 0.1})
    fixed = set[str]()
    for processes in (1, 2):
        monkeypatch.setattr(trainer, "process_count", lambda count=processes: count)
        fixed |= trainer.fixed_arguments(settings, load_model(static_model, "cpu"), Path("checkpoints")).keys()
    assert fixed == FIXED | BOTH


def test_opera_refuses_the_arguments_that_it_decides():
    for name in FIXED | REFUSED:
        with pytest.raises(SettingError, match=f"OPERA sets {name} itself"):
            as_fields({name: 1})
