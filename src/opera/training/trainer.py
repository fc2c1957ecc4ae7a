"""Train a model: sentence-transformers' trainer with OPERA's batches, settings and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.trainer import BaseTrainer
from sentence_transformers.base.training_args import BaseTrainingArguments
from sentence_transformers.util import fullname
from torch.utils.data import DataLoader
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerState
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.trainer_utils import speed_metrics

from opera.config.optimisation import LOSSES
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.errors import SettingError, TrainingError
from opera.core.figures import trainer_key
from opera.core.files import storage_error, writing
from opera.core.processes import from_main, process_count, process_index
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.data import Mixture
from opera.encoder import TokenModel
from opera.labels.estimate import FirstVisits, NoisyLabels, estimate
from opera.retrieval.device import WAIT, resolve_precision
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.kinds import Kind, encoding_kind_of
from opera.retrieval.kinds.dense import is_static, reads_vectors
from opera.retrieval.lora import has_lora
from opera.retrieval.models import freeze_unused_parameters, loading_model
from opera.retrieval.prompts import prompt_for
from opera.retrieval.trust import check_model_folder
from opera.run_folder.folder import SAMPLER_FILE, Run, RunWriter
from opera.run_folder.reading import read_arrays
from opera.run_folder.record import TrainingRecord
from opera.training.build import TrainingSet, collate, column_roles, make_dataset
from opera.training.callbacks import (
    Progress,
    SamplerCallback,
    Stopper,
    Trace,
    nest,
    newest_checkpoint,
)
from opera.training.loss import InBatchLoss
from opera.training.prepare import encoder_of
from opera.training.sampler import ADVICE_NOT_FINITE, DataSetSampler, Sampler

TRAINED_FILE = "trained.safetensors"
"""All trainable parameters, in a checkpoint."""


class OperaTrainer(BaseTrainer):  # type: ignore[misc]
    """Trains on the batches of a sampler; :func:`trainer_class` makes it the trainer of a kind.

    accelerate does not prepare the data loader, because it would read a batch ahead of the lag. The
    trainer's ``_prepare_inputs`` moves batches to the device.
    """

    def __init__(self, *args: Any, sampler: Any = None, on_dev: Any = None, **kwargs: Any) -> None:
        self.sampler, self.on_dev = sampler, on_dev
        super().__init__(*args, evaluator=[] if on_dev else None, **kwargs)
        for unwanted in (ProgressCallback, PrinterCallback):
            self.remove_callback(unwanted)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader over the sampler's batches."""
        return DataLoader(
            self.train_dataset,
            batch_sampler=self.sampler,
            collate_fn=partial(collate, collator=self.data_collator),
            # a separate generator, so that dropout has torch's global stream alone
            generator=torch.Generator().manual_seed(self.args.seed),
            pin_memory=self.args.device.type == "cuda",
        )

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure on dev; the processes share the work.

        sentence-transformers would run the evaluator in the main process only. Its batches and
        precision would then depend on the number of processes.
        """
        start = time.time()
        metrics = {
            f"{metric_key_prefix}_{name}": value for name, value in self.on_dev(self.model).items()
        }
        metrics |= speed_metrics(metric_key_prefix, start)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args,
            self.state,
            self.control,  # type: ignore[has-type]
            metrics,
        )
        return metrics

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the model without a model card; with LoRA, save only the weights that train."""
        folder = Path(output_dir or self.args.output_dir)
        if has_lora(self.model):
            folder.mkdir(parents=True, exist_ok=True)
            trained = {
                name: parameter.detach().contiguous()
                for name, parameter in self.model.named_parameters()
                if parameter.requires_grad
            }
            save_file(trained, folder / TRAINED_FILE)
        else:
            self.model.save_pretrained(str(folder), create_model_card=False)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        """Load the weights, after the checks that any untrusted model folder gets."""
        if has_lora(self.model):
            trained = Path(checkpoint_path) / TRAINED_FILE
            self.model.load_state_dict(load_file(trained), strict=False)
            return
        check_model_folder(
            Path(checkpoint_path), known={fullname(module) for module in self.model.modules()}
        )
        with loading_model():
            super()._load_from_checkpoint(checkpoint_path)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save a checkpoint, unless a weight is not finite."""
        check_weights(self.model, self.state.global_step)
        folder = Path(self.args.output_dir)
        try:
            with writing(folder):
                super()._save_checkpoint(model, trial)
        except RuntimeError as error:  # torch raises it on a full disk ("unexpected pos")
            raise storage_error(folder, error) from error

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Skip the automatic model card; the run writes one with its measures."""


@cache
def trainer_class(kind: type[Kind]) -> type[OperaTrainer]:
    """Return OPERA's trainer for a kind of models."""
    return type("OperaTrainer", (OperaTrainer, kind.trainer_class), {})


