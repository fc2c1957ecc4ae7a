"""A model on a split of a data set: encode, search, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config import TrainSettings
from opera.data import Judgements, RetrievalData
from opera.data.tables import TextChoice
from opera.encode import Encoder
from opera.errors import DataError
from opera.measures import DEFAULT_MEASURES, Ranking, check_measures, means, per_query
from opera.methods import Pairs
from opera.score import pair_similarities
from opera.search import exact_search, search_corpus

TOP_DOCUMENTS = 10


@dataclass(frozen=True)
class Evaluation:
    """What a model does on the judged queries of a split.

    Attributes:
        split: the split's name.
        query_ids: the judged queries that have a relevant document.
        per_query: float64 ``[n]`` by measure.
        ranking: the documents found.
        top_documents: ids of the best 10 documents of each query.
    """

    split: str
    query_ids: list[str]
    per_query: dict[str, NDArray[np.float64]]
    ranking: Ranking
    top_documents: list[list[str]]

    @property
    def measures(self) -> dict[str, float]:
        """Each measure's mean over the queries."""
        return means(self.per_query)

    def columns(self, prefix: str) -> dict[str, Any]:
        """Name the per-query values and documents for a table: ``{"before nDCG@10": ..., "before documents": ...}``."""
        values: dict[str, Any] = {f"{prefix} {name}": array for name, array in self.per_query.items()}
        return {**values, f"{prefix} documents": self.top_documents}


def with_needed_splits(data: RetrievalData, settings: TrainSettings, needs_dev: bool) -> RetrievalData:
    """Draw a test split from train where there is none, and a dev split likewise where it is needed."""
    if "test" not in data.splits:
        data = data.with_held_out("test", settings.test_fraction, settings.seed)
    if needs_dev and "dev" not in data.splits:
        data = data.with_held_out("dev", settings.dev_fraction, settings.seed)
    return data


def judged(data: RetrievalData, split: str) -> Judgements:
    """Return a split's judgements, without the queries that have no relevant document.

    Raises:
        DataError: if there is no such split, or no query in it has a relevant document.
    """
    judgements = data.split(split)
    has_relevant = np.bincount(judgements.query_of[judgements.grades > 0], minlength=judgements.n_queries) > 0
    if not has_relevant.any():
        raise DataError(f"{data.source}: split '{split}' has no judgement above 0: nothing to measure")
    return judgements.of_queries(has_relevant)


def evaluate_encoder(
    encoder: Encoder,
    data: RetrievalData,
    split: str,
    measures: Sequence[str] = DEFAULT_MEASURES,
    choice: TextChoice = "title_text",
) -> Evaluation:
    """Rank the corpus for the judged queries of a split, and measure.

    Raises:
        DataError: if the split is missing or empty.
        SettingError: for an unknown measure.
    """
    depth = check_measures(measures)
    judgements = judged(data, split)
    ranking = search_corpus(encoder, data, judgements.query_rows, depth, choice)
    top = ranking.doc_rows[:, :TOP_DOCUMENTS]
    ids = data.corpus.ids(top.ravel())
    return Evaluation(
        split=split,
        query_ids=data.queries.ids(judgements.query_rows),
        per_query=per_query(ranking, judgements, measures),
        ranking=ranking,
        top_documents=[ids[start : start + top.shape[1]] for start in range(0, top.size, top.shape[1])],
    )


def query_facts(encoder: Encoder, data: RetrievalData, split: str, choice: TextChoice = "title_text") -> dict[str, Any]:
    """What makes the judged queries of a split easy or hard for a model, by column.

    Returns:
        ``relevant``: ids of each query's relevant documents; ``similarity``: float32 ``[n]``, the mean similarity of
        each query to them, by which the paper tells difficulty (Appendix D.6).
    """
    judgements = judged(data, split)
    positive = judgements.grades > 0
    pairs = Pairs.of(judgements.query_of[positive], judgements.doc_rows[positive])
    vectors = encoder.queries(data, judgements.query_rows), encoder.corpus(data, choice)
    total = pairs.sum_by_query(pair_similarities(pairs, *vectors))
    ids = data.corpus.ids(pairs.pair_doc)
    ends = pairs.query_offsets.tolist()
    return {
        "relevant": [ids[start:end] for start, end in pairwise(ends)],
        "similarity": (total / pairs.positives_per_query).astype(np.float32),
    }


def found_documents(
    encoder: Encoder, data: RetrievalData, query: str, depth: int, choice: TextChoice = "title_text"
) -> list[dict[str, Any]]:
    """Search a corpus for one query: rank, id, score and text of each document found, best first."""
    ranking = exact_search(
        encoder.encode([query], "query"), encoder.corpus(data, choice), data.corpus, depth, encoder.device
    )
    rows = ranking.doc_rows[0]
    ids, texts = data.corpus.ids(rows), data.corpus.texts(rows)
    return [
        {"rank": rank, "id": doc, "score": float(score), "text": text}
        for rank, (doc, score, text) in enumerate(zip(ids, ranking.scores[0], texts, strict=True), start=1)
    ]
