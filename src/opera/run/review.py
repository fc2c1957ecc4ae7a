"""What ``opera review`` shows of a run, written at its end: it needs the model and the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.trainer import PRIMARY
from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.pairs import pair_keys
from opera.engine.train import Fit
from opera.labels.review import SHORT, Labelled, test_pairs, training_pairs
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.search import search_corpus
from opera.training_set.build import TrainingSet
from opera.training_set.documents import KnownPositives

MOST_QUERIES = 2000
"""Training queries whose best document is looked at."""
FIRST_RANKS = 10
"""Ranks that a review names; of a lower one it says only that it is lower."""
MOST_MISSING, MOST_CHANGED, SHOWN = 200, 50, 5
"""Documents without a label, queries that lost and that gained, and documents of each of these."""
Candidate = tuple[int, int, float]
"""A training query, a corpus row and its score."""


def missing_candidates(
    encoder: Encoder, training_set: TrainingSet, settings: Any
) -> list[Candidate]:
    """Find the best document of each training query, if it has no label and every labelled one
    ranks below it; the highest scores first. All processes call this."""
    candidates: list[Candidate] = []
    for one in training_set.sets:
        rng = generator(settings.seed, "review.queries")
        queries = np.sort(rng.permutation(one.pairs.n_queries)[:MOST_QUERIES])
        rows = one.train.query_rows
        ranking = search_corpus(encoder, one.data, rows[queries], 1, settings.corpus_text)
        known = KnownPositives.of(one.data, rows, one.pairs)
        best = ranking.doc_rows[:, 0]
        is_missing = (best >= 0) & ~known.contains(queries, np.maximum(best, 0))
        if one.data.rejected is not None:
            groups = one.data.query_group[rows[queries]], one.data.document_group[best]
            is_missing &= ~np.isin(pair_keys(*groups), one.data.rejected)
        for place in np.flatnonzero(is_missing):
            query = one.first_query + int(queries[place])
            score = float(ranking.scores[place, 0])
            candidates.append((query, one.first_document + int(best[place]), score))
    return sorted(candidates, key=lambda candidate: -candidate[2])[:MOST_MISSING]


def review_items(
    fit: Fit, missing: list[Candidate], base: Evaluation, final: Evaluation, seed: int
) -> dict[str, Any]:
    """Describe all that may be reviewed: ``train``, ``test`` and ``changed``.

    Args:
        fit: the training of the final model.
        missing: what :func:`missing_candidates` returns.
        base: the base model on test.
        final: the final model on test.
        seed: of the run.
    """
    training_set = fit.training_set
    labelled = Labelled(training_set.data, training_set.query_rows, training_set.pairs)
    train = training_pairs(labelled, fit.noisy_labels, fit.visits, fit.kept, seed)
    why = "the final model ranks it above every labelled document"
    train["missing"] = [labelled.missing(query, row, why) for query, row, _ in missing]
    return {
        "train": train,
        "test": _test_items(training_set.data, base, final, seed),
        "changed": _changed(training_set.data, base, final),
    }


def _test_items(
    data: RetrievalData, base: Evaluation, final: Evaluation, seed: int
) -> dict[str, Any]:
    """Describe test labels that no model ranks well, and documents that either ranks first."""
    qrels = data.judged_qrels("test").relevant()
    labelled = Labelled(data, qrels.query_rows, qrels.pairs())
    ranks = {"base": _ranks(labelled, base), "final": _ranks(labelled, final)}
    why = [
        f"{_in_words(of_base)} with the base model, {_in_words(of_final)} with the final model"
        for of_base, of_final in zip(ranks["base"], ranks["final"], strict=True)
    ]
    best = np.minimum(ranks["base"], ranks["final"])
    items: dict[str, Any] = test_pairs(labelled, best, why, seed)
    known = KnownPositives.of(data, qrels.query_rows, labelled.pairs)
    queries = np.arange(len(qrels.query_rows))
    missing: dict[tuple[int, int], str] = {}
    for name, evaluation in (("final", final), ("base", base)):
        rows = evaluation.ranking.doc_rows[:, 0]
        unlabelled = (rows >= 0) & ~known.contains(queries, np.maximum(rows, 0))
        for query in np.flatnonzero(unlabelled):
            missing.setdefault((int(query), int(rows[query])), name)
    order = generator(seed, "review.test.missing").permutation(len(missing))
    first_documents = list(missing.items())
    items["missing"] = [
        labelled.missing(query, row, f"the {name} model ranks it first")
        for (query, row), name in (first_documents[place] for place in order[:MOST_MISSING])
    ]
    return items


def _ranks(labelled: Labelled, evaluation: Evaluation) -> NDArray[np.int64]:
    """The rank of each labelled document: int64 ``[N]``; the depth of the ranking and 1 if it is
    not there."""
    ranked = evaluation.ranking.doc_rows[labelled.pairs.pair_query]
    is_document = ranked == labelled.pairs.pair_doc[:, None]
    depth = ranked.shape[1]
    rank: NDArray[np.int64] = is_document.argmax(axis=1) + 1
    rank[~is_document.any(axis=1)] = depth + 1
    return rank


def _in_words(rank: int) -> str:
    return f"rank {rank}" if rank <= FIRST_RANKS else f"rank above {FIRST_RANKS}"


def _changed(data: RetrievalData, base: Evaluation, final: Evaluation) -> dict[str, Any]:
    """Describe the test queries that lost most, and those that gained most."""
    qrels = data.judged_qrels("test")
    relevant = qrels.relevant()
    labelled = Labelled(data, relevant.query_rows, relevant.pairs())
    before_values, after_values = base.per_query[PRIMARY], final.per_query[PRIMARY]
    change = after_values - before_values
    order = np.argsort(change, kind="stable")

    def items(queries: IntArray) -> Iterator[dict[str, Any]]:
        for query in queries.tolist():
            start, end = labelled.pairs.query_offsets[query : query + 2].tolist()
            positives = labelled.pairs.pair_doc[start:end].tolist()
            rows = labelled.query_rows[query : query + 1]
            yield {
                "query_id": data.queries.ids(rows)[0],
                "query": data.queries.texts(rows)[0],
                "base": round(float(before_values[query]), 4),
                "final": round(float(after_values[query]), 4),
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
