"""What a run measures on test: the model before, fine-tuned and handed over; whole, by size and by data set."""

from __future__ import annotations

from typing import Any

import numpy as np

from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder, query_difficulty, relevant_ids
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model, reads_vectors, set_lengths
from opera.runs.folder import RunWriter
from opera.runs.record import GuardRecord, SetRecord, SizeRecord
from opera.training.fit import Fit
from opera.training.guard.verdict import guarded_measure
from opera.training.session import Session
from opera.training_set.prepare import Prepared
from opera.training_set.prepare_model import encoder_of


def test_queries_of(prepared: Prepared) -> dict[str, Any]:
    """Columns that describe the test queries."""
    data, corpus_text = prepared.data, prepared.settings.corpus_text
    return {
        "relevant": relevant_ids(data, "test"),
        "similarity": query_difficulty(prepared.encoder, data, "test", corpus_text),
    }


def evaluate_test(encoder: Encoder, prepared: Prepared) -> Evaluation:
    """Evaluate on test: all recorded measures, and the one that the guard decides by."""
    settings, names = prepared.settings, list(FULL_MEASURES)
    if settings.guard and settings.metric_for_best_model not in names:
        names.append(settings.metric_for_best_model)
    sizes = settings.matryoshka or ()
    return evaluate_encoder(encoder, prepared.data, "test", names, settings.corpus_text, sizes)


def evaluate_saved(run: RunWriter, prepared: Prepared) -> Evaluation:
    """Evaluate the model as saved, loaded anew, with the run's lengths; an adapter on the vectors it trained on."""
    adapter = reads_vectors(prepared.model)
    saved = prepared.model if adapter else load_model(run.model_path, prepared.encoder.device)
    if not adapter:
        set_lengths(saved, prepared.lengths)
    return evaluate_test(encoder_of(saved, prepared.settings), prepared)


def by_set(
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
                "test": {
                    when: result.sets[record.name].measures for when, result in moments.items()
                }
                if record.name in before.sets
                else None,
            }
        )
        for record, count in zip(session.record.sets, drawn, strict=True)
    ]


def by_size_of(before: Evaluation, fine_tuned: Evaluation, after: Evaluation) -> list[SizeRecord]:
    """Put the measures of each size side by side."""
    moments = {"before": before, "fine_tuned": fine_tuned, "after": after}
    return [
        SizeRecord(
            size=size, **{name: evaluation.by_size[size] for name, evaluation in moments.items()}
        )
        for size in before.by_size
    ]


def with_test(
    guard: GuardRecord, before: Evaluation, fine_tuned: Evaluation, after: Evaluation
) -> GuardRecord:
    """Add what the choice was worth on test."""
    at_zero, at_one, at_share = (
        result.per_query[guard.measure] for result in (before, fine_tuned, after)
    )
    return guard.model_copy(update={"test": guarded_measure(at_zero, at_one, at_share)})
