"""The main job: data and a model in, a better retriever and the evidence for it out."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from opera.config.recipe import make_recipe
from opera.data import RetrievalData, load_data
from opera.methods import Method
from opera.retrieval.device import describe_device, join_processes
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder, query_difficulty, relevant_ids
from opera.retrieval.frozen import lookup_of
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model
from opera.runs.folder import Run, RunWriter, check_out_folder, clear_leftovers, clear_run, refuse_other_settings
from opera.runs.record import DataRecord, ModelRecord, NoiseRecord, RunRecord
from opera.training.distributed import refuse_differences
from opera.training.model_card import write_model_card
from opera.training.train import TrainingResult, make_method, train
from opera.training.trainer import training_arguments
from opera.training_set.build import TrainingSet, build_training_set
from opera.training_set.prepare import Prepared, model_or_vectors, prepare

log = logging.getLogger("opera")

RECORDED_VERSIONS = (
    "opera-retrieval",
    "torch",
    "sentence-transformers",
    "transformers",
    "accelerate",
    "ir-measures",
    "numpy",
)


def adapt(
    data: str | Path | RetrievalData,
    *,
    model: str | Path | None = None,
    out: str | Path,
    method: str = "dp",
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> Run:
    """Adapt a retriever to a data set and measure it before and after.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``; with ``query_vectors`` and
            ``document_vectors`` any name, for the record.
        out: the run folder to write.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp`` or ``sp+dp``.
        resume: continue the run in ``out`` from its newest checkpoint.
        overwrite: replace the run in ``out``.
        callbacks: additional transformers callbacks for the trainer.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if training fails.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; a checkpoint is saved first, from which ``resume`` continues.
    """
    recipe = make_recipe({"method": method, **settings})
    model = model_or_vectors(model, recipe.train)
    folder = Path(os.path.normpath(out))
    check_out_folder(folder, resume, overwrite)
    clock = Clock()
    processes = join_processes()
    with clock.phase("load"):
        loaded = load_data(data)
        prepared = prepare(loaded, str(model), recipe, processes.num_processes)
        training_arguments(prepared.settings, prepared.model, RunWriter(folder).checkpoints)  # to refuse early
    if resume:
        refuse_other_settings(folder, prepared.identity)
        prepared = prepared.resolved_as(Run.open(folder).settings)
        if Run.open(folder).finished:
            log.info("%s is already finished: nothing to do", folder)
            return Run.open(folder)
    processes.wait_for_everyone()  # every process has looked at the folder
    if processes.is_main_process:
        if overwrite:
            clear_run(folder)
        folder.mkdir(parents=True, exist_ok=True)
        clear_leftovers(folder)
    processes.wait_for_everyone()
    return _run(prepared, RunWriter(folder, processes.is_main_process), clock, resume, callbacks)


def _run(prepared: Prepared, run: RunWriter, clock: Clock, resume: bool, callbacks: Sequence[TrainerCallback]) -> Run:
    """Measure, build the training set, train, measure again; write everything."""
    record = _new_record(prepared, clock)
    if resume:
        earlier = Run.open(run.path).record
        clock.add(earlier.seconds)
        record = record.model_copy(update={"started": earlier.started, "seconds": clock.seconds})
    run.write_record(record)
    _log_inputs(prepared, record)
    settings, data, encoder = prepared.settings, prepared.data, prepared.encoder
    corpus_text, processes = settings.encoding.corpus_text, PartialState()

    with clock.phase("evaluate_before"), processes.main_process_first():
        before = evaluate_encoder(encoder, data, "test", FULL_MEASURES, corpus_text)
        test_queries = {
            "relevant": relevant_ids(data, "test"),
            "similarity": query_difficulty(encoder, data, "test", corpus_text),
        }
    with clock.phase("encode"), processes.main_process_first():
        prepared.encode()
    with clock.phase("score_and_mine"):
        with processes.main_process_first():
            training_set = build_training_set(prepared)
        refuse_differences("training pairs, scores or negatives", training_set.fingerprint)
        method = make_method(prepared.recipe, training_set, prepared.processes)
    log.info("%s: %s", method.title.lower(), _listed_counts(method.summary()))
    record = record.model_copy(
        update={
            "method": method.summary(),
            "negatives": training_set.negatives_record,
            "smallest_cbs_pool": training_set.smallest_cbs_pool,
            "seconds": clock.seconds,
        }
    )
    run.write_record(record)
    with clock.phase("train"):
        result = train(prepared.model, training_set, method, settings, run, resume=resume, callbacks=callbacks)
    _write_pairs(run, training_set, method, result)
    run.write_model(prepared.save_model)
    if run.writes:
        with clock.phase("evaluate_after"):  # of the folder that the user gets, loaded as the user will load it
            after = _evaluate_saved(run, prepared)
        run.write_measures({"before": before.measures, "after": after.measures})
        run.write_per_query(
            {"query_id": before.query_ids, **test_queries, **before.columns("before"), **after.columns("after")}
        )
        write_model_card(run.model_path, record, result.record.steps, before.measures, after.measures)
        finished = {"status": "finished", "training": result.record, "seconds": clock.seconds}
        run.write_record(record.model_copy(update={**finished, "noise": _noise_record(training_set, result)}))
    processes.wait_for_everyone()
    return Run.open(run.path)


def _new_record(prepared: Prepared, clock: Clock) -> RunRecord:
    data, encoder = prepared.data, prepared.encoder
    resolved = {
        "precision": encoder.precision,
        "negatives": prepared.negatives,
        **prepared.lengths,
    }
    return RunRecord(
        status="running",
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        identity=prepared.identity,
        data=DataRecord(source=data.source, fingerprint=data.fingerprint, counts=data.counts(), notes=list(data.notes)),
        model=ModelRecord(
            source=prepared.model_source, fingerprint=encoder.fingerprint, parameters=prepared.n_parameters
        ),
        device=describe_device(encoder.device),
        processes=prepared.processes,
        seed=prepared.settings.optimisation.seed,
        settings={**prepared.recipe.flat(), **resolved},
        versions={"python": platform.python_version(), **{name: version(name) for name in RECORDED_VERSIONS}},
        seconds=dict(clock.seconds),
    )


def _log_inputs(prepared: Prepared, record: RunRecord) -> None:
    for note in prepared.data.notes:
        log.info("note: %s", note)
    log.info("%s: %s", prepared.data.name, _listed_counts(prepared.data.counts()))
    log.info("model %s on %s, %s", record.model.source, record.device, prepared.encoder.precision)


def _listed_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"pool of {count:,} queries" if name == "pool_size" else f"{count:,} {name.replace('_', ' ')}"
        for name, count in counts.items()
    )


def _evaluate_saved(run: RunWriter, prepared: Prepared) -> Evaluation:
    """Evaluate the model as saved, loaded as a user will load it; an adapter on the vectors that it trained on."""
    encoding = prepared.settings.encoding
    adapter = lookup_of(prepared.model) is not None
    saved = prepared.model if adapter else load_model(run.model_path, prepared.encoder.device)
    encoder = Encoder(saved, encoding.precision, encoding.encode_batch_size, use_cache=False)
    return evaluate_encoder(encoder, prepared.data, "test", FULL_MEASURES, encoding.corpus_text)


def _write_pairs(run: RunWriter, training_set: TrainingSet, method: Method[Any], result: TrainingResult) -> None:
    """Write a row per training pair."""
    data, pairs, scores = training_set.data, training_set.pairs, training_set.scores
    columns: dict[str, Any] = {
        "query_id": data.queries.ids(training_set.query_rows[pairs.pair_query]),
        "doc_id": data.corpus.ids(pairs.pair_doc),
        "grade": training_set.grades,
        "injected": training_set.injected,
        "times_drawn": result.times_drawn,
        "kept": method.kept,
    }
    if scores is not None:
        columns["similarity"] = training_set.similarity
        if scores.cbs is not None:
            columns["cbs"] = scores.cbs
    run.write_pairs(columns)


def _noise_record(training_set: TrainingSet, result: TrainingResult) -> NoiseRecord | None:
    injected, times_drawn = training_set.injected, result.times_drawn
    if not injected.any():
        return None
    return NoiseRecord(
        injected_pairs=int(injected.sum()),
        share_of_pairs=float(injected.mean()),
        share_of_draws=float(times_drawn[injected].sum() / times_drawn.sum()),
    )


class Clock:
    """Seconds of each phase of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block."""
        start = time.perf_counter()
        yield
        self.add({name: time.perf_counter() - start})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add to the phases, such as the seconds of an earlier session."""
        for name, more in seconds.items():
            self.seconds[name] = round(self.seconds.get(name, 0.0) + more, 3)
