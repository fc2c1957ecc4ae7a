"""One training of a session: the training set is built, the method made, the model trained, the draws counted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opera.data import RetrievalData
from opera.methods import Method
from opera.runs.folder import RunWriter
from opera.runs.record import NoiseRecord
from opera.training.distributed import refuse_differences
from opera.training.session import Session
from opera.training.train import TrainingResult, train
from opera.training_set.build import TrainingSet
from opera.training_set.mixing import build_mixed

log = logging.getLogger("opera")


@dataclass(frozen=True)
class Fit:
    """A finished training; the model holds its weights.

    Attributes:
        training_set: what it trained on.
        method: what drew the pairs.
        result: how it went.
    """

    training_set: TrainingSet
    method: Method[Any]
    result: TrainingResult

    @property
    def noise(self) -> NoiseRecord | None:
        """The injected false positives; ``None`` where there are none."""
        injected, times_drawn = self.training_set.injected, self.result.times_drawn
        if not injected.any():
            return None
        return NoiseRecord(
            injected_pairs=int(injected.sum()),
            share_of_pairs=float(injected.mean()),
            share_of_draws=float(times_drawn[injected].sum() / times_drawn.sum()),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What ``run.json`` says of the method and the training set."""
        return facts_of(self.training_set, self.method)

    def write_pairs(self, run: RunWriter) -> None:
        """Write a row per training pair."""
        training_set = self.training_set
        data, pairs, scores = training_set.data, training_set.pairs, training_set.scores
        columns: dict[str, Any] = {
            "query_id": data.queries.id_column(training_set.query_rows[pairs.pair_query]),
            "doc_id": data.corpus.id_column(pairs.pair_doc),
            "grade": training_set.grades,
            "injected": training_set.injected,
            "times_drawn": self.result.times_drawn,
            "kept": self.method.kept,
        }
        if training_set.pair_weights is not None:
            columns["weight"] = training_set.pair_weights
        if training_set.similarity is not None:
            columns["similarity"] = training_set.similarity
        if training_set.start_scores is not None:
            columns["start_score"] = training_set.start_scores
        if scores is not None and scores.cbs is not None:
            columns["cbs"] = scores.cbs
        run.write_pairs(columns)


def fit(session: Session, data: RetrievalData, run: RunWriter, phase: str, what: str) -> Fit:
    """Train the session's model on the train split of ``data``; the model must hold its untrained weights.

    Args:
        session: the run.
        data: the data set, with the train split to use.
        run: where the trace and the checkpoints go.
        phase: name of the training in ``seconds``.
        what: describes it in the log.
    """
    prepared = replace(session.prepared, data=data)
    with session.phase("score_and_mine", "building the training set"):
        training_set = build_mixed(prepared)
        refuse_differences("training pairs, scores or negatives", training_set.fingerprint)
        method = prepared.recipe.make_method(
            training_set.pairs, training_set.scores, prepared.processes, training_set.mixture
        )
    log.info("%s: %s", method.title.lower(), listed_counts(method.summary()))
    session.update(**facts_of(training_set, method))
    with session.phase(phase, what):
        result = train(
            prepared.model,
            training_set,
            method,
            prepared.settings,
            run,
            resume=session.resume,
            callbacks=[session.services, *session.callbacks],
        )
    return Fit(training_set, method, result)


def facts_of(training_set: TrainingSet, method: Method[Any]) -> dict[str, Any]:
    """What ``run.json`` says of a method and its training set."""
    return {
        "method": method.summary(),
        "negatives": training_set.negatives_record,
        "smallest_cbs_pool": training_set.smallest_cbs_pool,
    }


def listed_counts(counts: Mapping[str, int]) -> str:
    """List counts by name for the log: ``1,200 pairs, pool of 300 queries``."""
    return ", ".join(
        f"pool of {count:,} queries"
        if name == "pool_size"
        else f"{count:,} {name.replace('_', ' ')}"
        for name, count in counts.items()
    )
