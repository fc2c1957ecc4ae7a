"""Train a model on a training set: method, sampler, loss and trainer put together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback

from opera.config.optimisation import LOSSES
from opera.config.training import TrainSettings
from opera.core.processes import from_main
from opera.core.settings import resolved
from opera.encoder.heap import give_freed_memory_back
from opera.encoder.packing import packing
from opera.encoder.token_ids import has_token_path, prompt_length
from opera.encoder.token_store import TokenSource, training_tokens
from opera.methods import Method
from opera.retrieval.models import freeze_unused_parameters, model_kind, reads_vectors
from opera.runs.folder import TRACE_FILE, Run, RunWriter
from opera.runs.housekeeping import last_complete_checkpoint
from opera.runs.reading import broken
from opera.runs.record import TrainingRecord
from opera.training.callbacks import Progress, Stopper, Trace
from opera.training.checkpoint import load_sampler, loading, newest_checkpoint, stopped_early
from opera.training.curves import Curves
from opera.training.dataset import PairDataset, RowDataset, TokenCollator, TokenDataset
from opera.training.distillation import DistillationLoss  # noqa: F401 (registers itself)
from opera.training.loss import InBatchLoss
from opera.training.not_finite import NotFiniteError, check_weights, with_pairs
from opera.training.sampler import PairSampler
from opera.training.sampling_recorder import SamplingRecorder
from opera.training.trainer import (
    DevEvaluator,
    OperaTrainer,
    column_roles,
    training_arguments,
    training_prompts,
)
from opera.training_set.build import TrainingSet

log = logging.getLogger("opera")


@dataclass(frozen=True)
class TrainingResult:
    """How training went.

    Attributes:
        record: facts for ``run.json``.
        times_drawn: int64 ``[N]``, how often each training pair was drawn.
    """

    record: TrainingRecord
    times_drawn: NDArray[np.int64]


def train(
    model: SentenceTransformer,
    training_set: TrainingSet,
    method: Method[Any],
    settings: TrainSettings,
    run: RunWriter,
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainingResult:
    """Train ``model`` in place.

    Args:
        model: the model.
        training_set: pairs, negatives and texts.
        method: decides which pairs each step trains on.
        settings: the run's settings.
        run: the run folder, for checkpoints and the trace.
        resume: continue from the newest checkpoint, if there is one.
        callbacks: additional transformers callbacks for the trainer.

    Raises:
        TrainingError: if a loss, a gradient or a weight is not a finite number; the last checkpoint is kept.
        RunFolderError: if the checkpoint to resume from cannot be used.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the checkpoint is saved.
    """
    sampler = _make_sampler(training_set, method, settings)
    trace, stopper, progress = (
        Trace(sampler, run),
        Stopper(),
        Progress(settings.dev_measure),
    )
    if PartialState().num_processes > 1 and (unused := freeze_unused_parameters(model)):
        log.info("note: froze %d parameters that no embedding depends on", len(unused))
    loss = _make_loss(model, training_set, sampler, trace, settings)
    trainer = _make_trainer(
        model, training_set, sampler, loss, trace, settings, [stopper, progress, *callbacks]
    )
    checkpoint = _resume(sampler, trace, run) if resume else None
    resumed_from = sampler.trained_steps
    run.clear_not_finite()
    if model_kind(model) == "static":
        give_freed_memory_back()
    try:
        with (
            packing(model) if loss.packs else nullcontext(),
            loading(checkpoint, lambda: trace.begun),
        ):
            if checkpoint and stopped_early(checkpoint, settings.early_stopping_patience):
                trainer.args.max_steps = (
                    sampler.trained_steps
                )  # no step is left, but what follows training is
                sampler.end()
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except NotFiniteError as error:
        raise with_pairs(error, training_set, run, last_complete_checkpoint(run.path)) from None
    finally:
        stopper.close()
    check_weights(model, trainer.state.global_step)
    trace.write(run)
    if stopper.stopped:
        raise KeyboardInterrupt
    measure = settings.dev_measure
    metric = f"eval_{measure}"
    record = TrainingRecord(
        steps=trainer.state.global_step,
        resumed_from=resumed_from,
        best_step=trainer.state.best_global_step,
        best_value=trainer.state.best_metric,
        evaluations=[
            (row["step"], row[metric]) for row in trainer.state.log_history if metric in row
        ],
        measure=measure if settings.evaluates_on_dev else None,
        lag=sampler.lag,
    )
    return TrainingResult(record, sampler.times_drawn())


def _make_sampler(
    training_set: TrainingSet, method: Method[Any], settings: TrainSettings
) -> PairSampler:
    processes, snapshots = PartialState(), settings.snapshots
    records = snapshots > 0 and processes.is_main_process
    return PairSampler(
        method,
        training_set.pairs,
        training_set.negatives,
        settings.n_negatives,
        resolved(settings.per_device_train_batch_size),
        settings.resolved_lag,
        processes.process_index,
        processes.num_processes,
        SamplingRecorder(method, snapshots) if records else None,
        training_set.loss_weights,
    )


def _make_loss(
    model: SentenceTransformer,
    training_set: TrainingSet,
    sampler: PairSampler,
    trace: Trace,
    settings: TrainSettings,
) -> InBatchLoss:
    def observe(
        step: int,
        pair_ids: NDArray[np.int64],
        similarity: NDArray[np.float32],
        loss: NDArray[np.float32],
    ) -> None:
        sampler.observe(step, pair_ids, similarity, loss)
        trace.add_losses(loss)

    loss: type[InBatchLoss] = LOSSES.find(settings.loss)
    made = loss(
        model,
        sampler,
        resolved(settings.temperature),
        training_set.known if settings.mask_known_positives else None,
        observe,
        gradient_cache=settings.gradient_cache,
        sizes=settings.matryoshka or (),
    )
    made.use(training_set, settings)
    made.packs = not (settings.trainer or {}).get("torch_compile")
    return made


def _make_trainer(
    model: SentenceTransformer,
    training_set: TrainingSet,
    sampler: PairSampler,
    loss: InBatchLoss,
    trace: Trace,
    settings: TrainSettings,
    callbacks: Sequence[TrainerCallback],
) -> OperaTrainer:
    curves = Curves(sampler)
    dataset, collator = _make_dataset(model, training_set, settings)
    trainer = OperaTrainer(
        model=model,
        args=training_arguments(settings, model, trace.run.checkpoints),
        train_dataset=dataset,
        data_collator=collator,
        loss=loss,
        evaluator=DevEvaluator(training_set.data, settings) if settings.evaluates_on_dev else None,
        sampler=sampler,
        curves=lambda: curves.values(trace.schedule),
        callbacks=[trace, *callbacks],
    )
    for unwanted in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(unwanted)
    if settings.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(settings.early_stopping_patience))
    return trainer


def _make_dataset(
    model: SentenceTransformer, training_set: TrainingSet, settings: TrainSettings
) -> tuple[PairDataset, TokenCollator | None]:
    """Make what gives a batch its texts: as token ids, as rows for a model that looks vectors up, else as they are.

    The second makes a batch of token ids; the library's own makes one of texts.
    """
    data, rows = training_set.data, training_set.query_rows
    n_negatives, corpus_text = settings.n_negatives, settings.corpus_text
    if reads_vectors(model):
        return RowDataset(data, rows, n_negatives, corpus_text), None
    prompts = training_prompts(model, settings)
    if not all(has_token_path(model, role, prompt) for role, prompt in prompts.items()):
        log.info(
            "note: %s tokenises texts in its own way, each time they are drawn",
            type(model[0]).__name__,
        )
        return PairDataset(data, rows, n_negatives, corpus_text), None
    drawn = resolved(settings.max_steps) * settings.queries_per_step(PartialState().num_processes)
    queries = TokenSource.of_queries(model, data, prompts["query"])
    documents = TokenSource.of_corpus(model, data, prompts["document"], corpus_text)
    stored = training_tokens(queries, drawn), training_tokens(documents, drawn * (1 + n_negatives))
    lengths = {
        column: prompt_length(model, prompts[role])
        for column, role in column_roles(settings).items()
    }
    return TokenDataset(data, rows, n_negatives, *stored), TokenCollator(lengths)


def _resume(sampler: PairSampler, trace: Trace, run: RunWriter) -> Path | None:
    """Restore sampler, trace and recorded probabilities from the newest checkpoint, if there is one."""
    checkpoint = from_main(
        newest_checkpoint(run.checkpoints) if PartialState().is_main_process else None
    )
    if checkpoint:
        # a checkpoint of an earlier version has no trace of its own: the run's, which goes on behind it, has its steps
        home = Run(checkpoint if (checkpoint / TRACE_FILE).is_file() else run.path)
        with loading(checkpoint):
            load_sampler(checkpoint, sampler)
            trace.rows = [
                row for row in home.trace().to_pylist() if row["step"] <= sampler.trained_steps
            ]
            if [row["step"] for row in trace.rows] != list(range(1, sampler.trained_steps + 1)):
                raise broken(home.path / TRACE_FILE, f"lacks steps before {sampler.trained_steps}")
            earlier = home.sampling()
            if sampler.recorder is not None and earlier is not None:
                sampler.recorder.resume_from(earlier.until(sampler.next_step))
    log.info("resuming from step %d", sampler.trained_steps)
    return checkpoint
