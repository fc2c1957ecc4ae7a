"""One training of a run: build its training set, train, and describe its pairs."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from opera.core.terminal import counted, log
from opera.data import Mixture
from opera.data.identity import text_keys
from opera.labels.review import visit_columns
from opera.methods import Method
from opera.retrieval.device import refuse_differences
from opera.run.session import Session
from opera.run_folder.folder import RunWriter
from opera.run_folder.record import NegativesRecord
from opera.training.build import TrainingSet, build_training_set
from opera.training.sampler import Sampler
from opera.training.trainer import Fit, make_sampler, train


def fit(
    session: Session,
    data: Mixture,
    run: RunWriter,
    phase: str,
    description: str,
    first: Fit | None = None,
) -> Fit:
    """Train the session's model, which must hold its base weights.

    Args:
        session: the run.
        data: the data sets; their train splits are used.
        run: writes the trace and the checkpoints.
        phase: name of the training in ``seconds``.
        description: of the training in the log.
        first: an earlier training of the run, whose first visits this training copies.
    """
    prepared = session.prepared
    with session.phase("score_and_mine", "building the training set"):
        training_set = build_training_set(prepared, data)
        refuse_differences("training pairs, scores or negatives", training_set.shared_arrays)
        sampler = make_sampler(training_set, prepared.recipe)
    queries = np.logical_or.reduceat(sampler.kept, training_set.pairs.query_offsets[:-1])
    log.info(
        "training on %s of %s (method: %s)",
        counted(int(sampler.kept.sum()), "pair"),
        counted(int(queries.sum()), "query"),
        prepared.recipe.method,
    )
    session.update(**facts_of(training_set, sampler))
    with session.phase(phase, description):
        if first is not None:
            keys = text_keys(training_set.data, training_set.train)
            first_keys = text_keys(first.training_set.data, first.training_set.train)
            sampler.visits.take_over(keys, first.visits, first_keys)
        model, settings = prepared.model.trained, prepared.settings
        return train(model, training_set, sampler, settings, run, session.resume, session.callbacks)


def facts_of(training_set: TrainingSet, sampler: Sampler) -> dict[str, Any]:
    """Return the entries of ``run.json`` about the method and the training set."""
    methods = [data_set.method for data_set in sampler.sets]
    negatives, lists = training_set.negatives, training_set.negatives.lists
    pools = [scores.smallest_pool for scores in training_set.scores]
    return {
        "method": summary_of(methods),
        "negatives": NegativesRecord(
            kind=negatives.kind,
            queries_without=None if lists is None else lists.queries_without,
            listed=None if lists is None else len(lists.doc_rows),
        ),
        "smallest_cbs_pool": min((pool for pool in pools if pool is not None), default=None),
    }


def summary_of(methods: Sequence[Method[Any]]) -> dict[str, Any]:
    """Return the facts about a method; of several sets, the sums of counts and lists of others."""
    summaries = [method.summary() for method in methods]
    if len(summaries) == 1:
        return summaries[0]
    facts = {name: [summary[name] for summary in summaries] for name in summaries[0]}
    return {
        name: sum(values) if all(isinstance(value, Integral) for value in values) else values
        for name, values in facts.items()
    }


def pair_columns(fit: Fit) -> dict[str, Any]:
    """Return the columns of ``pairs.parquet``."""
    data, train = fit.training_set.data, fit.training_set.train
    pairs, scores = fit.training_set.pairs, fit.training_set.scores
    cbs = [scores_of_set.cbs for scores_of_set in scores if scores_of_set.cbs is not None]
    optional = {
        "weight": train.weights,
        "similarity": fit.training_set.similarity,
        "cbs": np.concatenate(cbs) if cbs else None,
    }
    return {
        "query_id": data.queries.id_column(train.query_rows[pairs.pair_query]),
        "doc_id": data.corpus.id_column(pairs.pair_doc),
        "grade": train.grades,
        "times_drawn": fit.sampler.times_drawn(),
        "kept": fit.sampler.kept,
        **visit_columns(fit.noisy_labels, fit.visits),
        **{name: values for name, values in optional.items() if values is not None},
    }
