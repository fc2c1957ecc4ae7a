"""Write the results of a run: all files except the model, the trace and the draws.

The items of ``opera review`` are collected here, while the model and the data are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import IntArray, is_among, slices
from opera.core.figures import PRIMARY, SEARCHES, column
from opera.core.rng import generator
from opera.core.terminal import log
from opera.data import RetrievalData
from opera.data.pairs import pair_keys
from opera.guard.rule import guarded_measure
from opera.identity import Origin
from opera.labels.review import (
    SHORT,
    Labelled,
    describe_document,
    test_items,
    training_items,
)
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation, relevant_columns
from opera.retrieval.search import search_corpus
from opera.run.model_card import write_model_card
from opera.run.noisy_pairs import noise_record, suspicious_table, visit_columns
from opera.run.session import Session
from opera.run.user_columns import with_user_columns
from opera.run_folder.cutoffs import fit_cutoffs
from opera.run_folder.folder import (
    DEV_QUERIES_FILE,
    MEASURES_FILE,
    PAIRS_FILE,
    PER_QUERY_FILE,
    REVIEW_ITEMS_FILE,
    SUSPICIOUS_FILE,
    Run,
)
from opera.run_folder.record import GuardRecord, SetRecord, SizeRecord
from opera.run_folder.summary import RunSummary, dev_sentence, headlines
from opera.training.build import TrainingSet
from opera.training.documents import KnownPositives
from opera.training.trainer import Fit

PAIRS_AT_ONCE = 2**20
"""Rows of ``pairs.parquet`` that are written at once."""
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
    models = [model for model in MODELS if model in results]
    measures = {model: result.measures for model, result in results.items()}
    run.write_tables(PAIRS_FILE, pair_tables(fit))
    review = review_items(fit, missing, base, final, session.record.seed)
    suspicious = _suspicious_pairs(fit)
    review, suspicious = with_user_columns(session, review, suspicious)
    run.write_json(REVIEW_ITEMS_FILE, review)
    if suspicious is not None:
        run.write_csv(SUSPICIOUS_FILE, suspicious)
    run.write_json(MEASURES_FILE, measures)
    run.write_table(PER_QUERY_FILE, {**columns, **_query_columns(results)})
    if session.prepared.settings.needs_dev:
        run.write_table(DEV_QUERIES_FILE, _dev_columns(session.prepared.data.with_splits.joined))
    if guard is not None:
        values = {model: results[model].per_query[guard.measure] for model in models}
        guard = guard.model_copy(update={"test": guarded_measure(**values)})
        log.debug("%s", dev_sentence(guard))
    sizes = [
        SizeRecord(size=size, **{model: results[model].by_size[size] for model in models})
        for size in base.by_size
    ]
    fields = {
        "status": "finished",
        "training": fit.record,
        "noisy_labels": None
        if fit.noisy_labels is None
        else noise_record(fit.noisy_labels, fit.visits, fit.sampler.kept),
        "guard": guard,
        "matryoshka": sizes or None,
        "index": {"base": base.index, "final": final.index} if final.index else None,
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


def pair_tables(fit: Fit) -> Iterator[pa.Table]:
    """Yield the rows of ``pairs.parquet``, a part at a time, because ids take much memory."""
    data, train = fit.training_set.data, fit.training_set.train
    pairs, scores = fit.training_set.pairs, fit.training_set.scores
    cbs = [scores_of_set.cbs for scores_of_set in scores if scores_of_set.cbs is not None]
    columns: dict[str, NDArray[Any] | None] = {
        "grade": train.grades,
        "times_drawn": fit.sampler.times_drawn(),
        "kept": fit.sampler.kept,
        "weight": train.weights,
        "similarity": fit.training_set.similarity,
        "cbs": np.concatenate(cbs) if cbs else None,
    }
    for rows in slices(pairs.n_pairs, PAIRS_AT_ONCE):
        query_rows = train.query_rows[pairs.pair_query[rows]]
        yield pa.table(
            {
                "query_id": data.queries.id_column(query_rows),
                "doc_id": data.corpus.id_column(pairs.pair_doc[rows]),
                **{name: values[rows] for name, values in columns.items() if values is not None},
                **visit_columns(fit.noisy_labels, fit.visits, rows),
            }
        )


def _dev_columns(data: RetrievalData) -> dict[str, Any]:
    """Return the columns of ``dev_queries.parquet``, as those of ``per_query.parquet``."""
    query_rows = data.judged_qrels("dev").query_rows
    return {"query_id": data.queries.ids(query_rows), **relevant_columns(data, "dev")}


def _query_columns(results: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return the measures of each test query, and the best documents of both models and of keyword
    search.
    """
    values = {
        column(model, name): values
        for model, result in results.items()
        for name, values in result.per_query.items()
    }
    searches = [search for search in SEARCHES if search in results]
    return values | {column(name, "documents"): results[name].top_documents for name in searches}


