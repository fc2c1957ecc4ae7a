"""One training, or two: if dev was drawn from train, λ is chosen on dev, and all pairs train again.

The first training leaves the dev queries out, and writes to ``trial/``. The second trains on all
pairs, and is measured on dev next to the first. Choice and comparison are written as soon as they
are made, so that a resumed run goes on from there.
"""

from __future__ import annotations

import logging

from opera.core.files import remove
from opera.engine.session import Session
from opera.engine.train import Fit, fit
from opera.guard.choice import Guard, Weights
from opera.runs.folder import TRIAL_FOLDER
from opera.runs.housekeeping import drop_checkpoints
from opera.runs.record import GuardRecord

log = logging.getLogger("opera")


def first_training(session: Session) -> Fit | None:
    """Train on what the dev split leaves; ``None`` if a resumed run has settled on its second
    training."""
    prepared, run, record = session.prepared, session.run, session.record.guard
    if record is not None and record.refit and record.second is not None:
        return None
    data = prepared.data.drawn
    if not prepared.settings.guard:
        return fit(session, data, run, "train", "training")
    queries = data.split("dev").n_queries
    what = f"training without the {queries:,} queries of the dev split"
    if prepared.refits:
        return fit(session, data, run.nested(TRIAL_FOLDER), "trial", what)
    return fit(session, data, run, "train", what)


def choose_training(session: Session, guard: Guard, first: Fit | None) -> tuple[Fit, GuardRecord]:
    """Choose λ, and train again if the run says so.

    Args:
        session: the run.
        guard: the guard, with the untrained weights.
        first: the first training, whose weights the model holds.

    Returns:
        The training of the final model, whose weights the model holds, and the guard's record.
    """
    model, run = session.prepared.model.trained, session.run
    tuned, record = Weights.of(model), session.record.guard
    if record is None:
        record = guard.choose(tuned)
        session.update(guard=record)
    curve = ", ".join(f"{point.mean:.4f} at {point.mixing_weight:g}" for point in record.curve)
    log.debug("λ = %g chosen on dev: %s %s", record.mixing_weight, record.measure, curve)
    if record.refit:
        guard.base.put_into(model)
        what = "training again, with the dev split back in train"
        second = fit(session, session.prepared.data.again, run, "train", what, first)
        if record.second is None:
            comparison = guard.compare(tuned, Weights.of(model), record.mixing_weight)
            record = record.model_copy(update={"second": comparison, "refit": comparison.kept})
            session.update(guard=record)
        if record.refit:
            if run.writes:
                drop_checkpoints(run.path / TRIAL_FOLDER)
            return second, record
        log.info("the second training is behind the first on dev, so the first is final")
        tuned.put_into(model)
        if run.writes:
            remove(run.checkpoints)
    assert first is not None, "only a run that keeps its second training skips the first"
    if session.prepared.refits:
        run.adopt(TRIAL_FOLDER)
    session.update(**first.facts)
    return first, record
