"""Rerank the best documents of a first stage with a cross-encoder, and measure the difference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opera.core.terminal import log
from opera.data import Mixture, RetrievalData
from opera.data.texts import CorpusText
from opera.retrieval.evaluation import Evaluation, Reranked, evaluate_ranking, evaluate_sets
from opera.retrieval.measures import Measure, Ranking
from opera.retrieval.reranker import Reranker
from opera.run_folder.summary import Change


def rerank(
    reranker: Reranker,
    data: RetrievalData,
    split: str,
    ranking: Ranking,
    depth: int,
    corpus_text: CorpusText = "title_text",
) -> Ranking:
    """Sort the first ``depth`` documents of each query by the reranker's score.

    Equal scores keep the order of the first stage. The documents behind keep it too; their scores
    go down by 1 from the reranker's lowest score.
    """
    first, behind = ranking.doc_rows[:, :depth], ranking.doc_rows[:, depth:]
    query_index, column = np.nonzero(first >= 0)
    query_rows = data.judged_qrels(split).query_rows[query_index]
    scores = np.full(first.shape, -np.inf, dtype=np.float32)
    scores[query_index, column] = reranker.score_pairs(
        data, query_rows, first[query_index, column], corpus_text
    )
    order = np.argsort(-scores, axis=1, kind="stable")
    sorted_scores = np.take_along_axis(scores, order, axis=1)
    steps = np.arange(1, behind.shape[1] + 1, dtype=np.float32)
    below = np.where(behind < 0, -np.inf, sorted_scores[:, -1:] - steps).astype(np.float32)
    doc_rows = np.hstack([np.take_along_axis(first, order, axis=1), behind])
    return Ranking(doc_rows, np.hstack([sorted_scores, below]))


def evaluate_reranker(
    reranker: Reranker,
    data: Mixture,
    split: str,
    first_stage: Evaluation,
    depth: int,
    measures: Sequence[Measure],
    corpus_text: CorpusText = "title_text",
) -> Reranked:
    """Rerank the ranking of each query of a split, and compare the measures with those before."""
    first = first_stage.ranking.doc_rows[:, :depth]
    pairs, queries = int((first >= 0).sum()), len(first)
    log.info("the reranker reads %s pairs, up to %d of each query", f"{pairs:,}", depth)
    scored, seconds = reranker.scored_pairs, reranker.seconds

    def evaluate_set(data_set: RetrievalData) -> Evaluation:
        ranking = first_stage.sets.get(data_set.name, first_stage).ranking
        reranked = rerank(reranker, data_set, split, ranking, depth, corpus_text)
        return evaluate_ranking(data_set, split, reranked, measures)

    result = evaluate_sets(data, split, evaluate_set)
    scored, seconds = reranker.scored_pairs - scored, reranker.seconds - seconds
    return Reranked(
        **vars(result),
        depth=depth,
        pairs=pairs,
        seconds_per_query=seconds / scored * pairs / queries if scored else None,
        changes={
            name: Change.of(result.per_query[name] - values)
            for name, values in first_stage.per_query.items()
        },
    )
