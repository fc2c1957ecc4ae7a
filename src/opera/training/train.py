"""Train a model: create the sampler, the loss and the trainer, and run the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from transformers import TrainerState

from opera.config.optimisation import LOSSES
from opera.config.recipe import Recipe
from opera.config.training import TrainSettings
from opera.core.measure_names import trainer_key
from opera.core.processes import from_main, process_count, process_index
from opera.core.settings import resolved
from opera.core.terminal import log
from opera.encoder import TokenModel
from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.visits import FirstVisits
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import freeze_unused_parameters
from opera.run_folder.folder import SAMPLER_FILE, Run, RunWriter
from opera.run_folder.record import TrainingRecord
from opera.training.build import TrainingSet
from opera.training.callbacks import Progress, Stopper, Trace
from opera.training.checkpoint import SamplerCallback, newest_checkpoint, read_state
from opera.training.dataset import make_dataset
from opera.training.distillation import DistillationLoss  # noqa: F401 (registers itself)
from opera.training.loss import InBatchLoss
from opera.training.prepare import encoder_of
from opera.training.quotas import plan_of
from opera.training.sampler import DataSetSampler, Sampler
from opera.training.trainer import OperaTrainer, check_weights, training_arguments

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
            DataSetSampler(method, negatives, data_set.first_document)
            for method, negatives, data_set in zip(methods, sources, sets, strict=True)
        ],
        training_set.pairs,
        plan_of(recipe, processes),
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
            log.info("note: too few pairs were trained to estimate the noise rate")
        return noisy_labels


def train(
    model: SentenceTransformer,
    training_set: TrainingSet,
    sampler: Sampler,
    settings: TrainSettings,
    run: RunWriter,
    resume: bool = False,
    callbacks: Sequence[Any] = (),
) -> Fit:
    """Train a model in place; with ``resume``, continue from the newest checkpoint in ``run``.

    Raises:
        TrainingError: if a loss, a gradient or a weight is not a finite number.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the checkpoint is saved.
    """
    if process_count() > 1:
        freeze_unused_parameters(model)
    measure, corpus_text = settings.metric_for_best_model, settings.corpus_text

    def on_dev(model: SentenceTransformer) -> dict[str, float]:
        encoder = encoder_of(model, settings, show_progress=False)
        mixture = training_set.mixture
        return evaluate_encoder(encoder, mixture, "dev", [measure], corpus_text).measures

    dataset, collator = make_dataset(model, training_set, settings)
    loss: InBatchLoss = LOSSES.find(settings.loss)(model, training_set, sampler, settings)
    trace, stopper, saved = Trace(sampler, run), Stopper(), SamplerCallback([sampler])
    trainer = OperaTrainer(
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
        with TokenModel(model, may_pack=loss.packs).packing():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        stopper.close()
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
        evaluations=[(row["step"], row[metric]) for row in state.log_history if metric in row],
        measure=measure if settings.evaluates_on_dev else None,
        lag=LAG,
    )


def _resume(saved: SamplerCallback, trace: Trace) -> Path | None:
    """Restore the sampler and the trace from the newest checkpoint, if there is one."""
    checkpoint = from_main(
        newest_checkpoint(trace.run.checkpoints) if process_index() == 0 else None
    )
    if checkpoint:
        saved.load_state_dict(read_state(checkpoint / SAMPLER_FILE))
        trace.rows = Run(checkpoint).trace().to_pylist()
    log.info("resuming from step %d", trace.sampler.trained_steps)
    return checkpoint
