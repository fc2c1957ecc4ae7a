"""Train once or twice. If dev was split off train, a second training can use its pairs too.

The first training excludes the dev queries and writes to ``trial/``; λ is chosen on dev. The second
trains on all pairs and is compared with the first on dev. The choice and the comparison are saved
at once, so that a resumed run continues from there.
"""

from __future__ import annotations

import logging

from opera.core.files import remove
from opera.core.terminal import counted
from opera.engine.session import Session
from opera.engine.train import Fit, fit
from opera.guard.choice import Guard, Weights
from opera.run_folder.folder import TRIAL_FOLDER
from opera.run_folder.housekeeping import drop_checkpoints
from opera.run_folder.record import GuardRecord

log = logging.getLogger("opera")


def first_training(session: Session) -> Fit | None:
    """Train without the dev queries; ``None`` if a resumed run has already chosen the second
    training.
    """
    prepared, run, record = session.prepared, session.run, session.record.guard
    if record is not None and record.refit and record.second is not None:
        return None
    data, title = prepared.data.drawn, "training"
    if prepared.settings.guard:
        title = f"training without the {counted(data.split('dev').n_queries, 'dev query')}"
    if prepared.refits:
        return fit(session, data, run.nested(TRIAL_FOLDER), "trial", title)
    return fit(session, data, run, "train", title)


def choose_training(session: Session, guard: Guard, first: Fit | None) -> tuple[Fit, GuardRecord]:
    """Choose λ, and train a second time if the run does so.

    Args:
        session: the run.
        guard: the guard, with the base weights.
        first: the first training; the model has its weights.

    Returns:
        The training of the final model, whose weights the model then has, and the guard's record.
    """
    model, run = session.prepared.model.trained, session.run
    fine_tuned, record = Weights.of(model), session.record.guard
    if record is None:
        record = guard.choose(fine_tuned)
        session.update(guard=record)
    if record.refit:
        guard.base.put_into(model)
        title = "training again, with the dev split in train"
        second = fit(session, session.prepared.data.again, run, "train", title, first)
        if record.second is None:
            comparison = guard.compare(fine_tuned, Weights.of(model), record.mixing_weight)
            record = record.model_copy(update={"second": comparison, "refit": comparison.kept})
            session.update(guard=record)
        if record.refit:
            if run.writes:
                drop_checkpoints(run.path / TRIAL_FOLDER)
            return second, record
        log.info("the second training is worse on dev, so the final model comes from the first")
        fine_tuned.put_into(model)
        if run.writes:
            remove(run.checkpoints)
    assert first is not None, "a run skips the first training only if it keeps the second"
    if session.prepared.refits:
        run.adopt(TRIAL_FOLDER)
    session.update(**first.facts)
    return first, record
