"""The documents that dev queries rank: a part of a large corpus, because the guard encodes these
documents for every λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opera.config.training import TrainSettings
from opera.core.arrays import distinct_numbers, normalise
from opera.core.rng import generator
from opera.data import Mixture, Qrels, RetrievalData
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.evaluation import KeywordSearch
from opera.retrieval.passages import DocumentVectors
from opera.retrieval.search import search_corpus, search_mapped

GUARD_DOCUMENTS, STATIC_GUARD_DOCUMENTS = 10_000, 100_000
"""Most documents that dev queries rank with a transformer and with a static model."""
DEPTH = 20
"""Best documents of each ranking and query in the reduced corpus, if the limit allows."""
RIDGE = 1e-3
"""Weight of the regression's penalty, relative to the mean variance of an embedding's values."""


def most_documents(is_static: bool, encoder: Encoder, mixture: Mixture) -> int:
    """Return how many documents the dev queries rank at most; fewer if they have many passages, but
    at least twice as many as are relevant.
    """
    limit = STATIC_GUARD_DOCUMENTS if is_static else GUARD_DOCUMENTS
    if (passages := passages_per_document(encoder, mixture)) == 1:
        return limit
    relevant = [
        len(distinct_numbers(data_set.judged_qrels("dev").relevant().doc_rows))
        for data_set in mixture.with_relevant("dev")
    ]
    return max(int(limit / passages), 2 * sum(relevant), 1)


def passages_per_document(encoder: Encoder, mixture: Mixture) -> float:
    """Return the mean number of passages that the model reads; 1 if documents stay whole."""
    passages = [encoder.passages(data_set) for data_set in mixture.data_sets]
    rows = sum(0 if corpus is None else len(corpus.table) for corpus in passages)
    return rows / len(mixture.joined.corpus) if rows else 1.0


def best_documents(
    encoder: Encoder, mixture: Mixture, settings: TrainSettings
) -> list[NDArray[np.int64]]:
    """Encode the corpus, and return the rows of each dev query's :data:`DEPTH` best documents.

    The result has an array ``[n, k]`` per data set, best first.
    """
    return [
        search_corpus(
            encoder, data_set, data_set.judged_qrels("dev").query_rows, DEPTH, settings.corpus_text
        ).doc_rows.astype(np.int64)
        for data_set in mixture.data_sets
    ]


def best_before_training(
    base: Encoder, mixture: Mixture, keywords: KeywordSearch | None, settings: TrainSettings
) -> list[NDArray[np.int64]]:
    """Return what :func:`best_documents` does, for the base model and for keyword search.

    The result has an array ``[rankings, k]`` per data set: first the base model's, then those of
    keyword search, if there is any.
    """
    best = best_documents(base, mixture, settings)
    if keywords is None:
        return best
    best_by_keywords = [
        keywords.rank(data_set, split="dev", depth=DEPTH).doc_rows.astype(np.int64)
        for data_set in mixture.data_sets
    ]
    return joined_rankings([best, best_by_keywords])


def corpus_during_training(
    base: Encoder,
    mixture: Mixture,
    keywords: KeywordSearch | None,
    settings: TrainSettings,
    limit: int,
) -> Mixture:
    """Return the data whose documents dev queries rank in evaluations during training.

    A corpus of more than ``limit`` documents is reduced to the best of the base model and of
    keyword search, and random ones.
    """
    if len(mixture.joined.corpus) <= limit:
        return mixture
    best = best_before_training(base, mixture, keywords, settings)
    return dev_corpus(mixture, best, settings, limit)


def predicted_best_documents(
    base_embeddings: Sequence[DocumentVectors],
    fine_tuned: Encoder,
    mixture: Mixture,
    best: Sequence[NDArray[np.int64]],
    settings: TrainSettings,
) -> list[NDArray[np.int64]]:
    """Predict what :func:`best_documents` of a fine-tuned model returns, from few documents.

    Encoding all documents takes long. So the fine-tuned model encodes only half of a reduced
    corpus. A linear map from the base model's embeddings, fitted to these documents by ridge
    regression, predicts its embeddings of all documents.

    Args:
        base_embeddings: for each data set, the base model's embeddings of all documents.
        fine_tuned: the fine-tuned model.
        mixture: the data sets.
        best: for each data set, an array ``[rankings, k]`` of document rows, best first.
        settings: the run's.
    """
    limit = most_documents(False, fine_tuned, mixture) // 2
    samples = dev_corpus(mixture, best, settings, limit).data_sets
    return [
        _predicted_best(embeddings, fine_tuned, data_set, sample, settings)
        for embeddings, data_set, sample in zip(
            base_embeddings, mixture.data_sets, samples, strict=True
        )
    ]


def _predicted_best(
    embeddings: DocumentVectors,
    fine_tuned: Encoder,
    data: RetrievalData,
    sample: RetrievalData,
    settings: TrainSettings,
) -> NDArray[np.int64]:
    sample_rows = data.corpus.find_rows(sample.corpus.ids(np.arange(len(sample.corpus))))
    linear_map = ridge_regression(
        embeddings.select(sample_rows).rows[:],
        fine_tuned.encode_corpus(sample, settings.corpus_text).rows[:],
    )

    def predict(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        predicted = vectors @ linear_map
        if fine_tuned.similarity == "cosine":
            normalise(predicted)
        return predicted

    queries = fine_tuned.encode_queries(data, data.judged_qrels("dev").query_rows)[:]
    ranking = search_mapped(fine_tuned, queries, data, embeddings, predict, DEPTH)
    return ranking.doc_rows.astype(np.int64)


def ridge_regression(
    inputs: NDArray[np.float32], outputs: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Fit the linear map ``[a, b]`` from vectors ``[n, a]`` to vectors ``[n, b]``."""
    covariance = inputs.T.astype(np.float64) @ inputs
    covariance += RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    solution: NDArray[np.float64] = np.linalg.solve(covariance, inputs.T @ outputs)
    return solution.astype(np.float32)


