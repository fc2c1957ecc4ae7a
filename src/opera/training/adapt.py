"""The main job: data and a model in, a better retriever and the evidence for it out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from opera.config.automatic import AUTOMATIC, automatic_rate
from opera.config.optimisation import OptimisationSettings
from opera.config.optional import service_names
from opera.config.presets import PRESET_LEARNING_RATE
from opera.config.recipe import make_recipe
from opera.config.training import TrainSettings
from opera.core.arguments import flag
from opera.core.errors import StorageError
from opera.core.files import check_reads_stay
from opera.core.locks import sole_use
from opera.core.paths import expand_user, user_path
from opera.core.settings import resolved
from opera.data import RetrievalData, files_read, load_all
from opera.methods.default import AUTO
from opera.retrieval.device import join_processes
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder, query_difficulty, relevant_ids
from opera.retrieval.frozen import lookup_of
from opera.retrieval.locate import inputs_of, locate_model
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model, put_lengths
from opera.retrieval.processes import everywhere
from opera.retrieval.run_model import recorded_settings
from opera.runs.changes import changes_on_test
from opera.runs.folder import FINE_TUNED_FOLDER, MODEL_FOLDER, RUN_FILE, Run, RunWriter
from opera.runs.housekeeping import check_free, check_out_folder, clear_leftovers, clear_run, refuse_other_settings
from opera.runs.reading import broken
from opera.runs.record import GuardRecord, SetRecord, SizeRecord
from opera.training.callbacks import checked_callbacks
from opera.training.curves import PREFIX
from opera.training.fit import Fit, fit, listed_counts
from opera.training.guard.guarded import Guarded, fit_guarded
from opera.training.guard.verdict import guarded_measure
from opera.training.guard.weights import Weights, mix
from opera.training.model_card import write_model_card
from opera.training.services import Services
from opera.training.session import Clock, Session
from opera.training.trainer import training_arguments
from opera.training_set.prepare import Prepared, model_or_vectors, prepare

log = logging.getLogger("opera")

FAR = 50
"""How many times the automatic learning rate is questioned."""


def adapt(
    data: str | Path | RetrievalData | Sequence[str | Path | RetrievalData],
    *,
    model: str | Path | None = None,
    out: str | Path,
    method: str = AUTO,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None = None,
    **settings: Any,
) -> Run:
    """Adapt a retriever to a data set and measure it before and after.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data; or a list of several, to train on all of them.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``; with ``query_vectors`` and
            ``document_vectors`` any name, for the record.
        out: the run folder to write.
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp``, ``sp+dp``, or ``auto`` for
            :data:`opera.methods.default.DEFAULT_METHOD`.
        resume: continue the run in ``out`` from its newest checkpoint.
        overwrite: replace the run in ``out``.
        callbacks: additional transformers callbacks for the trainer, or their classes; a run that trains
            twice calls them in both.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run.

    Raises:
        InputError: for invalid input, before anything is written.
        TrainingError: if training fails.
        StorageError: if the disk is full, or the run folder cannot be written to any more; ``resume`` continues.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; a checkpoint is saved first, from which ``resume`` continues.
    """
    recipe = make_recipe({"method": method, **settings})
    model = expand_user(model_or_vectors(model, recipe.train), "--model")
    folder = Path(os.path.normpath(user_path(out, "--out")))
    resume, overwrite, callbacks = flag(resume, "resume"), flag(overwrite, "overwrite"), checked_callbacks(callbacks)
    check_out_folder(folder, resume, overwrite)
    several = () if isinstance(data, str | Path | RetrievalData) else tuple(data)
    if overwrite:
        reads = [path for each in several or (data,) for path in _reads(each, model, recipe.train)]  # type: ignore[arg-type]
        check_reads_stay(folder, "--out", reads)
    clock = Clock()
    processes = join_processes()
    with clock.phase("load"):
        loaded = load_all(several or data)
        prepared = prepare(loaded, str(model), recipe, processes.num_processes)
        checkpoints = RunWriter(folder).checkpoints
        arguments = training_arguments(prepared.settings, prepared.model, checkpoints)  # to refuse early
    if resume:
        refuse_other_settings(folder, prepared.identity, TrainSettings.without_effect())
        earlier = Run.open(folder)
        for name in AUTOMATIC:
            recorded_settings(earlier, {name: earlier.settings[name]} if name in earlier.settings else {})
            if name in earlier.settings and earlier.settings[name] is None:  # a run records what was chosen
                raise broken(folder / RUN_FILE, f"{name}: must have a value")
        prepared = prepared.resolved_as(earlier.settings)
        if earlier.finished:
            log.info("%s is already finished: nothing to do", folder)
            return earlier
    processes.wait_for_everyone()  # every process has looked at the folder
    services = Services(service_names(recipe.train.logging.report_to), arguments, prepared.model)
    with _held(folder, resume, overwrite) if processes.is_main_process else nullcontext():
        processes.wait_for_everyone()
        try:
            run = RunWriter(folder, processes.is_main_process)
            return _run(Session.start(prepared, run, clock, resume, callbacks, services))
        except StorageError as error:
            raise StorageError(f"{error}; with --resume it goes on from where it is") from error
        finally:
            services.close()


def _reads(data: str | Path | RetrievalData, model: str, settings: TrainSettings) -> list[Path]:
    """The files and folders that a run reads."""
    adapter, reranker = settings.adapter, settings.negative_sampling.mining_reranker
    vectors = [Path(file) for file in (adapter.query_vectors, adapter.document_vectors) if file is not None]
    others = [Path(file) for file in (settings.distillation.teacher_scores,) if file is not None]
    others += [Path(locate_model(reranker))] if reranker is not None else []
    return [*files_read(data), *vectors, *others] if vectors else [*inputs_of(data, model), *others]


@contextmanager
def _held(folder: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Make the run folder, hold it for this process, and clear it."""
    folder.mkdir(parents=True, exist_ok=True)
    with sole_use(folder, "trains into it"):
        check_free(folder, resume, overwrite)  # another process may have trained into it in the meantime
        if overwrite:
            clear_run(folder)
        clear_leftovers(folder)
        yield


