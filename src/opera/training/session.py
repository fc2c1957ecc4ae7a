"""One training session: method, sampler, loss and trainer put together."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from opera.config.recipe import TrainSettings
from opera.data import RetrievalData
from opera.data.pairs import TrainingPairs
from opera.methods import Method
from opera.retrieval.models import freeze_unused_parameters
from opera.runs.folder import SAMPLER_FILE, TRACE_FILE, Run, RunWriter
from opera.runs.sampling import SamplingRecorder
from opera.training.callbacks import Progress, Stopper, Trace, damage, nest
from opera.training.dataset import PairDataset
from opera.training.distributed import from_main, is_main, rank, world_size
from opera.training.loss import InfoNCELoss
from opera.training.sampler import PairSampler
from opera.training.trainer import OperaTrainer, SplitEvaluator
from opera.training_set.known_positives import KnownPositives
from opera.training_set.negatives import Negatives

log = logging.getLogger("opera")


@dataclass(frozen=True)
class TrainingResult:
    """How training went.

    Attributes:
        steps: optimizer steps done, over all sittings.
        resumed_from: the step this sitting went on from, 0 for a fresh start.
        best_step: the step of the best dev evaluation, where there were evaluations.
        best_value: its measure.
        evaluations: step and measure of each dev evaluation.
        lag: steps between an observation and the first draw that uses it.
        times_drawn: int64 ``[N]``, how often each training pair was drawn.
    """

    steps: int
    resumed_from: int
    best_step: int | None
    best_value: float | None
    evaluations: list[tuple[int, float]]
    lag: int
    times_drawn: NDArray[np.int64]

    def about(self) -> dict[str, Any]:
        """Everything but the arrays, for ``run.json``."""
        return {name: value for name, value in vars(self).items() if name != "times_drawn"}


def train(
    model: SentenceTransformer,
    data: RetrievalData,
    query_rows: NDArray[np.int32],
    pairs: TrainingPairs,
    method: Method[Any],
    negatives: Negatives,
    known: KnownPositives,
    settings: TrainSettings,
    arguments: SentenceTransformerTrainingArguments,
    writer: RunWriter,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainingResult:
    """Train ``model`` in place.

    Args:
        model: the model.
        data: where the texts are.
        query_rows: int32 ``[n]``, the query table's row of each training query.
        pairs: the training pairs.
        method: says which pairs each step trains on.
        negatives: gives the explicit negatives.
        known: the known positives, for the mask.
        settings: the run's settings.
        arguments: the trainer's own, made of them by :func:`training_arguments`.
        writer: of the run folder, for checkpoints and the trace.
        resume: go on from the newest checkpoint, if there is one.
        callbacks: more transformers callbacks for the trainer.

    Raises:
        TrainingError: if the loss stops being a number.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the checkpoint is saved.
    """
    n_negatives = settings.train_group_size - 1
    sampler = PairSampler(
        method,
        pairs,
        negatives,
        n_negatives,
        settings.per_device_train_batch_size,
        settings.stated_lag,
        rank(),
        world_size(),
        SamplingRecorder(method, settings.snapshots) if settings.snapshots and is_main() else None,
    )
    trace, stopper = Trace(sampler, writer), Stopper()
    if world_size() > 1 and (unused := freeze_unused_parameters(model)):
        log.info("note: %d parameters that no embedding depends on do not train", len(unused))
    loss = InfoNCELoss(
        model,
        pairs,
        settings.temperature,
        known if settings.mask_known_positives else None,
        _observer(sampler, trace),
    )
    trainer = OperaTrainer(
        model=model,
        args=arguments,
        train_dataset=PairDataset(data, query_rows, pairs.n_pairs, n_negatives, settings.corpus_text),
        loss=loss,
        evaluator=SplitEvaluator(data, "dev", settings, [settings.metric_for_best_model])
        if settings.needs_dev
        else None,
        sampler=sampler,
        callbacks=[trace, stopper, Progress(settings.metric_for_best_model), *callbacks],
    )
    for unwanted in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(unwanted)
    if settings.early_stopping_patience is not None:
        trainer.add_callback(EarlyStoppingCallback(settings.early_stopping_patience))
    checkpoint = from_main(newest_checkpoint(writer) if resume and is_main() else None)
    if checkpoint:
        _restore(sampler, trace, checkpoint, writer)
    if resume:
        log.info("resuming from step %d", sampler.trained_steps)
    resumed_from = sampler.trained_steps
    if checkpoint and _stopped_early(checkpoint, settings.early_stopping_patience):
        trainer.args.max_steps = sampler.trained_steps  # no step is left, but what follows training is
        sampler.end()
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        stopper.close()
    trace.write()
    metric = f"eval_{settings.metric_for_best_model}"
    if stopper.stopped:
        raise KeyboardInterrupt
    return TrainingResult(
        steps=trainer.state.global_step,
        resumed_from=resumed_from,
        best_step=trainer.state.best_global_step,
        best_value=trainer.state.best_metric,
        evaluations=[(row["step"], row[metric]) for row in trainer.state.log_history if metric in row],
        lag=sampler.lag,
        times_drawn=sampler.times_drawn(),
    )


def newest_checkpoint(writer: RunWriter) -> Path | None:
    """Return the newest whole checkpoint, or ``None``; damaged ones, and those cut off in writing, are removed."""
    checkpoints = sorted(writer.checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[-1]))
    for folder in reversed(checkpoints):
        wrong = damage(folder)
        if not wrong:
            return folder
        log.info("note: %s is not whole (%s); going on from the one before", folder.name, wrong)
        shutil.rmtree(folder)
    return None


def _stopped_early(checkpoint: Path, patience: int | None) -> bool:
    """Whether patience had run out when a checkpoint was saved; transformers restores the count, not the stop."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    early = state.stateful_callbacks.get("EarlyStoppingCallback", {})
    count = early.get("attributes", {}).get("early_stopping_patience_counter", 0)
    return patience is not None and count >= patience


def _observer(sampler: PairSampler, trace: Trace) -> Callable[..., None]:
    def observe(
        step: int, pair_ids: NDArray[np.int64], similarity: NDArray[np.float32], loss: NDArray[np.float32]
    ) -> None:
        sampler.observe(step, pair_ids, similarity, loss)
        trace.saw(loss)

    return observe


def _restore(sampler: PairSampler, trace: Trace, checkpoint: Path, writer: RunWriter) -> None:
    with np.load(checkpoint / SAMPLER_FILE) as arrays:
        sampler.load_state_dict(nest({key: arrays[key] for key in arrays.files}))
    rows = pq.read_table(writer.path / TRACE_FILE).to_pylist()
    trace.rows = [row for row in rows if row["step"] <= sampler.trained_steps]
    earlier = Run(writer.path).sampling()
    if sampler.recorder is not None and earlier is not None:
        sampler.recorder.resume_from(earlier.until(sampler.next_step))