def training_arguments(
    settings: TrainSettings, model: SentenceTransformer, checkpoints: Path
) -> BaseTrainingArguments:
    """Convert OPERA's settings to the trainer's arguments.

    Args:
        settings: the run's settings, automatic ones resolved.
        model: the model that will train, for its prompts and device.
        checkpoints: folder for checkpoints, which the trainer creates.

    Raises:
        SettingError: if transformers rejects a value.
    """
    try:
        arguments = encoding_kind_of(model).arguments_class(
            **{**(settings.trainer or {}), **fixed_arguments(settings, model, checkpoints)}
        )
        Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    except (TypeError, ValueError, ImportError, RuntimeError) as error:
        unset_hf_deepspeed_config()  # a partial configuration would break the next model
        raise SettingError(f"transformers rejects the settings: {error}") from None
    if arguments.n_gpu > 1:  # DataParallel would split batches, which the sampler does not know
        arguments._n_gpu = 1
    return arguments


def fixed_arguments(
    settings: TrainSettings, model: SentenceTransformer, checkpoints: Path
) -> dict[str, Any]:
    """Return the arguments that OPERA decides, or has settings for.

    The user decides the other arguments of :func:`opera.config.optimisation.is_trainer_field`.
    """
    precision = resolve_precision(settings.precision, model.device.type, not is_static(model))
    on_dev, metric = settings.evaluates_on_dev, trainer_key(settings.metric_for_best_model)
    # torch's fused AdamW is faster; on CPUs its square root is also the same on every processor,
    # which OPERA_REPRODUCIBLE needs
    fused = settings.of_trainer("optim") == "adamw_torch" and model.device.type in ("cpu", "cuda")
    roles = column_roles(settings.n_negatives)
    prompts = {column: text for column, role in roles.items() if (text := prompt_for(model, role))}
    most_saved = settings.of_trainer("save_total_limit")
    return {
        "output_dir": str(checkpoints.resolve()),
        "max_steps": settings.max_steps,
        "per_device_train_batch_size": settings.per_device_train_batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation_steps,
        "gradient_checkpointing": None,  # prepare_model has switched it on
        "learning_rate": settings.learning_rate,
        "warmup_steps": settings.warmup_ratio,  # below 1 it is a fraction of the steps
        "optim": "adamw_torch_fused" if fused else settings.of_trainer("optim"),
        "seed": settings.seed,
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "use_cpu": model.device.type == "cpu",
        "prompts": prompts or None,
        "router_mapping": roles,
        "report_to": "none",  # run/steps.py opens the services before the run writes files
        "logging_steps": settings.of_trainer("logging_steps"),
        "save_strategy": "steps",
        "save_steps": settings.steps_between_checkpoints,
        # the trainer deletes old checkpoints before the newest one is complete
        "save_total_limit": None if most_saved is None else max(2, most_saved),
        "eval_strategy": "steps" if on_dev else "no",
        "eval_steps": settings.eval_steps,
        "load_best_model_at_end": settings.of_trainer("load_best_model_at_end"),
        "metric_for_best_model": metric if on_dev else None,
        "greater_is_better": True if on_dev else None,
        "restore_callback_states_from_checkpoint": True,
        "ignore_data_skip": True,  # the sampler restores its saved state
        **_distributed_arguments(model),
    }


def _distributed_arguments(model: SentenceTransformer) -> dict[str, Any]:
    if process_count() == 1:  # torchrun may have started it
        return {"ddp_find_unused_parameters": False} if reads_vectors(model) else {}
    return {
        "ddp_backend": "gloo" if model.device.type == "cpu" else "nccl",
        "ddp_timeout": int(WAIT.total_seconds()),
        # buffers never change, and processes make different numbers of forward passes
        "ddp_broadcast_buffers": False,
        "ddp_find_unused_parameters": False,  # train() has frozen them
    }


def check_weights(model: SentenceTransformer, step: int) -> None:
    """Check that all weights are finite.

    Raises:
        TrainingError: with the first parameter that is not.
    """
    for name, tensor in model.state_dict().items():
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.is_floating_point()
            and not torch.isfinite(tensor).all()
        ):
            raise TrainingError(
                f"step {step}: {name} has values that are not finite numbers, so OPERA does not "
                f"save the model; {ADVICE_NOT_FINITE}, and start again with --overwrite"
            )


LAG = 1
"""Steps between an observation and its first use. The loader reads no batch ahead."""


