"""The documents that dev queries are ranked among: all, or a part where encoding all of them five
times takes long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opera.config.training import TrainSettings
from opera.core.arrays import IntArray
from opera.core.rng import generator
from opera.data import Qrels, RetrievalData
from opera.data.combined import combine, first_rows
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, rows_digest
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.measures import parse_measures, per_query, ranking_depth
from opera.retrieval.models import is_static
from opera.retrieval.nearest import exact_search
from opera.retrieval.search import search_corpus

DEPTH = 20
"""The untrained model's best documents of a query that are kept, as far as the limit allows."""

Rows = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class DevCorpus:
    """A data set with the split ``dev``, and the rows ``[k]`` of its documents in the whole corpus;
    ``None`` for all."""

    data: RetrievalData
    rows: Rows | None = None


GUARD_DOCUMENTS = 10_000
"""Documents that a transformer's dev queries are ranked among, where the corpus has more."""


def dev_corpus(encoder: Encoder, data: RetrievalData, settings: TrainSettings) -> DevCorpus:
    """The documents that the guard ranks: all, or :data:`GUARD_DOCUMENTS` for a transformer."""
    limit, seed = GUARD_DOCUMENTS, settings.seed
    if is_static(encoder.model) or settings.adapter_kind is not None or len(data.corpus) <= limit:
        return DevCorpus(data)
    return reduced_corpus(encoder, data, limit, settings.corpus_text, seed)


def untrained_values(
    encoder: Encoder, data: RetrievalData, dev: DevCorpus, settings: TrainSettings
) -> Values:
    """The deciding measure of each dev query before training: float64 ``[n]``; reads the corpus
    from the cache."""
    if dev.rows is None or data.sets:
        return dev_values(encoder, dev, settings)
    measure, qrels = settings.metric_for_best_model, dev.data.judged_qrels("dev")
    queries = encoder.encode_queries(data, qrels.query_rows)
    corpus = encoder.encode_corpus(data, settings.corpus_text)
    documents = np.asarray(corpus[dev.rows])
    parsed = parse_measures([measure])
    depth = ranking_depth(parsed)
    ranking = exact_search(queries, documents, dev.data.corpus, depth, encoder.device)
    return per_query(ranking, qrels, parsed)[measure]


def dev_values(encoder: Encoder, dev: DevCorpus, settings: TrainSettings) -> Values:
    """The deciding measure of each dev query: float64 ``[n]``."""
    measure = settings.metric_for_best_model
    found = evaluate_encoder(encoder, dev.data, "dev", [measure], settings.corpus_text)
    return found.per_query[measure]


def reduced_corpus(
    encoder: Encoder, data: RetrievalData, limit: int, corpus_text: CorpusText, seed: int
) -> DevCorpus:
    """Keep ``limit`` documents, or those that are relevant to dev queries if these are more.

    Every relevant document is kept; then the untrained model's best document of each query, then
    its second, and so on to :data:`DEPTH`; then documents at random. The rank that would pass the
    limit is left out whole, and so is every document without a text. Each of several data sets
    keeps a part of the limit by its size.
    """

    def choose(own: RetrievalData) -> Rows:
        most = max(1, limit * len(own.corpus) // len(data.corpus))
        qrels = own.judged_qrels("dev")
        ranking = search_corpus(encoder, own, qrels.query_rows, DEPTH, corpus_text)
        kept: IntArray = np.unique(qrels.relevant().doc_rows)
        empty = np.setdiff1d(own.corpus.empty_rows(corpus_text), kept)
        for rank in range(ranking.doc_rows.shape[1]):
            more = np.setdiff1d(np.union1d(kept, ranking.doc_rows[:, rank]), empty)
            if len(more) > most:
                break
            kept = more
        return _filled(own, kept, empty, most - len(kept), seed, "guard.documents")

    return _keeping(data, choose)


def _filled(
    data: RetrievalData, kept: IntArray, empty: IntArray, count: int, seed: int, name: str
) -> Rows:
    """Add ``count`` documents at random, which are not ``empty``, if there are as many."""
    others = np.setdiff1d(np.arange(len(data.corpus)), np.union1d(kept, empty))
    drawn = generator(seed, name).permutation(others)[: max(0, count)]
    return np.sort(np.concatenate([kept, drawn])).astype(np.int64)


def _keeping(data: RetrievalData, choose: Callable[[RetrievalData], Rows]) -> DevCorpus:
    """The dev split alone, with the documents that ``choose`` returns for each data set."""
    if data.sets:
        made, whole = [], []
        for each, first in zip(data.sets, first_rows(data)[1], strict=False):
            own = _keeping(each, choose)
            made.append(own.data)
            whole.append(np.asarray(own.rows) + first)
        return DevCorpus(combine(made), np.concatenate(whole))
    rows, qrels = choose(data), data.judged_qrels("dev")
    judged = np.isin(qrels.doc_rows, rows)
    kept = Qrels.from_arrays(
        qrels.query_rows[qrels.query_index[judged]],
        np.searchsorted(rows, qrels.doc_rows[judged]),
        qrels.grades[judged],
    )
    reduced = replace(
        data,
        fingerprint=f"{data.fingerprint}/documents/{rows_digest(rows)}",
        corpus=data.corpus.select(rows),
        splits={"dev": kept},
        given_negatives=None,
        held_out=None,
        teacher=None,
        places={},
    )
    return DevCorpus(reduced, rows)