def joined_rankings(
    rankings: Sequence[Sequence[NDArray[np.int64]]],
) -> list[NDArray[np.int64]]:
    """Join rankings, each of which has an array ``[n, k]`` per data set, below each other."""
    return [np.concatenate(of_data_set) for of_data_set in zip(*rankings, strict=True)]


def dev_corpus(
    mixture: Mixture, best: Sequence[NDArray[np.int64]], settings: TrainSettings, limit: int
) -> Mixture:
    """Reduce the corpus to ``limit`` documents, divided among data sets by their size.

    Args:
        mixture: the data sets.
        best: for each data set, an array ``[rankings, k]`` of document rows to include, best first;
            -1 for none.
        settings: the run's.
        limit: the number of documents.
    """
    all_documents = len(mixture.joined.corpus)
    return Mixture.of(
        *(
            reduced_corpus(
                data_set,
                best_doc_rows,
                max(1, limit * len(data_set.corpus) // all_documents),
                settings,
            )
            for data_set, best_doc_rows in zip(mixture.data_sets, best, strict=True)
        )
    )


def reduced_corpus(
    data: RetrievalData, best: NDArray[np.int64], limit: int, settings: TrainSettings
) -> RetrievalData:
    """Reduce the corpus to ``limit`` documents, or to the relevant documents if there are more.

    The relevant documents come first, then the best document of each ranking, then the second best,
    and so on, up to the last rank that fits. Random documents fill the rest. Documents without a
    text are excluded.
    """
    qrels, corpus_text = data.judged_qrels("dev"), settings.corpus_text
    is_chosen, is_empty = np.zeros((2, len(data.corpus)), dtype=bool)
    is_chosen[qrels.relevant().doc_rows] = True
    is_empty[data.corpus.empty_rows(corpus_text)] = True
    is_empty &= ~is_chosen
    for doc_rows_at_rank in best.T:
        extended = is_chosen.copy()
        extended[doc_rows_at_rank[doc_rows_at_rank >= 0]] = True
        extended &= ~is_empty
        if extended.sum() > limit:
            break
        is_chosen = extended
    others = np.flatnonzero(~is_chosen & ~is_empty)
    others = generator(settings.seed, "guard.documents").permutation(others)
    is_chosen[others[: max(0, limit - int(is_chosen.sum()))]] = True
    doc_rows = np.flatnonzero(is_chosen)
    judged = np.isin(qrels.doc_rows, doc_rows)
    dev = Qrels.from_arrays(
        qrels.query_rows[qrels.query_index[judged]],
        np.searchsorted(doc_rows, qrels.doc_rows[judged]),
        qrels.grades[judged],
    )
    return replace(
        data,
        fingerprint=f"{data.fingerprint}/documents/{rows_digest(doc_rows)}",
        corpus=data.corpus.select(doc_rows),
        splits={"dev": dev},
        given_negatives=None,
        held_out=None,
        teacher=None,
    )