def make_sampler(training_set: TrainingSet, recipe: Recipe) -> Sampler:
    """Create the methods and the sampler of a run; automatic settings must be resolved."""
    settings, processes = recipe.train, process_count()
    sets, sources = training_set.sets, training_set.negatives.sets
    visits = FirstVisits.none(
        training_set.pairs.n_pairs,
        training_set.first_pairs,
        np.concatenate([data_set.confirmed for data_set in sets]),
        [data_set.decided.removed_excess for data_set in sets],
        training_set.copies,
    )
    methods = training_set.methods(recipe, processes)
    return Sampler(
        [
            DataSetSampler(method, negatives, data_set.first_doc_row)
            for method, negatives, data_set in zip(methods, sources, sets, strict=True)
        ],
        training_set.pairs,
        recipe.plan(processes),
        resolved(settings.per_device_train_batch_size),
        quotas=training_set.quotas,
        n_negatives=settings.n_negatives,
        lag=LAG,
        rank=process_index(),
        world_size=processes,
        pair_weights=training_set.loss_weights if settings.pair_weights == "loss" else None,
        visits=visits,
    )


@dataclass(frozen=True)
class Fit:
    """The result of training. The trained weights are in the model itself.

    Attributes:
        training_set: the training pairs.
        sampler: has sampled and observed all steps.
        visits: the first visit of each pair.
        record: the training's part of ``run.json``.
    """

    training_set: TrainingSet
    sampler: Sampler
    visits: FirstVisits
    record: TrainingRecord

    @cached_property
    def noisy_labels(self) -> NoisyLabels | None:
        """The estimate from first visits, or ``None`` if too few pairs were trained."""
        noisy_labels = estimate(self.training_set.pairs, self.visits, self.sampler.kept)
        if noisy_labels is None:
            log.info("note: too few pairs met random documents to estimate the noise rate")
        return noisy_labels


def train(
    model: SentenceTransformer,
    training_set: TrainingSet,
    sampler: Sampler,
    settings: TrainSettings,
    run: RunWriter,
    resume: bool = False,
    callbacks: Sequence[Any] = (),
    dev: Mixture | None = None,
) -> Fit:
    """Train a model in place; with ``resume``, continue from the newest checkpoint in ``run``.

    ``dev`` holds the documents that dev queries rank during training; by default all.

    Raises:
        TrainingError: if a loss or a weight is not a finite number.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the checkpoint is saved.
    """
    if process_count() > 1:
        freeze_unused_parameters(model)
    measure, corpus_text = settings.metric_for_best_model, settings.corpus_text

    def on_dev(model: SentenceTransformer) -> dict[str, float]:
        encoder = encoder_of(model, settings, show_progress=False)
        mixture = dev or training_set.mixture
        return evaluate_encoder(encoder, mixture, "dev", [measure], corpus_text).measures

    dataset, collator = make_dataset(model, training_set, settings)
    loss: InBatchLoss = LOSSES.find(settings.loss)(model, training_set, sampler, settings)
    trace, stopper, saved = Trace(sampler, run), Stopper(), SamplerCallback([sampler])
    trainer = trainer_class(loss.kind)(
        model=model,
        args=training_arguments(settings, model, run.checkpoints),
        train_dataset=dataset,
        data_collator=collator,
        loss=loss,
        sampler=sampler,
        on_dev=on_dev if settings.evaluates_on_dev else None,
        callbacks=[saved, trace, stopper, Progress(measure, run.writes), *callbacks],
    )
    checkpoint = _resume(saved, trace) if resume else None
    resumed_from = sampler.trained_steps
    try:
        with TokenModel(model, may_pack=loss.packs).packing(), loss.kind.training(model):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        stopper.close()
        for callback in trainer.callback_handler.callbacks:  # else an error leaves a bar open
            if (bar := getattr(callback, "training_bar", None)) is not None:
                bar.close()
    check_weights(model, trainer.state.global_step)
    run.write_trace(trace.rows)
    run.write_draws(sampler.sampled_ids(), sampler.plan.batch_size)
    if stopper.stopped:
        raise KeyboardInterrupt
    record = _record(trainer.state, settings, resumed_from)
    return Fit(training_set, sampler, sampler.all_visits(), record)


def _record(state: TrainerState, settings: TrainSettings, resumed_from: int) -> TrainingRecord:
    """Return the training's part of ``run.json``."""
    measure = settings.metric_for_best_model
    metric = trainer_key(measure)
    return TrainingRecord(
        steps=state.global_step,
        resumed_from=resumed_from,
        best_step=state.best_global_step,
        best_value=state.best_metric,
        evaluations=[
            (entry["step"], entry[metric]) for entry in state.log_history if metric in entry
        ],
        measure=measure if settings.evaluates_on_dev else None,
        lag=LAG,
    )


def _resume(saved: SamplerCallback, trace: Trace) -> Path | None:
    """Restore the sampler and the trace from the newest checkpoint, if there is one."""
    checkpoint = from_main(
        newest_checkpoint(trace.run.checkpoints) if process_index() == 0 else None
    )
    if checkpoint:
        saved.load_state_dict(nest(read_arrays(checkpoint / SAMPLER_FILE)))
        trace.rows = Run(checkpoint).trace().to_pylist()
        log.info("resuming from step %d", trace.sampler.trained_steps)
    return checkpoint
