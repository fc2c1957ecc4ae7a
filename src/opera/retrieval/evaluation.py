"""A model on a split of a data set: encode, search, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.recipe import TrainSettings
from opera.core.errors import DataError
from opera.data import Qrels, RetrievalData, load_data
from opera.data.pairs import TrainingPairs
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.measures import DEFAULT_MEASURES, Ranking, check_measures, means, per_query
from opera.retrieval.search import exact_search, search_corpus
from opera.retrieval.similarity import pair_similarities
from opera.runs.folder import Run, holds_run

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


def judged(data: RetrievalData, split: str) -> Qrels:
    """Return a split's qrels, without the queries that have no relevant document.

    Raises:
        DataError: if there is no such split, or no query in it has a relevant document.
    """
    qrels = data.split(split)
    has_relevant = np.bincount(qrels.query_of[qrels.grades > 0], minlength=qrels.n_queries) > 0
    if not has_relevant.any():
        raise DataError(f"{data.source}: split '{split}' has no judgement above 0: nothing to measure")
    return qrels.of_queries(has_relevant)


def evaluate_encoder(
    encoder: Encoder,
    data: RetrievalData,
    split: str,
    measures: Sequence[str] = DEFAULT_MEASURES,
    choice: CorpusText = "title_text",
) -> Evaluation:
    """Rank the corpus for the judged queries of a split, and measure.

    Raises:
        DataError: if the split is missing or empty.
        SettingError: for an unknown measure.
    """
    depth = check_measures(measures)
    qrels = judged(data, split)
    ranking = search_corpus(encoder, data, qrels.query_rows, depth, choice)
    top = ranking.doc_rows[:, :TOP_DOCUMENTS]
    ids = data.corpus.ids(top.ravel())
    return Evaluation(
        split=split,
        query_ids=data.queries.ids(qrels.query_rows),
        per_query=per_query(ranking, qrels, measures),
        ranking=ranking,
        top_documents=[ids[start : start + top.shape[1]] for start in range(0, top.size, top.shape[1])],
    )


def query_facts(encoder: Encoder, data: RetrievalData, split: str, choice: CorpusText = "title_text") -> dict[str, Any]:
    """What makes the judged queries of a split easy or hard for a model, by column.

    Returns:
        ``relevant``: ids of each query's relevant documents; ``similarity``: float32 ``[n]``, the mean similarity of
        each query to them, by which the paper tells difficulty (Appendix D.6).
    """
    qrels = judged(data, split)
    positive = qrels.grades > 0
    pairs = TrainingPairs.of(qrels.query_of[positive], qrels.doc_rows[positive])
    vectors = encoder.queries(data, qrels.query_rows), encoder.corpus(data, choice)
    total = pairs.sum_by_query(pair_similarities(pairs, *vectors))
    ids = data.corpus.ids(pairs.pair_doc)
    ends = pairs.query_offsets.tolist()
    return {
        "relevant": [ids[start:end] for start, end in pairwise(ends)],
        "similarity": (total / pairs.positives_per_query).astype(np.float32),
    }


def found_documents(
    encoder: Encoder, data: RetrievalData, query: str, depth: int, choice: CorpusText = "title_text"
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


def evaluate(
    model: str | Path,
    data: str | Path | RetrievalData,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    relevant_grade: int | None = None,
) -> Evaluation:
    """Measure a model on a split of a data set.

    Args:
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        data: anything :func:`opera.load_data` reads, or loaded data.
        split: which qrels to use.
        measures: names such as ``nDCG@10``.
        precision: what to compute in.
        max_query_length: tokens of a query; the default is what the model says.
        max_passage_length: tokens of a document; likewise.
        relevant_grade: lowest score that counts as relevant; the default is the run's where ``model`` is a run on
            these data, else 1.

    Returns:
        Per-query values and their means (``.measures``).

    Raises:
        InputError: for anything that cannot be used.
    """
    check_measures(measures)
    loaded = load_data(data) if isinstance(data, str | Path) else data
    cut = with_splits_of_run(loaded, model)
    # Splits first, as the run drew them; then the grade that was asked for, from the original ones.
    loaded = cut if relevant_grade is None else loaded.cut_like(cut).with_relevant_grade(relevant_grade)
    judged(loaded, split)
    encoder = open_encoder(model, precision, max_query_length, max_passage_length)
    return evaluate_encoder(encoder, loaded, split, measures, corpus_text_of(model))


def with_splits_of_run(data: RetrievalData, model: str | Path) -> RetrievalData:
    """Cut the data as a run did, where ``model`` is a run on them: its relevant grade, the splits it drew."""
    if not holds_run(Path(model)):
        return data
    run = Run.open(model)
    if run.about["data"]["fingerprint"] != data.fingerprint:
        return data
    names = ("seed", "test_fraction", "dev_fraction", "relevant_grade")
    settings = TrainSettings.parse({name: run.settings[name] for name in names if name in run.settings})
    data = data.with_relevant_grade(settings.relevant_grade)
    return with_needed_splits(data, settings, needs_dev=run.settings["eval_steps"] is not None)


def corpus_text_of(model: str | Path) -> CorpusText:
    """Return what of a document a run's model was trained on; title and text for other models."""
    return "text" if holds_run(Path(model)) and Run.open(model).settings["corpus_text"] == "text" else "title_text"
