"""Build the training set, the sampler, the loss and the trainer, and train the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
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
from opera.core.terminal import counted, log
from opera.data import Mixture
from opera.data.identity import text_keys
from opera.encoder.packing import packing
from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.review import visit_columns
from opera.labels.visits import FirstVisits
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import freeze_unused_parameters
from opera.run_folder.folder import SAMPLER_FILE, Run, RunWriter
from opera.run_folder.record import NegativesRecord, TrainingRecord
from opera.training.build import TrainingSet, build_training_set
from opera.training.callbacks import Progress, Stopper, Trace
from opera.training.checkpoint import SamplerCallback, newest_checkpoint, read_state
from opera.training.dataset import make_dataset
from opera.training.distillation import DistillationLoss  # noqa: F401 (registers itself)
from opera.training.distributed import refuse_differences
from opera.training.loss import InBatchLoss
from opera.training.prepare import encoder_of
from opera.training.quotas import plan_of, summary_of
from opera.training.sampler import DataSetSampler, Sampler
from opera.training.session import Session
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
        np.concatenate([part.confirmed for part in sets]),
        [part.decided.removed_excess for part in sets],
        training_set.copies,
    )
    methods = training_set.methods(recipe, processes)
    return Sampler(
        [
            DataSetSampler(method, negatives, part.first_document)
            for method, negatives, part in zip(methods, sources, sets, strict=True)
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

    def pair_columns(self) -> dict[str, Any]:
        """Return the columns of ``pairs.parquet``."""
        data, train = self.training_set.data, self.training_set.train
        pairs, scores = self.training_set.pairs, self.training_set.scores
        cbs = [part.cbs for part in scores if part.cbs is not None]
        optional = {
            "weight": train.weights,
            "similarity": self.training_set.similarity,
            "cbs": np.concatenate(cbs) if cbs else None,
        }
        return {
            "query_id": data.queries.id_column(train.query_rows[pairs.pair_query]),
            "doc_id": data.corpus.id_column(pairs.pair_doc),
            "grade": train.grades,
            "times_drawn": self.sampler.times_drawn(),
            "kept": self.sampler.kept,
            **visit_columns(self.noisy_labels, self.visits),
            **{name: values for name, values in optional.items() if values is not None},
        }


def fit(
    session: Session,
    data: Mixture,
    run: RunWriter,
    phase: str,
    description: str,
    first: Fit | None = None,
) -> Fit:
    """Train the session's model, which must hold its base weights.

    Args:
        session: the run.
        data: the data sets; their train splits are used.
        run: writes the trace and the checkpoints.
        phase: name of the training in ``seconds``.
        description: of the training in the log.
        first: an earlier training of the run, whose first visits this training copies.
    """
    prepared = session.prepared
    with session.phase("score_and_mine", "building the training set"):
        training_set = build_training_set(prepared, data)
        refuse_differences("training pairs, scores or negatives", training_set.shared_arrays)
        sampler = make_sampler(training_set, prepared.recipe)
    queries = np.logical_or.reduceat(sampler.kept, training_set.pairs.query_offsets[:-1])
    log.info(
        "training on %s of %s (method: %s)",
        counted(int(sampler.kept.sum()), "pair"),
        counted(int(queries.sum()), "query"),
        prepared.recipe.method,
    )
    session.update(**facts_of(training_set, sampler))
    with session.phase(phase, description):
        if first is not None:
            keys, earlier_keys = (
                text_keys(one.data, one.train) for one in (training_set, first.training_set)
            )
            sampler.visits.take_over(keys, first.visits, earlier_keys)
        model, settings = prepared.model.trained, prepared.settings
        return train(model, training_set, sampler, settings, run, session.resume, session.callbacks)


def facts_of(training_set: TrainingSet, sampler: Sampler) -> dict[str, Any]:
    """Return the entries of ``run.json`` about the method and the training set."""
    methods = [data_set.method for data_set in sampler.sets]
    negatives, lists = training_set.negatives, training_set.negatives.lists
    listed = (
        {}
        if lists is None
        else {"queries_without": lists.queries_without, "listed": len(lists.doc_rows)}
    )
    pools = [
        scores.smallest_pool for scores in training_set.scores if scores.smallest_pool is not None
    ]
    return {
        "method": summary_of(methods),
        "negatives": NegativesRecord(kind=negatives.kind, **listed),
        "smallest_cbs_pool": min(pools, default=None),
    }


def make_loss(
    model: SentenceTransformer,
    training_set: TrainingSet,
    sampler: Sampler,
    settings: TrainSettings,
) -> InBatchLoss:
    """Create the loss of a run, which reports to the sampler."""
    loss: InBatchLoss = LOSSES.find(settings.loss)(
        model,
        resolved(settings.temperature),
        training_set.negatives.known,
        masks=settings.mask_known_positives,
        gradient_cache=settings.gradient_cache,
        sizes=settings.matryoshka or (),
    )
    loss.sampler = sampler
    loss.prepare(training_set, settings)
    loss.negatives_are_random = training_set.negatives.kind in ("random", "labelled")
    loss.packs = not (settings.trainer or {}).get("torch_compile")
    return loss


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
    loss = make_loss(model, training_set, sampler, settings)
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
        with packing(model) if loss.packs else nullcontext():
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
