"""A run from its data to its evidence: prepare, train, choose, measure, write."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import TrainerCallback

from opera.config.automatic import AUTOMATIC
from opera.config.optional import service_names
from opera.config.training import TrainSettings
from opera.core.errors import OperaError, StorageError
from opera.core.locks import sole_use
from opera.core.processes import everywhere
from opera.retrieval.device import join_processes
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.locate import recorded_settings
from opera.runs.changes import changes_on_test
from opera.runs.folder import FINE_TUNED_FOLDER, MODEL_FOLDER, RUN_FILE, Run, RunWriter
from opera.runs.housekeeping import (
    check_free,
    clear_leftovers,
    clear_run,
    refuse_other_settings,
)
from opera.runs.reading import broken
from opera.training.announce import announce
from opera.training.callbacks import checked_callbacks
from opera.training.check import Checked
from opera.training.curves import PREFIX
from opera.training.fit import fit
from opera.training.guard.guarded import Guarded, fit_guarded
from opera.training.guard.weights import Weights, mix
from opera.training.model_card import write_model_card
from opera.training.on_test import (
    by_set,
    by_size_of,
    evaluate_saved,
    evaluate_test,
    test_queries_of,
    with_test,
)
from opera.training.services import Services
from opera.training.session import Session
from opera.training.trainer import training_arguments
from opera.training.trainer_check import check_trainer
from opera.training_set.prepare import Prepared, prepare
from opera.training_set.prepare_model import encoder_of

log = logging.getLogger("opera")


@torch.inference_mode(False)  # a caller's no_grad or inference_mode is not about training
def run_training(
    checked: Checked, callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None = None
) -> Run:
    """Prepare, train, choose and measure; write all of it to the run folder.

    Raises:
        InputError, TrainingError, StorageError, KeyboardInterrupt: as :func:`opera.adapt`.
    """
    folder, resume = checked.folder, checked.resume
    callbacks = checked_callbacks(callbacks)
    processes = join_processes()
    with checked.clock.phase("load"):
        prepared = prepare(checked.data, checked.model, checked.recipe, processes.num_processes)
        arguments = training_arguments(
            prepared.settings, prepared.model, RunWriter(folder).checkpoints
        )
        check_trainer(prepared.settings, arguments, prepared.model)
    if resume:
        refuse_other_settings(folder, prepared.identity, TrainSettings.without_effect())
        earlier = Run.open(folder)
        prepared = _as_before(earlier, prepared)
        if earlier.finished:
            log.info("%s is already finished: nothing to do", folder)
            return earlier
    processes.wait_for_everyone()  # every process has looked at the folder
    services = Services(service_names(checked.recipe.train.report_to), arguments, prepared.model)
    with _held(folder, resume, checked.overwrite) if processes.is_main_process else nullcontext():
        processes.wait_for_everyone()
        try:
            run = RunWriter(folder, processes.is_main_process)
            session = Session.start(prepared, run, checked.clock, resume, callbacks, services)
            with _failure_recorded(session):
                return _run(session)
        except StorageError as error:
            raise StorageError(f"{error}; with --resume it goes on from where it is") from error
        finally:
            services.close()


def _as_before(earlier: Run, prepared: Prepared) -> Prepared:
    """Return what is prepared with what was chosen automatically in the run that is resumed."""
    for name in AUTOMATIC:
        recorded_settings(
            earlier, {name: earlier.settings[name]} if name in earlier.settings else {}
        )
        if (
            name in earlier.settings and earlier.settings[name] is None
        ):  # a run records what was chosen
            raise broken(earlier.path / RUN_FILE, f"{name}: must have a value")
    return prepared.resolved_as(earlier.settings)


@contextmanager
def _held(folder: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Make the run folder, hold it for this process, and clear it."""
    folder.mkdir(parents=True, exist_ok=True)
    with sole_use(folder, "trains into it"):
        check_free(
            folder, resume, overwrite
        )  # another process may have trained into it in the meantime
        if overwrite:
            clear_run(folder)
        clear_leftovers(folder)
        yield


@contextmanager
def _failure_recorded(session: Session) -> Iterator[None]:
    """Mark the run as failed if the block raises an error; where not even that can be written, it stays as it is."""
    try:
        yield
    except Exception:
        with suppress(OSError, OperaError):
            session.update(status="failed")
        raise


def _run(session: Session) -> Run:
    """Measure, train, with the guard or without it, measure again; write everything."""
    prepared, run = session.prepared, session.run
    announce(session)
    with session.phase("evaluate_before", "measuring the untrained model on test"):
        before = evaluate_test(prepared.encoder, prepared)
        test_queries = test_queries_of(prepared)
    if prepared.base is not None:
        with session.phase("encode", "encoding every text once, for the adapter"):
            prepared.encode()
    guarded = fit_guarded(session) if prepared.settings.guard else None
    final = (
        fit(session, prepared.data, run, "train", "training") if guarded is None else guarded.fit
    )
    session.services.log({} if guarded is None else {f"{PREFIX}lambda": guarded.guard.share})
    final.write_pairs(run)
    fine_tuned, after = _hand_over(session, guarded, before)
    measures = {
        "before": before.measures,
        "fine_tuned": fine_tuned.measures,
        "after": after.measures,
    }
    if run.writes:
        tuned_columns = {
            f"fine_tuned {name}": values for name, values in fine_tuned.per_query.items()
        }
        columns = {**before.columns("before"), **tuned_columns, **after.columns("after")}
        run.write_measures(measures)
        run.write_per_query({"query_id": before.query_ids, **test_queries, **columns})
        guard = None if guarded is None else with_test(guarded.guard, before, fine_tuned, after)
        training = final.result.record
        sizes = by_size_of(before, fine_tuned, after)
        finished = {
            "status": "finished",
            "training": training,
            "noise": final.noise,
            "guard": guard,
        }
        finished["matryoshka"] = sizes or None
        finished["sets"] = by_set(session, final, before, fine_tuned, after)
        changes = changes_on_test(Run(run.path).per_query(), measures["after"])
        record = session.record.model_copy(update=finished)
        write_model_card(run.model_path, record, measures, changes, len(before.query_ids))
        session.update(**finished)
    PartialState().wait_for_everyone()
    return Run.open(run.path)


def _hand_over(
    session: Session, guarded: Guarded | None, before: Evaluation
) -> tuple[Evaluation, Evaluation]:
    """Save the model that is handed over, as the share of the guard makes it.

    Returns:
        The fine-tuned model on test; and the one handed over, loaded as the user will load it.
    """
    prepared, run = session.prepared, session.run
    share = 1.0 if guarded is None else guarded.guard.share
    fine_tuned = None
    if prepared.settings.keep_fine_tuned:
        _save_model(session, FINE_TUNED_FOLDER)
    if guarded is not None and share < 1:
        with session.phase("evaluate_fine_tuned", "measuring the fine-tuned model on test"):
            fine_tuned = evaluate_test(encoder_of(prepared.model, prepared.settings), prepared)
        mix(guarded.untrained, Weights.of(prepared.model), share).put_into(prepared.model)
    _save_model(session, MODEL_FOLDER)
    if share == 0:
        after = before
    else:
        with session.phase("evaluate_after", "measuring the model handed over on test"):
            after = evaluate_saved(run, prepared)
    return fine_tuned or after, after


def _save_model(session: Session, name: str) -> None:
    """Write the model in the main process; what fails there fails everywhere, and all may read it from then on."""
    everywhere(lambda: session.run.write_model(session.prepared.save_model, name))
