"""Build the training set, the sampler, the loss and the trainer, and train the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import PrinterCallback, ProgressCallback

from opera.config.optimisation import LOSSES
from opera.config.recipe import Recipe
from opera.core.arrays import BoolArray
from opera.core.measure_names import trainer_key
from opera.core.processes import from_main, process_count
from opera.core.settings import resolved
from opera.core.terminal import counted, log
from opera.data import Mixture
from opera.data.identity import text_keys
from opera.encoder.packing import packing
from opera.labels.estimate import NoisyLabels, estimate
from opera.labels.review import visit_columns
from opera.labels.visits import FirstVisits
from opera.methods import Method
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.models import freeze_unused_parameters
from opera.run_folder.folder import SAMPLER_FILE, Run, RunWriter
from opera.run_folder.record import NegativesRecord, TrainingRecord
from opera.training.build import TrainingSet, build_training_set
from opera.training.callbacks import Progress, Stopper, Trace
from opera.training.dataset import make_dataset
from opera.training.distillation import DistillationLoss  # noqa: F401 (registers itself)
from opera.training.distributed import refuse_differences
from opera.training.loss import InBatchLoss
from opera.training.prepare import encoder_of
from opera.training.quotas import plan_of, summary_of
from opera.training.sampler import PairSampler, SetSampler
from opera.training.sampler_link import SamplerLink, newest_checkpoint, read_state
from opera.training.session import Session
from opera.training.trainer import OperaTrainer, check_weights, training_arguments

LAG = 1
"""Steps between an observation and its first use. The loader reads no batch ahead."""


class RunSamplerLink(SamplerLink):
    """Samples the pairs of a training set by the method of a recipe.

    Args:
        model: the model that trains.
        training_set: the pairs to train on.
        recipe: all settings, automatic ones resolved.
        methods: one per data set; by default as in the recipe.

    Attributes:
        dataset: looks up the texts of a batch.
        collator: collates token ids; ``None`` for sentence-transformers' collator of texts.
        sampler: samples the pairs of each step.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        training_set: TrainingSet,
        recipe: Recipe,
        methods: Sequence[Method[Any]] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.training_set, self.settings = model, training_set, recipe.train
        processes = process_count()
        self.methods = training_set.methods(recipe, processes) if methods is None else methods
        visits = FirstVisits.none(
            training_set.pairs.n_pairs,
            training_set.first_pairs,
            np.concatenate([part.confirmed for part in training_set.sets]),
            [part.decided.removed_excess for part in training_set.sets],
            training_set.copies,
        )
        parts = zip(self.methods, training_set.negatives.sets, training_set.sets, strict=True)
        self.sampler = PairSampler(
            [
                SetSampler(method, negatives, part.first_document)
                for method, negatives, part in parts
            ],
            training_set.pairs,
            plan_of(recipe, processes),
            resolved(self.settings.per_device_train_batch_size),
            quotas=training_set.quotas,
            n_negatives=self.settings.n_negatives,
            lag=LAG,
            rank=PartialState().process_index,
            world_size=processes,
            pair_weights=(
                training_set.loss_weights if self.settings.pair_weights == "loss" else None
            ),
            visits=visits,
        )
        self.samplers = [self.sampler]
        self.dataset, self.collator = make_dataset(model, training_set, self.settings)


@dataclass(frozen=True)
class Fit:
    """The result of training. The trained weights are in the model itself.

    Attributes:
        training_set: the training pairs.
        methods: one per data set.
        record: the training's part of ``run.json``.
        times_drawn: int64 ``[N]``, how often each pair was sampled.
        kept: bool ``[N]``, the pairs that the methods did not prune before training.
        visits: the first visit of each pair.
    """

    training_set: TrainingSet
    methods: Sequence[Method[Any]]
    record: TrainingRecord
    times_drawn: NDArray[np.int64]
    kept: BoolArray
    visits: FirstVisits

    @cached_property
    def noisy_labels(self) -> NoisyLabels | None:
        """The estimate from first visits, or ``None`` if too few pairs were trained."""
        noisy_labels = estimate(self.training_set.pairs, self.visits, self.kept)
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
            "times_drawn": self.times_drawn,
            "kept": self.kept,
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
        methods = training_set.methods(prepared.recipe, prepared.processes)
    n_pairs = sum(int(method.kept.sum()) for method in methods)
    n_queries = sum(len(np.unique(method.pairs.pair_query[method.kept])) for method in methods)
    log.info(
        "training on %s of %s (method: %s)",
        counted(n_pairs, "pair"), counted(n_queries, "query"), prepared.recipe.method,
    )  # fmt: skip
    session.update(**facts_of(training_set, methods))
    with session.phase(phase, description):
        link = RunSamplerLink(prepared.model.trained, training_set, prepared.recipe, methods)
        if first is not None:
            keys, earlier_keys = (
                text_keys(one.data, one.train) for one in (training_set, first.training_set)
            )
            link.sampler.visits.take_over(keys, first.visits, earlier_keys)
        return train(link, run, session.resume, session.callbacks)


