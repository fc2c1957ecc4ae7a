"""Train under the guard: a trial without the dev split, the choice of λ, and another training where it is cheap."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from opera.core.files import remove
from opera.core.processes import from_main
from opera.runs.folder import TRIAL_FOLDER
from opera.runs.housekeeping import drop_checkpoints
from opera.runs.record import GuardRecord
from opera.training.fit import Fit, fit
from opera.training.guard.decide import (
    PerQuery,
    compare_trainings,
    decide,
    dev_corpus,
    measure_shares,
    model_values,
    untrained_values,
)
from opera.training.guard.dev_corpus import DevCorpus
from opera.training.guard.rule import shares_to_try
from opera.training.guard.weights import Weights, mix
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

    What is handed over was measured on dev: the second training at its λ too, beside the first (issue 23). Choice and
    comparison are written as soon as they are made; a resumed run goes on from there.
    """
    prepared, run, chosen, trial = session.prepared, session.run, session.record.guard, None
    untrained, dev = (
        Weights.of(prepared.model),
        _measure_untrained(session),
    )  # before anything is trained
    if chosen is None or not chosen.refit or chosen.second is None:
        trial = _fit_trial(session)
    if chosen is None:
        chosen = _choose(session, untrained, dev)
        session.update(guard=chosen)
    log.info("%s", _in_words(chosen))
    if chosen.refit:
        tuned = Weights.of(prepared.model)
        untrained.put_into(prepared.model)
        second = fit(
            session,
            prepared.again,
            run,
            "train",
            "training again, with the dev split back in train",
        )
        if chosen.second is None:
            chosen = _compare(session, untrained, tuned, chosen, dev)
            session.update(guard=chosen)
        if chosen.refit:
            if run.writes:
                drop_checkpoints(run.path / TRIAL_FOLDER)
            return Guarded(second, untrained, chosen)
        tuned.put_into(prepared.model)
        if run.writes:
            remove(run.checkpoints)
    assert trial is not None, (
        "a second training that is settled on needs no first one, and nothing else is handed over"
    )
    if prepared.refits:
        run.adopt(TRIAL_FOLDER)
    session.update(**trial.facts)
    return Guarded(trial, untrained, chosen)


@dataclass
class _Dev:
    """The dev split: its documents, and the deciding measure of each query, float64 ``[n]``, where it is known.

    Attributes:
        corpus: the documents.
        untrained: before training.
        at_share: of the first training, at the λ chosen; ``None`` until it is measured.
    """

    corpus: DevCorpus
    untrained: PerQuery
    at_share: PerQuery | None = None


def _measure_untrained(session: Session) -> _Dev:
    """Measure the untrained model on dev."""
    prepared, settings = session.prepared, session.prepared.settings
    with session.phase("evaluate_dev", "measuring the untrained model on dev"):
        dev = dev_corpus(prepared.encoder, prepared.data, settings)
        if dev.rows is not None:
            documents = len(prepared.data.corpus)
            log.info(
                "dev queries are ranked among %s of %s documents",
                f"{len(dev.rows):,}",
                f"{documents:,}",
            )
        return _Dev(dev, untrained_values(prepared.encoder, prepared.data, dev, settings))


def _fit_trial(session: Session) -> Fit:
    prepared, run = session.prepared, session.run
    queries = prepared.data.split("dev").n_queries
    what = f"training without the {queries:,} queries of the dev split"
    if prepared.refits:
        return fit(session, prepared.data, run.nested(TRIAL_FOLDER), "trial", what)
    return fit(session, prepared.data, run, "train", what)


def _choose(session: Session, untrained: Weights, dev: _Dev) -> GuardRecord:
    """Choose λ; all processes share the measuring, and the main one's choice counts."""
    prepared = session.prepared
    with session.phase(
        "choose_share", "measuring mixtures of untrained and fine-tuned weights on dev"
    ):
        shares = shares_to_try(prepared.is_static)
        per_query = measure_shares(
            prepared.model, dev.corpus, prepared.settings, untrained, dev.untrained, shares
        )
        documents = None if dev.corpus.rows is None else len(dev.corpus.rows)
        chosen = from_main(decide(per_query, prepared, documents))
        dev.at_share = per_query[chosen.share]
        return chosen


def _compare(
    session: Session, untrained: Weights, tuned: Weights, chosen: GuardRecord, dev: _Dev
) -> GuardRecord:
    """Measure the second training on dev at its λ, and choose between it and the first.

    Args:
        session: the run; its model holds the weights of the second training, and does so again in the end.
        untrained: the weights before training.
        tuned: those of the first training.
        chosen: the choice of λ.
        dev: the dev split.
    """
    model, settings = session.prepared.model, session.prepared.settings
    with session.phase("compare_trainings", "measuring the second training on dev"):
        second = Weights.of(model)

        def values(weights: Weights) -> PerQuery:
            mix(untrained, weights, chosen.share).put_into(model)
            return model_values(model, dev.corpus, settings)

        trial = values(tuned) if dev.at_share is None else dev.at_share
        compared = from_main(compare_trainings(trial, values(second)))
        second.put_into(model)
    if not compared.kept:
        beside = f"{compared.second:.4f} beside {compared.trial:.4f}"
        log.info(
            "the second training is behind the first on dev (%s): the first is handed over", beside
        )
    return chosen.model_copy(update={"second": compared, "refit": compared.kept})


def _in_words(chosen: GuardRecord) -> str:
    curve = ", ".join(f"{point.mean:.4f} at {point.share:g}" for point in chosen.curve)
    said = (
        f"share {chosen.share:g} of the fine-tuned weights chosen on dev: {chosen.measure} {curve}"
    )
    highest = max(chosen.curve, key=lambda point: point.mean).share
    return (
        said
        if highest == chosen.share
        else f"{said}; {highest:g} is higher, by less than what was best on other data weighs"
    )
