"""Evaluate an encoder on a split of a data set: encode, search, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.data import RetrievalData
from opera.data.combined import each_set, first_rows
from opera.data.texts import CorpusText
from opera.retrieval.encoder import Encoder
from opera.retrieval.measures import DEFAULT_MEASURES, Ranking, check_measures, means, per_query
from opera.retrieval.search import rank_by_size, search_corpus
from opera.retrieval.similarity import pair_similarities

TOP_DOCUMENTS = 10


@dataclass(frozen=True)
class Evaluation:
    """Results of a model on a split.

    Attributes:
        split: name of the split.
        query_ids: ids of the queries that have a relevant document.
        per_query: float64 ``[n]`` by measure.
        ranking: the ranked documents of each query.
        top_documents: ids of the best 10 documents of each query.
        by_size: mean of each measure over the queries, by the number of first dimensions that documents are ranked by.
        sets: where the data are several data sets, the same of each by its name; each ranks its own documents alone.
    """

    split: str
    query_ids: list[str]
    per_query: dict[str, NDArray[np.float64]]
    ranking: Ranking
    top_documents: list[list[str]]
    by_size: dict[int, dict[str, float]] = field(default_factory=dict)
    sets: dict[str, Evaluation] = field(default_factory=dict)

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4f}" for name, value in self.measures.items())
        return f"Evaluation of {len(self.query_ids)} {self.split} queries: {values}"

    @property
    def measures(self) -> dict[str, float]:
        """Mean of each measure over the queries."""
        return means(self.per_query)

    def columns(self, prefix: str) -> dict[str, Any]:
        """Name the per-query values for a table: ``{"before nDCG@10": ..., "before documents": ...}``."""
        values: dict[str, Any] = {
            f"{prefix} {name}": array for name, array in self.per_query.items()
        }
        return {**values, f"{prefix} documents": self.top_documents}


def evaluate_encoder(
    encoder: Encoder,
    data: RetrievalData,
    split: str,
    measures: Sequence[str] = DEFAULT_MEASURES,
    corpus_text: CorpusText = "title_text",
    sizes: Sequence[int] = (),
) -> Evaluation:
    """Rank the corpus for the judged queries of a split and compute measures.

    ``sizes`` are numbers of first dimensions to measure besides the whole embeddings.

    Raises:
        DataError: if the split is missing or has no relevant document.
        SettingError: for an unknown measure.
    """
    depth = check_measures(measures)
    qrels = data.judged_qrels(split)
    if data.sets:
        sets = [
            evaluate_encoder(encoder, own, split, measures, corpus_text, sizes)
            for own in each_set(data, split)
        ]
        return _joined(data, split, sets)
    if sizes:
        by_size = rank_by_size(
            encoder, data, qrels.query_rows, depth, [encoder.dimension, *sizes], corpus_text
        )
        ranking = by_size.pop(encoder.dimension)
    else:
        by_size, ranking = {}, search_corpus(encoder, data, qrels.query_rows, depth, corpus_text)
    top = ranking.doc_rows[:, :TOP_DOCUMENTS]
    ids = data.corpus.ids(top.ravel())
    return Evaluation(
        split=split,
        query_ids=data.queries.ids(qrels.query_rows),
        per_query=per_query(ranking, qrels, measures),
        ranking=ranking,
        top_documents=[
            ids[start : start + top.shape[1]] for start in range(0, top.size, top.shape[1])
        ],
        by_size={
            size: means(per_query(of_size, qrels, measures)) for size, of_size in by_size.items()
        },
    )


def _joined(data: RetrievalData, split: str, sets: Sequence[Evaluation]) -> Evaluation:
    """Put the results of several data sets together; rankings are as deep as the shallowest."""
    by_name = dict(zip([own.name for own in each_set(data, split)], sets, strict=True))
    first = dict(zip([own.name for own in data.sets], first_rows(data)[1], strict=False))
    depth = min(each.ranking.doc_rows.shape[1] for each in sets)
    counts = np.array([len(each.query_ids) for each in sets])
    return Evaluation(
        split=split,
        query_ids=[f"{name}/{query}" for name, each in by_name.items() for query in each.query_ids],
        per_query={
            name: np.concatenate([each.per_query[name] for each in sets])
            for name in sets[0].per_query
        },
        ranking=Ranking(
            np.concatenate(
                [each.ranking.doc_rows[:, :depth] + first[name] for name, each in by_name.items()]
            ),
            np.concatenate([each.ranking.scores[:, :depth] for each in sets]),
        ),
        top_documents=[
            [f"{name}/{document}" for document in top]
            for name, each in by_name.items()
            for top in each.top_documents
        ],
        by_size={
            size: {
                name: float(np.average([each.by_size[size][name] for each in sets], weights=counts))
                for name in values
            }
            for size, values in sets[0].by_size.items()
        },
        sets=by_name,
    )


def relevant_ids(data: RetrievalData, split: str) -> list[list[str]]:
    """List the ids of the relevant documents of each judged query of a split."""
    pairs = data.judged_qrels(split).relevant().pairs()
    ids = data.corpus.ids(pairs.pair_doc)
    return [ids[start:end] for start, end in pairwise(pairs.query_offsets.tolist())]


def query_difficulty(
    encoder: Encoder, data: RetrievalData, split: str, corpus_text: CorpusText = "title_text"
) -> NDArray[np.float32]:
    """Mean similarity of each judged query to its relevant documents: float32 ``[n]``, lower is harder.

    The paper groups queries by this value (Appendix D.6).
    """
    if data.sets:
        return np.concatenate(
            [query_difficulty(encoder, own, split, corpus_text) for own in each_set(data, split)]
        )
    relevant = data.judged_qrels(split).relevant()
    pairs = relevant.pairs()
    query_embeddings = encoder.encode_queries(data, relevant.query_rows)
    document_embeddings = encoder.encode_corpus(data, corpus_text)
    total = pairs.sum_by_query(pair_similarities(pairs, query_embeddings, document_embeddings))
    return (total / pairs.positives_per_query).astype(np.float32)
