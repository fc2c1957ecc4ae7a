"""Evaluate a model, keyword search, and both together on a split: encode, search, measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.figures import DEFAULT_MEASURES, in_points
from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.data.copies import documents_that_are_queries
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder, pair_similarities
from opera.retrieval.keywords import Fusion, KeywordIndex, reason_against
from opera.retrieval.measures import (
    Measure,
    Ranking,
    means,
    parse_measures,
    per_query,
    ranking_depth,
)
from opera.retrieval.search import rank_by_size, search_corpus, without_query_documents
from opera.run_folder.summary import Change

TOP_DOCUMENTS = 10


@dataclass(frozen=True)
class Evaluation:
    """The results of a model on a split.

    Attributes:
        split: name of the split.
        query_ids: ids of the queries that have a relevant document.
        per_query: float64 ``[n]`` by measure.
        ranking: the ranked documents of each query.
        top_documents: ids of the best 10 documents of each query.
        by_size: mean of each measure, by the number of first dimensions used for the ranking.
        sets: the results of each data set by its name, if there are several; a query ranks only
            the documents of its data set.
        bm25: the results of keyword search, if it was measured too.
        hybrid: the results of the model fused with keyword search, if they were measured too.
        keyword_weights: the weight of keyword search in ``hybrid``, by the name of the data set.
        index: the size of the index, by name, of a sparse or multi-vector model.
        reranked: the results after a reranker, if there is one.
    """

    split: str
    query_ids: list[str]
    per_query: dict[str, NDArray[np.float64]]
    ranking: Ranking
    top_documents: list[list[str]]
    by_size: dict[int, dict[str, float]] = field(default_factory=dict)
    sets: dict[str, Evaluation] = field(default_factory=dict)
    bm25: Evaluation | None = None
    hybrid: Evaluation | None = None
    keyword_weights: dict[str, float] = field(default_factory=dict)
    index: dict[str, float] = field(default_factory=dict)
    reranked: Reranked | None = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {in_points(value)}" for name, value in self.measures.items())
        return f"Evaluation of {len(self.query_ids)} {self.split} queries: {values}"

    @property
    def measures(self) -> dict[str, float]:
        """Mean of each measure over the queries."""
        return means(self.per_query)


@dataclass(frozen=True)
class Reranked(Evaluation):
    """The results of a first stage after a reranker has sorted its best documents again.

    Attributes:
        depth: the reranker sorted this number of documents of each query.
        pairs: how many pairs of a query and a document that was.
        seconds_per_query: the time to score the documents of a query; ``None`` if the cache held
            all scores.
        changes: from the first stage to the reranked documents, by measure.
    """

    depth: int = 0
    pairs: int = 0
    seconds_per_query: float | None = None
    changes: dict[str, Change] = field(default_factory=dict)


def evaluate_encoder(
    encoder: Encoder,
    data: Mixture,
    split: str,
    measures: Sequence[str | Measure] = DEFAULT_MEASURES,
    corpus_text: CorpusText = "title_text",
    sizes: Sequence[int] = (),
    depth: int = 0,
) -> Evaluation:
    """Rank the corpus for the judged queries of a split and compute measures.

    ``sizes`` are numbers of first dimensions to measure in addition to the full embeddings. The
    ranking has ``depth`` documents, or more if the measures need more.

    Raises:
        DataError: if the split is missing or has no relevant document.
        SettingError: for an unknown measure.
    """
    parsed = parse_measures(measures)
    return evaluate_sets(
        data,
        split,
        lambda data_set: _evaluate_set(
            encoder, data_set, split, parsed, corpus_text, sizes, max(depth, ranking_depth(parsed))
        ),
    )


def evaluate_sets(
    data: Mixture, split: str, evaluate_set: Callable[[RetrievalData], Evaluation]
) -> Evaluation:
    """Evaluate each data set, and join the results.

    Raises:
        DataError: if the split is missing or has no relevant document.
    """
    data.joined.judged_qrels(split)
    if data.is_single:
        return evaluate_set(data.joined)
    results = {data_set.name: evaluate_set(data_set) for data_set in data.with_relevant(split)}
    return _joined(data, split, results)


def evaluate_ranking(
    data: RetrievalData, split: str, ranking: Ranking, measures: Sequence[Measure]
) -> Evaluation:
    """Measure a ranking for the judged queries of a split of one data set."""
    qrels = data.judged_qrels(split)
    return Evaluation(
        split=split,
        query_ids=data.queries.ids(qrels.query_rows),
        per_query=per_query(ranking, qrels, measures),
        ranking=ranking,
        top_documents=_ids_of(data, ranking.doc_rows[:, :TOP_DOCUMENTS]),
    )


def _evaluate_set(
    encoder: Encoder,
    data: RetrievalData,
    split: str,
    parsed: Sequence[Measure],
    corpus_text: CorpusText,
    sizes: Sequence[int],
    depth: int,
) -> Evaluation:
    qrels = data.judged_qrels(split)
    rows = qrels.query_rows
    query_documents = documents_that_are_queries(data, qrels)
    one_more = int((query_documents >= 0).any())
    if sizes:
        dimensions = [encoder.dimension, *sizes]
        by_size = rank_by_size(encoder, data, rows, depth + one_more, dimensions, corpus_text)
    else:
        ranking = search_corpus(encoder, data, rows, depth + one_more, corpus_text)
        by_size = {encoder.dimension: ranking}
    if one_more:
        for size, ranking in by_size.items():
            by_size[size] = without_query_documents(ranking, query_documents, depth)
    result = evaluate_ranking(data, split, by_size.pop(encoder.dimension), parsed)
    measured_sizes = {
        size: means(per_query(ranking, qrels, parsed)) for size, ranking in by_size.items()
    }
    return replace(result, by_size=measured_sizes)


def _ids_of(data: RetrievalData, doc_rows: NDArray[np.int32]) -> list[list[str]]:
    """The ids of ranked documents ``[n, depth]``, without the missing documents (-1)."""
    ids = iter(data.corpus.ids(doc_rows[doc_rows >= 0]))
    return [list(islice(ids, count)) for count in (doc_rows >= 0).sum(axis=1).tolist()]


def _joined(data: Mixture, split: str, sets: dict[str, Evaluation]) -> Evaluation:
    """Join the results of several data sets, with the depth of the shortest ranking."""
    parts = zip(data.data_sets, data.first_rows, strict=True)
    first = {data_set.name: document for data_set, (_, document) in parts}
    rankings = {name: result.ranking for name, result in sets.items()}
    depth = min(ranking.doc_rows.shape[1] for ranking in rankings.values())
    doc_rows = {name: ranking.doc_rows[:, :depth] for name, ranking in rankings.items()}
    shifted = [np.where(rows < 0, rows, rows + first[name]) for name, rows in doc_rows.items()]
    scores = [ranking.scores[:, :depth] for ranking in rankings.values()]
    first_result, *_ = results = list(sets.values())
    counts = [len(result.query_ids) for result in results]
    return Evaluation(
        split=split,
        query_ids=[
            f"{name}/{query}" for name, result in sets.items() for query in result.query_ids
        ],
        per_query={
            name: np.concatenate([result.per_query[name] for result in results])
            for name in first_result.per_query
        },
        ranking=Ranking(np.concatenate(shifted), np.concatenate(scores)),
        top_documents=[
            [f"{name}/{document}" for document in top]
            for name, result in sets.items()
            for top in result.top_documents
        ],
        by_size={
            size: {
                name: float(
                    np.average([result.by_size[size][name] for result in results], weights=counts)
                )
                for name in values
            }
            for size, values in first_result.by_size.items()
        },
        sets=sets,
    )


def relevant_columns(data: RetrievalData, split: str) -> dict[str, Any]:
    """Return each judged query's ``relevant`` document ids, their ``grades``, and hashes of the
    texts, by which runs on two exports of the same data can be compared.
    """
    qrels = data.judged_qrels(split).relevant()
    blocks = [slice(*block) for block in pairwise(qrels.offsets.tolist())]
    of_pairs = {
        "relevant": data.corpus.ids(qrels.doc_rows),
        "grades": qrels.grades.tolist(),
        "relevant_hashes": np.asarray(data.corpus.digests[qrels.doc_rows]),
    }
    columns = {name: [values[block] for block in blocks] for name, values in of_pairs.items()}
    return columns | {"query_hash": np.asarray(data.queries.digests[qrels.query_rows])}


def query_difficulty(
    encoder: Encoder, data: Mixture, split: str, corpus_text: CorpusText = "title_text"
) -> NDArray[np.float32]:
    """Mean cosine of each judged query to its relevant documents: float32 ``[n]``.

    Lower is harder; the paper groups queries by this value (Appendix D.6).
    """
    return np.concatenate(
        [
            _difficulty(encoder, data_set, split, corpus_text)
            for data_set in data.with_relevant(split)
        ]
    )


def _difficulty(
    encoder: Encoder, data: RetrievalData, split: str, corpus_text: CorpusText
) -> NDArray[np.float32]:
    relevant = data.judged_qrels(split).relevant()
    pairs = relevant.pairs()
    query_embeddings = encoder.encode_queries(data, relevant.query_rows)
    documents = encoder.encode_corpus(data, corpus_text)
    cosines = pair_similarities(pairs, query_embeddings, documents, encoder.similarity == "cosine")
    return (pairs.sum_by_query(cosines) / pairs.positives_per_query).astype(np.float32)


MOST_DOCUMENTS = 200_000
"""Larger corpora have no keyword search by default, because its index takes minutes."""


@dataclass(frozen=True)
class KeywordSearch:
    """Keyword search in one or more data sets.

    Attributes:
        indexes: the index of each data set, by its fingerprint.
    """

    indexes: Mapping[str, KeywordIndex]

    @classmethod
    def of(cls, data: Mixture, corpus_text: CorpusText, bm25: bool | None) -> KeywordSearch | None:
        """Index the words of the data; ``None`` without ``bm25``, or if that is impossible.

        By default (``bm25=None``), a corpus may have :data:`MOST_DOCUMENTS` documents.
        """
        if bm25 is False:
            return None
        if bm25 is None and len(data.joined.corpus) > MOST_DOCUMENTS:
            log.info("note: more than %s documents: --bm25 adds BM25", f"{MOST_DOCUMENTS:,}")
            return None
        for data_set in data.data_sets:
            if (reason := reason_against(data_set.corpus, corpus_text)) is not None:
                titles = data.joined.title, data_set.title
                log.info("note: no keyword search in %s: %s %s", *titles, reason)
                return None
        return cls.build(data, corpus_text)

    @classmethod
    def build(cls, data: Mixture, corpus_text: CorpusText) -> KeywordSearch:
        """Index the words of the data, which must have words."""
        return cls(
            {
                data_set.fingerprint: KeywordIndex.build(data_set.corpus, corpus_text)
                for data_set in data.data_sets
            }
        )

    def save(self, folder: Path) -> None:
        """Write the index of each data set into a folder in ``folder``."""
        for fingerprint, index in self.indexes.items():
            index.save(folder / fingerprint)

    def rank(self, data_set: RetrievalData, split: str, depth: int) -> Ranking:
        """Rank one of the data sets for the judged queries of a split."""
        qrels = data_set.judged_qrels(split)
        queries = data_set.queries.texts(qrels.query_rows, "text")
        ranking = self.indexes[data_set.fingerprint].search(queries, depth + 1)
        query_documents = documents_that_are_queries(data_set, qrels)
        return without_query_documents(ranking, query_documents, depth)

    def evaluate(
        self, data: Mixture, split: str, measures: Sequence[str | Measure], depth: int = 0
    ) -> Evaluation:
        """Measure keyword search on a split, as :func:`evaluate_encoder` measures a model."""
        parsed = parse_measures(measures)
        rank = partial(self.rank, split=split, depth=max(depth, ranking_depth(parsed)))
        return evaluate_sets(
            data,
            split,
            lambda data_set: evaluate_ranking(data_set, split, rank(data_set), parsed),
        )


def fusion_of(data_set: RetrievalData, model: Evaluation, keywords: Evaluation) -> Fusion:
    """Pool the rankings of two evaluations for one of their data sets."""
    parts = [result.sets.get(data_set.name, result) for result in (model, keywords)]
    return Fusion(parts[0].ranking, parts[1].ranking, data_set.corpus)


def evaluate_hybrid(
    data: Mixture,
    split: str,
    model: Evaluation,
    keywords: Evaluation,
    weights: Mapping[str, float],
    measures: Sequence[str | Measure],
) -> Evaluation:
    """Measure the fusion of a model and keyword search on a split.

    Args:
        data: one or more data sets.
        split: the split.
        model: the model's results on the split.
        keywords: the results of keyword search on the split.
        weights: the weight of keyword search, by the name of the data set.
        measures: measures of at most 100 documents.
    """
    parsed = parse_measures(measures)
    return evaluate_sets(
        data,
        split,
        lambda data_set: evaluate_ranking(
            data_set,
            split,
            fusion_of(data_set, model, keywords).ranking(weights[data_set.name]),
            parsed,
        ),
    )