def facts_of(training_set: TrainingSet, methods: Sequence[Method[Any]]) -> dict[str, Any]:
    """Return the entries of ``run.json`` about the method and the training set."""
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


def train(
    link: RunSamplerLink,
    run: RunWriter,
    resume: bool = False,
    callbacks: Sequence[Any] = (),
) -> Fit:
    """Train a model in place; with ``resume``, continue from the newest checkpoint in ``run``.

    Raises:
        TrainingError: if a loss, a gradient or a weight is not a finite number.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, once the checkpoint is saved.
    """
    model, training_set, settings = link.model, link.training_set, link.settings
    if PartialState().num_processes > 1:
        freeze_unused_parameters(model)
    measure = settings.metric_for_best_model
    sampler = link.sampler
    trace, stopper = Trace(sampler, run), Stopper()
    loss: InBatchLoss = LOSSES.find(settings.loss)(
        model,
        resolved(settings.temperature),
        training_set.negatives.known,
        masks=settings.mask_known_positives,
        gradient_cache=settings.gradient_cache,
        sizes=settings.matryoshka or (),
    )
    loss.link = link
    loss.prepare(training_set, settings)
    loss.negatives_are_random = training_set.negatives.kind in ("random", "labelled")
    loss.packs = not (settings.trainer or {}).get("torch_compile")

    def on_dev(model: SentenceTransformer) -> dict[str, float]:
        encoder = encoder_of(model, settings, show_progress=False)
        return evaluate_encoder(
            encoder, training_set.mixture, "dev", [measure], settings.corpus_text
        ).measures

    trainer = OperaTrainer(
        model=model,
        args=training_arguments(settings, model, run.checkpoints),
        train_dataset=link.dataset,
        data_collator=link.collator,
        loss=loss,
        sampler=sampler,
        on_dev=on_dev if settings.evaluates_on_dev else None,
        callbacks=[link.callback, trace, stopper, Progress(measure, run.writes), *callbacks],
    )
    for unwanted in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(unwanted)
    checkpoint = _resume(link, trace) if resume else None
    resumed_from = sampler.trained_steps
    try:
        with packing(model) if loss.packs else nullcontext():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    finally:
        stopper.close()
    state, metric = trainer.state, trainer_key(measure)
    check_weights(model, state.global_step)
    run.write_trace(trace.rows)
    run.write_draws(sampler.sampled_ids(), sampler.plan.batch_size)
    if stopper.stopped:
        raise KeyboardInterrupt
    record = TrainingRecord(
        steps=state.global_step,
        resumed_from=resumed_from,
        best_step=state.best_global_step,
        best_value=state.best_metric,
        evaluations=[(row["step"], row[metric]) for row in state.log_history if metric in row],
        measure=measure if settings.evaluates_on_dev else None,
        lag=sampler.lag,
    )
    times_drawn, visits = sampler.times_drawn(), sampler.all_visits()
    return Fit(training_set, link.methods, record, times_drawn, sampler.kept, visits)


def _resume(link: RunSamplerLink, trace: Trace) -> Path | None:
    """Restore the sampler and the trace from the newest checkpoint, if there is one."""
    sampler = link.sampler
    checkpoint = from_main(
        newest_checkpoint(trace.run.checkpoints) if PartialState().is_main_process else None
    )
    if checkpoint:
        link.load_state_dict(read_state(checkpoint / SAMPLER_FILE))
        trace.rows = Run(checkpoint).trace().to_pylist()
    log.info("resuming from step %d", sampler.trained_steps)
    return checkpoint
