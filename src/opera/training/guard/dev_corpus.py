"""The documents that dev queries are ranked among: all, or a part where encoding all of them five times takes long."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.combined import combine, first_rows
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.search import search_corpus

DEPTH = 20
"""The pretrained model's best documents of a query that are kept, as far as the limit allows."""


@dataclass(frozen=True)
class DevCorpus:
    """The dev split with the documents that its queries are ranked among.

    Attributes:
        data: a data set with the split ``dev`` and these documents.
        rows: int64, their rows in the whole corpus, ascending; ``None`` for all.
    """

    data: RetrievalData
    rows: NDArray[np.int64] | None = None


def reduced_corpus(
    encoder: Encoder, data: RetrievalData, limit: int, corpus_text: CorpusText, seed: int
) -> DevCorpus:
    """Keep ``limit`` documents, or those that are relevant to dev queries if these are more.

    Every relevant document is kept; then the pretrained model's best document of each query, then its second, and so
    on to :data:`DEPTH`; then documents at random. The rank that would pass the limit is left out whole, and so is
    every document without a text.

    Args:
        encoder: the untrained model.
        data: the data set.
        limit: how many documents to keep.
        corpus_text: what of a document is encoded.
        seed: seed of the random documents.
    """
    if data.sets:
        return _reduced_each(encoder, data, limit, corpus_text, seed)
    qrels = data.judged_qrels("dev")
    ranking = search_corpus(encoder, data, qrels.query_rows, DEPTH, corpus_text)
    kept = np.unique(qrels.relevant().doc_rows)
    empty = np.setdiff1d(data.corpus.empty_rows(corpus_text), kept)
    for rank in range(ranking.doc_rows.shape[1]):
        more = np.setdiff1d(np.union1d(kept, ranking.doc_rows[:, rank]), empty)
        if len(more) > limit:
            break
        kept = more
    others = np.setdiff1d(np.arange(len(data.corpus)), np.union1d(kept, empty))
    filling = generator(seed, "guard.documents").permutation(others)[: max(0, limit - len(kept))]
    rows = np.sort(np.concatenate([kept, filling])).astype(np.int64)
    return DevCorpus(_with_documents(data, qrels, rows), rows)


def judged_and_sampled(
    data: RetrievalData, count: int, corpus_text: CorpusText, seed: int
) -> RetrievalData:
    """The dev split with the documents that it judges, relevant or not, and ``count`` others, drawn at random.

    Of several data sets, each keeps its own, and as many others. Documents without a text are not drawn.

    Args:
        data: the data set.
        count: how many other documents to keep; all, if there are fewer.
        corpus_text: what of a document is encoded.
        seed: seed of the draw.
    """
    if data.sets:
        return combine([judged_and_sampled(own, count, corpus_text, seed) for own in data.sets])
    qrels = data.judged_qrels("dev")
    judged = np.unique(qrels.doc_rows)
    others = np.setdiff1d(
        np.arange(len(data.corpus)), np.union1d(judged, data.corpus.empty_rows(corpus_text))
    )
    drawn = generator(seed, "evaluation.documents").permutation(others)[:count]
    return _with_documents(data, qrels, np.sort(np.concatenate([judged, drawn])).astype(np.int64))


def _reduced_each(
    encoder: Encoder, data: RetrievalData, limit: int, corpus_text: CorpusText, seed: int
) -> DevCorpus:
    """Reduce each of several data sets, to a part of the limit by its size."""
    reduced, rows = [], []
    for each, first in zip(data.sets, first_rows(data)[1], strict=False):
        own_limit = max(1, limit * len(each.corpus) // len(data.corpus))
        own = reduced_corpus(encoder, each, own_limit, corpus_text, seed)
        assert own.rows is not None
        reduced.append(own.data)
        rows.append(own.rows + first)
    return DevCorpus(combine(reduced), np.concatenate(rows))


def _with_documents(data: RetrievalData, qrels: Qrels, rows: NDArray[np.int64]) -> RetrievalData:
    """The data set with some of its documents and the dev split alone."""
    judged = np.isin(qrels.doc_rows, rows)
    query_rows, doc_rows = (
        qrels.query_rows[qrels.query_index[judged]],
        np.searchsorted(rows, qrels.doc_rows[judged]),
    )
    return replace(
        data,
        fingerprint=f"{data.fingerprint}/documents/{rows_digest(rows)}",
        corpus=data.corpus.select(rows),
        splits={"dev": Qrels.from_arrays(query_rows, doc_rows, qrels.grades[judged])},
        given_negatives=None,
        held_out=None,
        teacher=None,
        places={},
    )
