"""What the trainer can be given beyond OPERA's own settings: fields of sentence-transformers' training arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from opera.config.yaml import parse_assignments
from opera.core.errors import SettingError, nearest
from opera.core.terminal import shortened, shown

_LOADER = "OPERA has a loader of its own; see dataloader_num_workers"
_EVALUATION = "OPERA evaluates by itself; see eval_steps and encode_batch_size"
_PUSH = "checkpoints are not what is handed over: upload the model that was, with opera export RUN --push OWNER/NAME"

TAKEN: Mapping[str, str] = {
    **{
        name: f"is a setting: give --set {name}=VALUE"
        for name in (
            "per_device_train_batch_size", "max_steps", "learning_rate", "lr_scheduler_type", "weight_decay",
            "max_grad_norm", "optim", "seed", "logging_steps", "report_to", "save_steps", "save_total_limit",
            "eval_steps", "load_best_model_at_end", "metric_for_best_model", "gradient_accumulation_steps",
            "gradient_checkpointing", "dataloader_num_workers", "warmup_ratio",
        )
    },
    **dict.fromkeys(("activation_checkpointing", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"),
                    "give --set gradient_checkpointing=true"),
    **dict.fromkeys(("bf16", "fp16", "bf16_full_eval", "fp16_full_eval"), "give --set precision=bf16 or fp16"),
    **dict.fromkeys(("batch_sampler", "multi_dataset_batch_sampler", "train_sampling_strategy", "length_column_name"),
                    "the method draws the batches: give --method"),
    **dict.fromkeys(("dataloader_drop_last", "dataloader_pin_memory", "dataloader_persistent_workers",
                     "dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order",
                     "remove_unused_columns", "label_names", "ignore_data_skip", "accelerator_config"), _LOADER),
    **dict.fromkeys(("per_device_eval_batch_size", "prediction_loss_only", "eval_do_concat_batches", "eval_on_start",
                     "eval_use_gather_object", "eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics",
                     "eval_strategy", "do_eval", "do_predict", "greater_is_better"), _EVALUATION),
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_strategy", "hub_private_repo", "hub_always_push",
                     "hub_revision"), _PUSH),
    **dict.fromkeys(("ddp_backend", "ddp_timeout", "ddp_find_unused_parameters", "local_rank"),
                    "OPERA sets it for the processes that torchrun started"),
    "output_dir": "give --out",
    "num_train_epochs": "give --epochs",
    "warmup_steps": "give --set warmup_ratio=SHARE, a share of the steps",
    "data_seed": "give --seed, which every draw follows",
    "use_cpu": "hide the GPU with CUDA_VISIBLE_DEVICES=",
    "hub_token": "a token would be recorded; log in with hf auth login, or set HF_TOKEN",
    "prompts": "give --set query_prompt=TEXT and document_prompt=TEXT",
    "router_mapping": "OPERA says which columns are queries",
    "save_strategy": "give --set save_steps=N",
    "save_only_model": "a run could not be resumed",
    "restore_callback_states_from_checkpoint": "a run could not be resumed",
    "enable_jit_checkpoint": "OPERA saves a checkpoint after Ctrl-C and SIGTERM by itself",
    "auto_find_batch_size": "the method draws whole batches; see gradient_cache",
    "resume_from_checkpoint": "give --resume",
    "do_train": "opera train trains",
    "disable_tqdm": "OPERA has a progress bar of its own",
    "eval_delay": "evaluations begin after eval_steps",
    "neftune_noise_alpha": "sentence-transformers' models do not say where their input embeddings are",
    "label_smoothing_factor": "register a loss of your own",
    "parallelism_config": "is an object of accelerate's, which has no name here; see fsdp and deepspeed",
}  # fmt: skip
"""Fields that OPERA sets itself or does not read, and what to do instead."""

WITHOUT_EFFECT = frozenset(
    {"run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "logging_strategy",
     "logging_first_step", "log_on_each_node", "log_level", "log_level_replica", "logging_nan_inf_filter",
     "include_num_input_tokens_seen", "skip_memory_metrics", "save_on_each_node"}
)  # fmt: skip
"""Fields that change no result."""


def _as_mapping(value: Any) -> Any:
    """Read ``name=value,name=value``, or take a mapping, and refuse the fields that are OPERA's own."""
    if isinstance(value, str):
        try:
            value = parse_assignments(value.split(","), "trainer", "adam_beta2=0.98")
        except SettingError as error:
            raise ValueError("; ".join(error.lines)) from None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be fields and values, such as adam_beta2=0.98")
    for name in value:
        if name in TAKEN:
            raise ValueError(f"{name}: {TAKEN[name]}")
    return dict(value)


TrainerFields = Annotated[dict[str, Any], BeforeValidator(_as_mapping)]


def check_trainer_fields(values: Mapping[str, Any]) -> None:
    """Check names and types of the fields. Imports the trainer's library, which takes seconds.

    Raises:
        SettingError: naming every mistake.
    """
    from typing import get_type_hints

    from sentence_transformers import SentenceTransformerTrainingArguments

    hints = get_type_hints(SentenceTransformerTrainingArguments)
    known = {
        name: hint for name, hint in hints.items() if not name.startswith("_") and name not in TAKEN
    }
    mistakes = []
    for name, value in values.items():
        if name not in known:
            hint = (
                nearest(name, known)
                or "; see sentence-transformers' SentenceTransformerTrainingArguments"
            )
            mistakes.append(f"--trainer {shortened(name)}: the trainer has no such field{hint}")
        elif not _fits(value, known[name]):
            mistakes.append(
                f"--trainer {name}: must be {_in_words(known[name])}, got {shown(value)}"
            )
    if mistakes:
        raise SettingError(*mistakes)


def _fits(value: Any, hint: Any) -> bool:
    try:
        TypeAdapter(hint).validate_python(value)
    except (
        PydanticSchemaGenerationError
    ):  # an object, which neither YAML nor the command line holds
        return False
    except ValidationError:
        return False
    return True


def _in_words(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint)).replace("typing.", "")
