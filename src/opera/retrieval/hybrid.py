"""Evaluate keyword search, and its fusion with a model, on a split of one or more data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.data.identity import documents_that_are_queries
from opera.data.texts import CorpusText
from opera.retrieval.evaluation import Evaluation, evaluate_ranking, evaluate_sets
from opera.retrieval.fusion import Fusion
from opera.retrieval.keywords import KeywordIndex, reason_against
from opera.retrieval.measures import Measure, Ranking, parse_measures, ranking_depth
from opera.retrieval.search import without_query_documents

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
                part.fingerprint: KeywordIndex.build(part.corpus, corpus_text)
                for part in data.data_sets
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

    def evaluate(self, data: Mixture, split: str, measures: Sequence[str | Measure]) -> Evaluation:
        """Measure keyword search on a split, as :func:`evaluate_encoder` measures a model."""
        parsed = parse_measures(measures)

        def evaluate_set(data_set: RetrievalData) -> Evaluation:
            ranking = self.rank(data_set, split, ranking_depth(parsed))
            return evaluate_ranking(data_set, split, ranking, parsed)

        return evaluate_sets(data, split, evaluate_set)


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

    def evaluate_set(data_set: RetrievalData) -> Evaluation:
        ranking = fusion_of(data_set, model, keywords).ranking(weights[data_set.name])
        return evaluate_ranking(data_set, split, ranking, parsed)

    return evaluate_sets(data, split, evaluate_set)