def _run(session: Session) -> Run:
    """Measure, train, with the guard or without it, measure again; write everything."""
    prepared, run = session.prepared, session.run
    _log_inputs(session)
    with session.phase("evaluate_before", "measuring the untrained model on test"):
        before = _evaluate_test(prepared.encoder, prepared)
        test_queries = _test_queries(prepared)
    if prepared.base is not None:
        with session.phase("encode", "encoding every text once, for the adapter"):
            prepared.encode()
    guarded = fit_guarded(session) if prepared.settings.guard.guard else None
    final = fit(session, prepared.data, run, "train", "training") if guarded is None else guarded.fit
    session.services.log({} if guarded is None else {f"{PREFIX}lambda": guarded.guard.share})
    final.write_pairs(run)
    fine_tuned, after = _hand_over(session, guarded, before)
    measures = {"before": before.measures, "fine_tuned": fine_tuned.measures, "after": after.measures}
    if run.writes:
        tuned_columns = {f"fine_tuned {name}": values for name, values in fine_tuned.per_query.items()}
        columns = {**before.columns("before"), **tuned_columns, **after.columns("after")}
        run.write_measures(measures)
        run.write_per_query({"query_id": before.query_ids, **test_queries, **columns})
        guard = None if guarded is None else _with_test(guarded.guard, before, fine_tuned, after, session.record.seed)
        training = final.result.record
        sizes = _by_size(before, fine_tuned, after)
        finished = {"status": "finished", "training": training, "noise": final.noise, "guard": guard}
        finished["matryoshka"] = sizes or None
        finished["sets"] = _by_set(session, final, before, fine_tuned, after)
        changes = changes_on_test(Run(run.path).per_query(), measures["after"], session.record.seed)
        record = session.record.model_copy(update=finished)
        write_model_card(run.model_path, record, measures, changes, len(before.query_ids))
        session.update(**finished)
    PartialState().wait_for_everyone()
    return Run.open(run.path)


def _log_inputs(session: Session) -> None:
    prepared, record = session.prepared, session.record
    for note in prepared.data.notes:
        log.info("note: %s", note)
    log.info("%s: %s", prepared.data.name, listed_counts(prepared.data.counts()))
    log.info("model %s on %s, %s", record.model.source, record.device, prepared.encoder.precision)
    optimisation, queries = (
        prepared.settings.optimisation,
        prepared.settings.batching.queries_per_step(record.processes),
    )
    log.info(
        "steps %d, epochs %g, queries per step %d, learning rate %g, temperature %g",
        optimisation.max_steps,
        optimisation.epochs,
        queries,
        optimisation.learning_rate,
        optimisation.temperature,
    )
    _question_rate(optimisation, prepared)
    if (
        optimisation.preset
        and optimisation.learning_rate == PRESET_LEARNING_RATE
        and prepared.situation.model != "large"
    ):
        log.info("note: preset=%s is for bge-large-en-v1.5; give --lr with a smaller model", optimisation.preset)


def _question_rate(optimisation: OptimisationSettings, prepared: Prepared) -> None:
    """Warn of a learning rate far above what such a model trains with."""
    given, usual = resolved(optimisation.learning_rate), automatic_rate(prepared.situation)
    if given > FAR * usual:
        log.warning(
            "warning: learning_rate=%g is %.0f times the automatic %g of such a model, and may spoil it; is it meant?",
            given,
            given / usual,
            usual,
        )


