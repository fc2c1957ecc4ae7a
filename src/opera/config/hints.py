"""Which setting is meant by a name that other tools have, and which settings everybody uses."""

from __future__ import annotations

from collections.abc import Mapping

EVERYDAY = (
    "epochs", "max_steps", "learning_rate", "per_device_train_batch_size", "gradient_cache", "negatives", "range",
    "train_group_size", "temperature", "max_query_length", "max_passage_length", "query_prompt", "document_prompt",
    "lora", "matryoshka", "future", "guard", "report_to", "seed",
)  # fmt: skip
"""Listed first."""

_LENGTHS = "use max_query_length and max_passage_length"
_LORA = "use lora, such as lora=r=16,alpha=32,dropout=0.05"
_OF_TRAINER = (
    "run_name", "deepspeed", "fsdp", "fsdp_config", "torch_compile", "adam_beta1", "adam_beta2", "adam_epsilon", "tf32",
    "lr_scheduler_kwargs", "optim_args", "logging_first_step", "eval_delay", "neftune_noise_alpha", "full_determinism",
)  # fmt: skip

OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("num_train_epochs", "num_epochs", "n_epochs", "epoch"), "use epochs"),
    **dict.fromkeys(("num_steps", "total_steps", "max_train_steps"), "use max_steps"),
    **dict.fromkeys(("train_batch_size", "bs", "batchsize"), "use per_device_train_batch_size"),
    **dict.fromkeys(("per_device_eval_batch_size", "eval_batch_size"), "use encode_batch_size"),
    **dict.fromkeys(("peft", "peft_config", "use_lora", "lora_r", "lora_rank", "lora_alpha", "lora_dropout"), _LORA),
    **dict.fromkeys(("lora_target_modules", "target_modules"), "use lora, such as lora=r=16,target=query;value"),
    **dict.fromkeys(("warmup_steps", "num_warmup_steps", "warmup"), "use warmup_ratio, a share of the steps"),
    **dict.fromkeys(("max_seq_length", "max_seq_len", "max_length", "seq_length"), _LENGTHS),
    "query_max_len": "use max_query_length",
    "passage_max_len": "use max_passage_length",
    **dict.fromkeys(("loss_type", "loss_fn", "criterion"), "use loss"),
    **dict.fromkeys(("scale", "similarity_scale"), "use temperature, which is 1/scale: scale=20 is temperature=0.05"),
    **dict.fromkeys(("tau", "temp"), "use temperature"),
    **dict.fromkeys(("mini_batch_size", "sub_batch_size", "grad_cache", "cached"), "use gradient_cache"),
    **dict.fromkeys(("matryoshka_dims", "matryoshka_dimensions", "mrl", "dims"), "use matryoshka, such as 256,128,64"),
    **dict.fromkeys(("scheduler", "lr_scheduler"), "use lr_scheduler_type"),
    **dict.fromkeys(("gradient_clipping", "clip_grad_norm", "max_norm"), "use max_grad_norm"),
    "dev_split": "use future=same-documents, new-documents, both or like-test",
    "num_workers": "use dataloader_num_workers",
    **dict.fromkeys(("n_negatives", "num_negatives", "num_hard_negatives"),
                    "use train_group_size: one positive, the rest negatives"),
    **dict.fromkeys(("hard_negatives", "mine_negatives"), "use negatives=hard"),
    **{name: f"use mining_{name}" for name in ("relative_margin", "absolute_margin", "max_score", "reranker")},
    **dict.fromkeys(("knowledge_distillation", "distillation", "kd_loss_type", "distill"), "use loss=distill"),
    **dict.fromkeys(("teacher", "teacher_file"), "use teacher_scores"),
    **dict.fromkeys(("eval_strategy", "evaluation_strategy"), "use eval_steps"),
    **dict.fromkeys(("save_strategy",), "use save_steps"),
    **dict.fromkeys(("query_instruction", "query_instruction_for_retrieval", "instruction"), "use query_prompt"),
    **dict.fromkeys(("passage_instruction", "passage_instruction_for_retrieval"), "use document_prompt"),
    **dict.fromkeys(("wandb", "tensorboard", "mlflow"), "use report_to=NAME"),
    **dict.fromkeys(("fp16", "amp"), "use precision=fp16"),
    "bf16": "use precision=bf16",
    **dict.fromkeys(("output_dir", "output"), "use --out"),
    **dict.fromkeys(("model_name", "model_name_or_path"), "use --model"),
    **{name: f"use --trainer {name}=VALUE" for name in _OF_TRAINER},
}  # fmt: skip
"""What to use instead."""


def option_hint(option: str, settings: Mapping[str, object]) -> str:
    """What to give in place of an option that a command does not have; empty where nothing is known.

    Args:
        option: as it was given: ``--warmup_ratio``.
        settings: by name.
    """
    name = option.lstrip("-").replace("-", "_").lower()
    if name in settings:
        return f"give it as --set {name}=VALUE"
    return OTHER_NAMES.get(name, "")
