"""The documents that dev queries rank: a part of a large corpus, because the guard encodes it for
every λ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data import Mixture, Qrels, RetrievalData
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.evaluation import Evaluation, evaluate_encoder
from opera.retrieval.search import search_corpus

GUARD_DOCUMENTS = 10_000
"""Most documents that dev queries rank with a transformer."""
DEPTH = 20
"""Best documents of each model and query in the reduced corpus, if the limit allows."""


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


def dev_corpus(
    mixture: Mixture, best: Sequence[NDArray[np.int64]], settings: TrainSettings
) -> Mixture:
    """Reduce the corpus to :data:`GUARD_DOCUMENTS`, divided among data sets by their size.

    Args:
        mixture: the data sets.
        best: for each data set, an array ``[rankings, k]`` of document rows to include, best first;
            -1 for none.
        settings: the run's.
    """
    all_documents = len(mixture.joined.corpus)
    return Mixture.of(
        *(
            reduced_corpus(
                data_set,
                rows,
                max(1, GUARD_DOCUMENTS * len(data_set.corpus) // all_documents),
                settings,
            )
            for data_set, rows in zip(mixture.data_sets, best, strict=True)
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
    chosen: IntArray = np.unique(qrels.relevant().doc_rows)
    empty = np.setdiff1d(data.corpus.empty_rows(corpus_text), chosen)
    for documents in best.T:
        extended = np.setdiff1d(np.union1d(chosen, documents[documents >= 0]), empty)
        if len(extended) > limit:
            break
        chosen = extended
    rest = np.setdiff1d(np.arange(len(data.corpus)), np.union1d(chosen, empty))
    rest = generator(settings.seed, "guard.documents").permutation(rest)
    rows = np.sort(np.concatenate([chosen, rest[: max(0, limit - len(chosen))]])).astype(np.int64)
    judged = np.isin(qrels.doc_rows, rows)
    dev = Qrels.from_arrays(
        qrels.query_rows[qrels.query_index[judged]],
        np.searchsorted(rows, qrels.doc_rows[judged]),
        qrels.grades[judged],
    )
    return replace(
        data,
        fingerprint=f"{data.fingerprint}/documents/{rows_digest(rows)}",
        corpus=data.corpus.select(rows),
        splits={"dev": dev},
        given_negatives=None,
        held_out=None,
        teacher=None,
    )


def evaluate_dev(encoder: Encoder, mixture: Mixture, settings: TrainSettings) -> Evaluation:
    """Measure a model on dev."""
    measure = settings.metric_for_best_model
    return evaluate_encoder(encoder, mixture, "dev", [measure], settings.corpus_text)
