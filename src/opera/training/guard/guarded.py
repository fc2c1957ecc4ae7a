"""Train under the guard: a trial without the dev split, the choice of λ, and another training where it is cheap."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from accelerate import PartialState

from opera.data.novelty import seen_share
from opera.retrieval.models import is_static
from opera.runs.folder import TRIAL_FOLDER, drop_checkpoints
from opera.runs.record import GuardRecord
from opera.training.distributed import from_main
from opera.training.fit import Fit, fit
from opera.training.guard.decide import PerQuery, decide, dev_values, measure_shares
from opera.training.guard.weights import Weights
from opera.training.session import Session

log = logging.getLogger("opera")


@dataclass(frozen=True)
class Guarded:
    """A finished training and what the guard chose; the model holds the fine-tuned weights.

    Attributes:
        fit: the training that the model handed over comes from.
        untrained: the weights before it.
        guard: the choice.
    """

    fit: Fit
    untrained: Weights
    guard: GuardRecord


def fit_guarded(session: Session) -> Guarded:
    """Train on what the dev split leaves, choose λ on it, and train again on everything where the run says so.

    The choice is written as soon as it is made. A resumed run that has one goes straight to the second training.
    """
    prepared, run, chosen, trial = session.prepared, session.run, session.record.guard, None
    untrained = Weights.of(prepared.model) if run.writes or prepared.refits else Weights({})
    if chosen is None or not chosen.refit:
        at_zero = _untrained_values(session) if chosen is None else None
        trial = _fit_trial(session)
        if chosen is None:
            chosen = _choose(session, untrained, at_zero)
            session.update(guard=chosen)
    log.info("%s", _in_words(chosen))
    if trial is not None and not chosen.refit:
        if prepared.refits:
            run.adopt(TRIAL_FOLDER)
        return Guarded(trial, untrained, chosen)
    if run.writes:
        drop_checkpoints(run.path / TRIAL_FOLDER)
    untrained.put_into(prepared.model)
    second = fit(session, prepared.whole, run, "train", "training again, with the dev split back in train")
    return Guarded(second, untrained, chosen)


def _untrained_values(session: Session) -> PerQuery | None:
    """Measure the untrained model on dev, in the main process."""
    with session.phase("evaluate_dev", "measuring the untrained model on dev"):
        if not PartialState().is_main_process:
            return None
        return dev_values(session.prepared.encoder, session.prepared.data, session.prepared.settings)


def _fit_trial(session: Session) -> Fit:
    prepared, run = session.prepared, session.run
    queries = prepared.data.split("dev").n_queries
    what = f"training without the {queries:,} queries of the dev split"
    if prepared.refits:
        return fit(session, prepared.data, run.nested(TRIAL_FOLDER), "trial", what)
    return fit(session, prepared.data, run, "train", what)


def _choose(session: Session, untrained: Weights, at_zero: PerQuery | None) -> GuardRecord:
    """Choose λ in the main process; the others wait for it."""
    prepared, chosen = session.prepared, None
    with session.phase("choose_share", "measuring mixtures of untrained and fine-tuned weights on dev"):
        if at_zero is not None:
            per_query = measure_shares(prepared.model, prepared.data, prepared.settings, untrained, at_zero)
            chosen = decide(
                per_query,
                prepared.settings,
                dev_split=str(prepared.dev_split),
                seen={"dev": seen_share(prepared.data, "dev"), "test": seen_share(prepared.whole, "test")},
                static=is_static(prepared.model),
                refit=prepared.refits,
            )
        chosen = from_main(chosen)
    assert chosen is not None
    return chosen


def _in_words(chosen: GuardRecord) -> str:
    curve = ", ".join(f"{point.mean:.4f} at {point.share:g}" for point in chosen.curve)
    return f"share {chosen.share:g} of the fine-tuned weights chosen on dev: {chosen.measure} {curve}"