def _test_queries(prepared: Prepared) -> dict[str, Any]:
    """Columns that describe the test queries."""
    data, corpus_text = prepared.data, prepared.settings.encoding.corpus_text
    return {
        "relevant": relevant_ids(data, "test"),
        "similarity": query_difficulty(prepared.encoder, data, "test", corpus_text),
    }


def _evaluate_test(encoder: Encoder, prepared: Prepared) -> Evaluation:
    """Evaluate on test: all recorded measures, and the one that the guard decides by."""
    settings, names = prepared.settings, list(FULL_MEASURES)
    if settings.guard.guard and settings.evaluation.metric_for_best_model not in names:
        names.append(settings.evaluation.metric_for_best_model)
    sizes = settings.optimisation.matryoshka or ()
    return evaluate_encoder(encoder, prepared.data, "test", names, settings.encoding.corpus_text, sizes)


def _hand_over(session: Session, guarded: Guarded | None, before: Evaluation) -> tuple[Evaluation, Evaluation]:
    """Save the model that is handed over, as the share of the guard makes it.

    Returns:
        The fine-tuned model on test; and the one handed over, loaded as the user will load it.
    """
    prepared, run = session.prepared, session.run
    share = 1.0 if guarded is None else guarded.guard.share
    fine_tuned = None
    if prepared.settings.guard.keep_fine_tuned:
        _save_model(session, FINE_TUNED_FOLDER)
    if guarded is not None and share < 1:
        with session.phase("evaluate_fine_tuned", "measuring the fine-tuned model on test"):
            fine_tuned = _evaluate_test(_encoder_of(prepared.model, prepared), prepared)
        mix(guarded.untrained, Weights.of(prepared.model), share).put_into(prepared.model)
    _save_model(session, MODEL_FOLDER)
    if share == 0:
        after = before
    else:
        with session.phase("evaluate_after", "measuring the model handed over on test"):
            after = _evaluate_saved(run, prepared)
    return fine_tuned or after, after


def _save_model(session: Session, name: str) -> None:
    """Write the model in the main process; what fails there fails everywhere, and all may read it from then on."""
    everywhere(lambda: session.run.write_model(session.prepared.save_model, name))


def _evaluate_saved(run: RunWriter, prepared: Prepared) -> Evaluation:
    """Evaluate the model as saved, loaded anew, with the run's lengths; an adapter on the vectors it trained on."""
    adapter = lookup_of(prepared.model) is not None
    saved = prepared.model if adapter else load_model(run.model_path, prepared.encoder.device)
    if not adapter:
        put_lengths(saved, prepared.lengths)
    return _evaluate_test(_encoder_of(saved, prepared), prepared)


def _encoder_of(model: SentenceTransformer, prepared: Prepared) -> Encoder:
    """An encoder without a cache, for a model that this run made."""
    encoding = prepared.settings.encoding
    return Encoder(model, encoding.precision, encoding.encode_batch_size, use_cache=False)


def _by_set(
    session: Session, final: Fit, before: Evaluation, fine_tuned: Evaluation, after: Evaluation
) -> list[SetRecord] | None:
    """Say of each of several data sets how often it was drawn, and put its measures side by side."""
    if session.record.sets is None or final.training_set.mixture is None:
        return None
    moments = {"before": before, "fine_tuned": fine_tuned, "after": after}
    firsts = final.training_set.mixture.first_pairs(final.training_set.pairs)
    drawn = np.add.reduceat(final.result.times_drawn, firsts[:-1])
    return [
        record.model_copy(
            update={
                "share_of_draws": float(count / drawn.sum()),
                "test": {when: result.sets[record.name].measures for when, result in moments.items()}
                if record.name in before.sets
                else None,
            }
        )
        for record, count in zip(session.record.sets, drawn, strict=True)
    ]


def _by_size(before: Evaluation, fine_tuned: Evaluation, after: Evaluation) -> list[SizeRecord]:
    """Put the measures of each size side by side."""
    moments = {"before": before, "fine_tuned": fine_tuned, "after": after}
    return [
        SizeRecord(size=size, **{name: evaluation.by_size[size] for name, evaluation in moments.items()})
        for size in before.by_size
    ]


def _with_test(
    guard: GuardRecord, before: Evaluation, fine_tuned: Evaluation, after: Evaluation, seed: int
) -> GuardRecord:
    """Add what the choice was worth on test."""
    at_zero, at_one, at_share = (result.per_query[guard.measure] for result in (before, fine_tuned, after))
    return guard.model_copy(update={"test": guarded_measure(at_zero, at_one, at_share, seed, "test")})
