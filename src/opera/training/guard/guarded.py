"""Train under the guard: a trial without the dev split, the choice of λ, and another training where it is cheap."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from opera.config.automatic import TRANSFORMERS
from opera.core.processes import from_main
from opera.data import RetrievalData
from opera.data.combined import views
from opera.data.novelty import seen_share
from opera.runs.folder import TRIAL_FOLDER
from opera.runs.housekeeping import drop_checkpoints
from opera.runs.record import GuardRecord
from opera.training.fit import Fit, fit
from opera.training.guard.decide import PerQuery, decide, dev_corpus, measure_shares, untrained_values
from opera.training.guard.dev_corpus import DevCorpus
from opera.training.guard.rule import shares_to_try
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
    untrained = Weights.of(prepared.model)
    if chosen is None:
        before = _measure_untrained(session)
        trial = _fit_trial(session)
        chosen = _choose(session, untrained, before)
        session.update(guard=chosen)
    elif not chosen.refit:
        trial = _fit_trial(session)
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


@dataclass(frozen=True)
class _Before:
    """The dev split before training: its documents, and the deciding measure of each query, float64 ``[n]``."""

    dev: DevCorpus
    values: PerQuery


def _measure_untrained(session: Session) -> _Before:
    """Measure the untrained model on dev."""
    prepared, settings = session.prepared, session.prepared.settings
    with session.phase("evaluate_dev", "measuring the untrained model on dev"):
        dev = dev_corpus(prepared.encoder, prepared.data, settings)
        if dev.rows is not None:
            documents = len(prepared.data.corpus)
            log.info("dev queries are ranked among %s of %s documents", f"{len(dev.rows):,}", f"{documents:,}")
        return _Before(dev, untrained_values(prepared.encoder, prepared.data, dev, settings))


def _fit_trial(session: Session) -> Fit:
    prepared, run = session.prepared, session.run
    queries = prepared.data.split("dev").n_queries
    what = f"training without the {queries:,} queries of the dev split"
    if prepared.refits:
        return fit(session, prepared.data, run.nested(TRIAL_FOLDER), "trial", what)
    return fit(session, prepared.data, run, "train", what)


def _choose(session: Session, untrained: Weights, before: _Before) -> GuardRecord:
    """Choose λ; all processes share the measuring, and the main one's choice counts."""
    prepared = session.prepared
    with session.phase("choose_share", "measuring mixtures of untrained and fine-tuned weights on dev"):
        static = prepared.situation.model not in TRANSFORMERS
        per_query = measure_shares(
            prepared.model, before.dev, prepared.settings, untrained, before.values, shares_to_try(static)
        )
        return from_main(
            decide(
                per_query,
                prepared.settings,
                dev_split=str(prepared.dev_split),
                seen={"dev": seen_share(prepared.data, "dev"), "test": seen_share(prepared.whole, "test")},
                static=static,
                refit=prepared.refits,
                documents=None if before.dev.rows is None else len(before.dev.rows),
                sets=_dev_sets(prepared.data),
            )
        )


def _dev_sets(data: RetrievalData) -> dict[str, int] | None:
    """How many dev queries are measured of each of several data sets."""
    if not data.parts:
        return None
    return {view.name: view.judged_qrels("dev").n_queries for view in views(data, "dev")}


def _in_words(chosen: GuardRecord) -> str:
    curve = ", ".join(f"{point.mean:.4f} at {point.share:g}" for point in chosen.curve)
    said = f"share {chosen.share:g} of the fine-tuned weights chosen on dev: {chosen.measure} {curve}"
    highest = max(chosen.curve, key=lambda point: point.mean).share
    return (
        said
        if highest == chosen.share
        else f"{said}; {highest:g} is higher, by less than what was best on other data weighs"
    )
