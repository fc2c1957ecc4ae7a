"""Write the results of a run: all files except the model, the trace and the draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.figures import column
from opera.core.terminal import log
from opera.guard.rule import guarded_measure
from opera.identity import Origin
from opera.labels.review import counts_of, suspicious_columns
from opera.retrieval.evaluation import Evaluation
from opera.run.fit import pair_columns
from opera.run.model_card import write_model_card
from opera.run.review_items import Candidate, review_items
from opera.run.session import Session
from opera.run_folder.cutoffs import fit_cutoffs
from opera.run_folder.folder import (
    MEASURES_FILE,
    PAIRS_FILE,
    PER_QUERY_FILE,
    REVIEW_ITEMS_FILE,
    SUSPICIOUS_FILE,
    Run,
    RunWriter,
)
from opera.run_folder.record import GuardRecord, NoisyLabelsRecord, SetRecord, SizeRecord
from opera.run_folder.summary import RunSummary
from opera.run_folder.verdict import dev_sentence, headlines
from opera.training.trainer import Fit

MODELS = ("base", "fine_tuned", "final")
"""The keys of the models in ``measures.json``."""


def write_results(
    session: Session,
    fit: Fit,
    guard: GuardRecord | None,
    results: Mapping[str, Evaluation],
    columns: Mapping[str, Any],
    missing: list[Candidate],
) -> None:
    """Write all results and the model card, and mark the run as finished.

    Args:
        session: the run, whose model is saved.
        fit: the training of the final model.
        guard: the guard's choice, without the measures on test.
        results: of the models and of keyword search on test.
        columns: describe the test queries.
        missing: documents that may lack a label.
    """
    run, base, final = session.run, results["base"], results["final"]
    measures = {model: result.measures for model, result in results.items()}
    run.write_table(PAIRS_FILE, pair_columns(fit))
    run.write_json(REVIEW_ITEMS_FILE, review_items(fit, missing, base, final, session.record.seed))
    run.write_json(MEASURES_FILE, measures)
    run.write_table(PER_QUERY_FILE, {**columns, **_query_columns(results)})
    if guard is not None:
        values = [results[model].per_query[guard.measure] for model in MODELS]
        guard = guard.model_copy(update={"test": guarded_measure(*values)})
        log.debug("%s", dev_sentence(guard))
    sizes = [
        SizeRecord(size=size, **{model: results[model].by_size[size] for model in MODELS})
        for size in base.by_size
    ]
    fields = {
        "status": "finished",
        "training": fit.record,
        "noisy_labels": _write_suspicious_pairs(run, fit),
        "guard": guard,
        "matryoshka": sizes or None,
        "sets": _by_set(session.record.sets or [], fit, results) or None,
        "cutoffs": fit_cutoffs(final.ranking.scores[:, 0], final.per_query["Success@1"] > 0),
    }
    record = session.record.model_copy(update=fields)
    written = Run(run.path)
    summary = RunSummary.of(run.path, record, measures, written.per_query())
    write_model_card(written.model_path, summary)
    queries = session.prepared.model.trained_before
    if guard is None or guard.mixing_weight > 0:
        train = fit.training_set.train.query_rows
        queries = np.union1d(queries, fit.training_set.data.queries.digests[train])
    Origin.of(record, session.prepared.settings, queries).write(written.model_path)
    session.update(**fields)
    log.debug("%s", " ".join(headlines(summary)))


def _query_columns(results: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return the measures of each test query, and the best documents of both models."""
    values = {
        column(model, name): values
        for model, result in results.items()
        for name, values in result.per_query.items()
    }
    documents = {model: results[model].top_documents for model in ("base", "final")}
    return values | {column(model, "documents"): ids for model, ids in documents.items()}


def _write_suspicious_pairs(run: RunWriter, fit: Fit) -> NoisyLabelsRecord | None:
    """List the training pairs that look wrong, and return their counts, if they are known."""
    estimate, trained = fit.noisy_labels, fit.training_set
    if estimate is None:
        return None
    pairs = suspicious_columns(
        trained.data, trained.train.query_rows, trained.pairs, estimate, fit.visits
    )
    run.write_csv(SUSPICIOUS_FILE, pa.table(dict(pairs)))
    return NoisyLabelsRecord(**counts_of(estimate, fit.visits, fit.sampler.kept))


def _by_set(
    records: list[SetRecord], fit: Fit, results: Mapping[str, Evaluation]
) -> list[SetRecord]:
    """Add to the record of each data set its share of the sampled pairs, and its measures."""
    drawn = np.add.reduceat(fit.sampler.times_drawn(), fit.training_set.first_pairs[:-1])
    return [
        record.model_copy(
            update={
                "share_of_draws": float(count / drawn.sum()),
                "test": {
                    model: result.sets[record.name].measures for model, result in results.items()
                }
                if record.name in results["base"].sets
                else None,
            }
        )
        for record, count in zip(records, drawn, strict=bool(records))
    ]