def _suspicious_pairs(fit: Fit) -> pa.Table | None:
    """List the training pairs that look wrong, the worst first, if they are known."""
    estimate, train, pairs = fit.noisy_labels, fit.training_set.train, fit.training_set.pairs
    if estimate is None:
        return None
    query_rows = train.query_rows[pairs.pair_query]
    return suspicious_table(estimate, fit.visits, fit.training_set.data, query_rows, pairs.pair_doc)


def _by_set(
    records: list[SetRecord], fit: Fit, results: Mapping[str, Evaluation]
) -> list[SetRecord]:
    """Add to the record of each data set its share of the sampled pairs, and its measures."""
    if not records:  # a single data set
        return []
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
        for record, count in zip(records, drawn, strict=True)
    ]


MOST_QUERIES = 2000
"""Most training queries that are searched for missing labels."""
FIRST_RANKS = 10
"""A review shows ranks up to this."""
MOST_MISSING, MOST_CHANGED, SHOWN = 200, 50, 5
"""Most documents without a label, most queries that lost (or gained), and documents per query."""
Candidate = tuple[int, int, float]
"""A query index of the run, a row of the joined corpus, and the score."""


def missing_candidates(
    encoder: Encoder, training_set: TrainingSet, settings: Any
) -> list[Candidate]:
    """Find training queries whose best document has no label, the highest scores first.

    All processes must call this.
    """
    candidates: list[Candidate] = []
    for trained in training_set.sets:
        rng = generator(settings.seed, "review.queries")
        data, all_query_rows = trained.data, trained.train.query_rows
        query_indices = np.sort(rng.permutation(trained.pairs.n_queries)[:MOST_QUERIES])
        query_rows = all_query_rows[query_indices]
        ranking = search_corpus(encoder, data, query_rows, 1, settings.corpus_text)
        best_doc_rows = ranking.doc_rows[:, 0]
        known = KnownPositives.of(data, all_query_rows, trained.pairs)
        is_missing = _without_label(data, "train", known, query_indices, query_rows, best_doc_rows)
        groups = data.query_group[query_rows], data.document_group[best_doc_rows]
        is_missing &= ~is_among(pair_keys(*groups), trained.decided.rejected)
        candidates += zip(
            (trained.first_query_index + query_indices[is_missing]).tolist(),
            (trained.first_doc_row + best_doc_rows[is_missing]).tolist(),
            ranking.scores[is_missing, 0].tolist(),
            strict=True,
        )
    return sorted(candidates, key=lambda candidate: -candidate[2])[:MOST_MISSING]


def _without_label(
    data: RetrievalData,
    split: str,
    known: KnownPositives,
    query_indices: IntArray,
    query_rows: IntArray,
    doc_rows: IntArray,
) -> NDArray[np.bool_]:
    """Whether each document of a query has no judgement in a split and is not a known positive.

    Grades do not matter. The value is false for -1, which marks a missing document.
    """
    judged = is_among(pair_keys(query_rows, doc_rows), data.split(split).keys)
    return (doc_rows >= 0) & ~known.contains(query_indices, np.maximum(doc_rows, 0)) & ~judged


def review_items(
    fit: Fit, missing: list[Candidate], base: Evaluation, final: Evaluation, seed: int
) -> dict[str, Any]:
    """Describe all items of a review: ``train``, ``test`` and ``changed``.

    Args:
        fit: the training of the final model.
        missing: the result of :func:`missing_candidates`.
        base: the base model on test.
        final: the final model on test.
        seed: the run's seed.
    """
    training_set = fit.training_set
    labelled = Labelled(training_set.data, training_set.train.query_rows, training_set.pairs)
    train = training_items(labelled, fit.noisy_labels, fit.visits, fit.sampler.kept, seed)
    why = "the final model ranks it above every labelled document"
    train["missing"] = [
        labelled.item(query_index, doc_row, why) for query_index, doc_row, _ in missing
    ]
    return {
        "train": train,
        "test": _test_items(training_set.data, base, final, seed),
        "changed": _changed(training_set.data, base, final),
    }


