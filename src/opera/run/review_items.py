"""Collect the items of ``opera review`` at the end of a run, which has the model and the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.figures import PRIMARY
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.pairs import pair_keys
from opera.labels.review import SHORT, Labelled, test_items, training_items
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.search import search_corpus
from opera.training.build import TrainingSet
from opera.training.documents import KnownPositives
from opera.training.trainer import Fit

MOST_QUERIES = 2000
"""Most training queries that are searched for missing labels."""
FIRST_RANKS = 10
"""A review shows ranks up to this."""
MOST_MISSING, MOST_CHANGED, SHOWN = 200, 50, 5
"""Most documents without a label, most queries that lost (or gained), and documents per query."""
Candidate = tuple[int, int, float]
"""A training query, a corpus row and its score."""


def missing_candidates(
    encoder: Encoder, training_set: TrainingSet, settings: Any
) -> list[Candidate]:
    """Find training queries whose best document has no label, the highest scores first.

    All processes must call this.
    """
    candidates: list[Candidate] = []
    for trained in training_set.sets:
        rng = generator(settings.seed, "review.queries")
        queries = np.sort(rng.permutation(trained.pairs.n_queries)[:MOST_QUERIES])
        rows = trained.train.query_rows
        ranking = search_corpus(encoder, trained.data, rows[queries], 1, settings.corpus_text)
        known, best = KnownPositives.of(trained.data, rows, trained.pairs), ranking.doc_rows[:, 0]
        is_missing = _without_label(trained.data, "train", known, queries, rows[queries], best)
        groups = trained.data.query_group[rows[queries]], trained.data.document_group[best]
        is_missing &= ~np.isin(pair_keys(*groups), trained.decided.rejected)
        candidates += zip(
            (trained.first_query + queries[is_missing]).tolist(),
            (trained.first_document + best[is_missing]).tolist(),
            ranking.scores[is_missing, 0].tolist(),
            strict=True,
        )
    return sorted(candidates, key=lambda candidate: -candidate[2])[:MOST_MISSING]


def _without_label(
    data: RetrievalData,
    split: str,
    known: KnownPositives,
    queries: IntArray,
    query_rows: IntArray,
    doc_rows: IntArray,
) -> NDArray[np.bool_]:
    """Whether each document of a query has no judgement in a split and is not a known positive.

    Grades do not matter. The value is false for -1, which marks a missing document.
    """
    judged = np.isin(pair_keys(query_rows, doc_rows), data.split(split).keys)
    return (doc_rows >= 0) & ~known.contains(queries, np.maximum(doc_rows, 0)) & ~judged


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
    train["missing"] = [labelled.item(query, row, why) for query, row, _ in missing]
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
    queries = np.arange(len(qrels.query_rows))
    missing: dict[tuple[int, int], str] = {}
    for name, evaluation in (("final", final), ("base", base)):
        rows = evaluation.ranking.doc_rows[:, 0]
        unlabelled = _without_label(data, "test", known, queries, qrels.query_rows, rows)
        for query in np.flatnonzero(unlabelled):
            missing.setdefault((int(query), int(rows[query])), name)
    order = generator(seed, "review.test.missing").permutation(len(missing))
    first_documents = list(missing.items())
    items = [
        labelled.item(query, row, f"the {name} model ranks it first")
        for (query, row), name in (first_documents[index] for index in order[:MOST_MISSING])
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

    def items(queries: IntArray) -> Iterator[dict[str, Any]]:
        for query in queries.tolist():
            start, end = labelled.pairs.query_offsets[query : query + 2].tolist()
            positives = labelled.pairs.pair_doc[start:end].tolist()
            rows = labelled.query_rows[query : query + 1]
            yield {
                "query_id": data.queries.ids(rows)[0],
                "query": data.queries.texts(rows)[0],
                "base": round(float(base_values[query]), 4),
                "final": round(float(final_values[query]), 4),
                **{
                    name: [
                        {**labelled.document(row, SHORT), "labelled": row in positives}
                        for row in evaluation.ranking.doc_rows[query, :SHOWN].tolist()
                        if row >= 0
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
