"""sentence-transformers' trainer with our batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from torch.utils.data import DataLoader
from transformers.integrations import get_reporting_integration_callbacks

from opera.config.recipe import PREFETCHED, TrainSettings
from opera.core.errors import SettingError
from opera.data import RetrievalData
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import prompt_for
from opera.training.callbacks import ignore_signals
from opera.training.dataset import column_names
from opera.training.distributed import from_main, is_main, world_size
from opera.training.sampler import PairSampler

WAIT_SECONDS = 24 * 3600


class OperaTrainer(SentenceTransformerTrainer):  # type: ignore[misc]
    """Draws its batches from a :class:`PairSampler`, which says how far it may be read ahead (its lag).

    The data loader is left unprepared by accelerate, which would read one batch ahead of the model; batches reach the
    device in the trainer's own ``_prepare_inputs``.
    """

    def __init__(self, *args: Any, sampler: PairSampler, **kwargs: Any) -> None:
        self.sampler = sampler
        super().__init__(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader over the sampler's batches."""
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.sampler,
            collate_fn=self.data_collator,
            generator=torch.Generator().manual_seed(self.args.seed),  # leaves torch's global stream to dropout alone
            pin_memory=self.args.device.type == "cuda",
            num_workers=self.args.dataloader_num_workers,
            worker_init_fn=ignore_signals,
            prefetch_factor=PREFETCHED if self.args.dataloader_num_workers else None,
        )

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave the automatic model card out: the run writes its own, with its measures."""


class SplitEvaluator(BaseEvaluator):  # type: ignore[misc]
    """Measures the model on a split during training."""

    def __init__(self, data: RetrievalData, split: str, settings: TrainSettings, measures: list[str]) -> None:
        super().__init__()
        self.data, self.split, self.settings, self.measures = data, split, settings, measures
        self.primary_metric = settings.metric_for_best_model

    def __call__(
        self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return each measure's mean; of several processes the main one measures, and tells the others."""
        return from_main(self._measure(model) if is_main() else {})

    def _measure(self, model: SentenceTransformer) -> dict[str, float]:
        encoder = Encoder(
            model,
            self.settings.precision,
            self.settings.encode_batch_size,
            use_cache=False,
            show_progress=False,
        )
        evaluation = evaluate_encoder(encoder, self.data, self.split, self.measures, self.settings.corpus_text)
        return evaluation.measures


def training_arguments(
    settings: TrainSettings,
    learning_rate: float,
    precision: str,
    model: SentenceTransformer,
    checkpoints: Path,
) -> SentenceTransformerTrainingArguments:
    """Turn our settings into the trainer's.

    Args:
        settings: the run's settings.
        learning_rate: the peak rate.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        model: the model that will train, for its prompts and device.
        checkpoints: folder to save in; not made here.

    Raises:
        SettingError: if transformers refuses a value.
    """
    columns = column_names(settings.train_group_size - 1)
    roles = {column: "query" if column == "anchor" else "document" for column in columns}
    prompts = {column: prompt for column, role in roles.items() if (prompt := prompt_for(model, role))}
    evaluates = settings.eval_steps is not None
    values = dict(
        output_dir=str(checkpoints.resolve()),
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.per_device_train_batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        learning_rate=learning_rate,
        lr_scheduler_type=settings.lr_scheduler_type,
        warmup_steps=settings.warmup_ratio,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        optim=settings.optim,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=model.device.type == "cpu",
        seed=settings.seed,
        logging_steps=settings.logging_steps,
        report_to=settings.report_to,
        save_strategy="steps",
        save_steps=settings.steps_between_checkpoints,
        save_total_limit=settings.save_total_limit,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=settings.eval_steps,
        load_best_model_at_end=settings.load_best_model_at_end,
        metric_for_best_model=f"eval_{settings.metric_for_best_model}" if evaluates else None,
        greater_is_better=True if evaluates else None,
        prompts=prompts or None,
        router_mapping=roles,
        restore_callback_states_from_checkpoint=True,
        ignore_data_skip=True,  # the sampler goes on from its own saved state
        dataloader_num_workers=settings.dataloader_num_workers,
        **_several_processes(model) if world_size() > 1 else {},
        **({"gradient_checkpointing": True} if settings.gradient_checkpointing else {}),
    )
    try:
        arguments = SentenceTransformerTrainingArguments(**values)
        get_reporting_integration_callbacks(arguments.report_to)
    except (ValueError, ImportError, RuntimeError) as error:
        raise SettingError(f"transformers refuses the settings: {error}") from None
    if arguments.n_gpu > 1:  # torch's DataParallel would split batches behind the sampler's back
        arguments._n_gpu = 1
    return arguments


def _several_processes(model: SentenceTransformer) -> dict[str, Any]:
    return {
        "ddp_backend": "gloo" if model.device.type == "cpu" else "nccl",
        "ddp_timeout": WAIT_SECONDS,  # the others wait while the main process encodes and measures
        "ddp_find_unused_parameters": False,  # they are frozen before training
    }