def _test_items(
    data: RetrievalData, base: Evaluation, final: Evaluation, seed: int
) -> dict[str, Any]:
    """Describe test labels that neither model ranks well, and unlabelled documents that a model
    ranks first.
    """
    qrels = data.judged_qrels("test").relevant()
    labelled = Labelled(data, qrels.query_rows, qrels.pairs())
    ranks = {"base": _ranks(labelled, base), "final": _ranks(labelled, final)}
    why = [
        f"{_rank_text(base_rank)} with the base model, "
        f"{_rank_text(final_rank)} with the final model"
        for base_rank, final_rank in zip(ranks["base"], ranks["final"], strict=True)
    ]
    best = np.minimum(ranks["base"], ranks["final"])
    known = KnownPositives.of(data, qrels.query_rows, labelled.pairs)
    query_indices = np.arange(len(qrels.query_rows))
    missing: dict[tuple[int, int], str] = {}
    for name, evaluation in (("final", final), ("base", base)):
        best_doc_rows = evaluation.ranking.doc_rows[:, 0]
        unlabelled = _without_label(
            data, "test", known, query_indices, qrels.query_rows, best_doc_rows
        )
        for query_index in np.flatnonzero(unlabelled):
            missing.setdefault((int(query_index), int(best_doc_rows[query_index])), name)
    order = generator(seed, "review.test.missing").permutation(len(missing))
    missing_documents = list(missing.items())
    items = [
        labelled.item(query_index, doc_row, f"the {name} model ranks it first")
        for (query_index, doc_row), name in (
            missing_documents[number] for number in order[:MOST_MISSING]
        )
    ]
    return {**test_items(labelled, best, why, seed), "missing": items}


def _ranks(labelled: Labelled, evaluation: Evaluation) -> NDArray[np.int64]:
    """Return the rank of each labelled document, int64 ``[N]``. If the ranking does not contain it,
    the rank is the depth + 1.
    """
    ranked = evaluation.ranking.doc_rows[labelled.pairs.pair_query]
    is_document = ranked == labelled.pairs.pair_doc[:, None]
    rank: NDArray[np.int64] = is_document.argmax(axis=1) + 1
    rank[~is_document.any(axis=1)] = ranked.shape[1] + 1
    return rank


def _rank_text(rank: int) -> str:
    return f"rank {rank}" if rank <= FIRST_RANKS else f"rank {FIRST_RANKS + 1} or worse"


def _changed(data: RetrievalData, base: Evaluation, final: Evaluation) -> dict[str, Any]:
    """Describe the test queries that lost and gained most."""
    relevant = data.judged_qrels("test").relevant()
    labelled = Labelled(data, relevant.query_rows, relevant.pairs())
    base_values, final_values = base.per_query[PRIMARY], final.per_query[PRIMARY]
    change = final_values - base_values
    order = np.argsort(change, kind="stable")

    def items(query_indices: IntArray) -> Iterator[dict[str, Any]]:
        for query_index in query_indices.tolist():
            start, end = labelled.pairs.query_offsets[query_index : query_index + 2].tolist()
            positives = labelled.pairs.pair_doc[start:end].tolist()
            query_row = labelled.query_rows[query_index : query_index + 1]
            yield {
                "query_id": data.queries.ids(query_row)[0],
                "query": data.queries.texts(query_row)[0],
                "base": round(float(base_values[query_index]), 4),
                "final": round(float(final_values[query_index]), 4),
                **{
                    name: [
                        {
                            **describe_document(data, doc_row, SHORT),
                            "labelled": doc_row in positives,
                        }
                        for doc_row in evaluation.ranking.doc_rows[query_index, :SHOWN].tolist()
                        if doc_row >= 0
                    ]
                    for name, evaluation in (("base_documents", base), ("final_documents", final))
                },
            }

    lost, gained = order[change[order] < 0], order[::-1][change[order[::-1]] > 0]
    return {
        "losses": list(items(lost[:MOST_CHANGED])),
        "gains": list(items(gained[:MOST_CHANGED])),
        "lost": len(lost),
        "gained": len(gained),
        "same": len(change) - len(lost) - len(gained),
    }
