"""Evaluate a model on a split of a data set: encode, search, measure."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.config.training import EncodingSettings
from opera.core.arguments import text
from opera.core.errors import DataError
from opera.core.intervals import in_points
from opera.core.measure_names import DEFAULT_MEASURES
from opera.core.terminal import counted
from opera.data import RetrievalData, load_data
from opera.data.combined import data_sets, first_rows
from opera.data.identity import documents_that_are_queries, log_copies
from opera.data.loading import ColumnNames, named_source
from opera.data.splits import copy_splits
from opera.data.texts import CorpusText
from opera.retrieval.device import Precision
from opera.retrieval.encoder import Encoder, open_encoder, pair_similarities
from opera.retrieval.locate import (
    Model,
    data_and_model,
    model_title,
    run_corpus_text,
    trained_queries,
    with_run_splits,
)
from opera.retrieval.measures import (
    Measure,
    Ranking,
    means,
    parse_measures,
    per_query,
    ranking_depth,
)
from opera.retrieval.prompts import with_data_prompt
from opera.retrieval.search import rank_by_size, search_corpus, without_query_documents

log = logging.getLogger("opera")

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
    """

    split: str
    query_ids: list[str]
    per_query: dict[str, NDArray[np.float64]]
    ranking: Ranking
    top_documents: list[list[str]]
    by_size: dict[int, dict[str, float]] = field(default_factory=dict)
    sets: dict[str, Evaluation] = field(default_factory=dict)

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {in_points(value)}" for name, value in self.measures.items())
        return f"Evaluation of {len(self.query_ids)} {self.split} queries: {values}"

    @property
    def measures(self) -> dict[str, float]:
        """Mean of each measure over the queries."""
        return means(self.per_query)


def evaluate(
    data: Any,
    *,
    model: Model | None = None,
    split: str = "test",
    measures: str | Sequence[str | Measure] = DEFAULT_MEASURES,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    relevant_grade: int | None = None,
    columns: ColumnNames | None = None,
    encoding: str | None = None,
    skip_bad_rows: bool = False,
) -> Evaluation:
    """Measure a model on a split of a data set.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data; or a run's folder, for its
            data and splits.
        model: a sentence-transformers folder or hub id, a loaded SentenceTransformer, an OPERA run,
            or ``minilm``. If ``data`` is a run, the default is its model.
        split: the split to evaluate on.
        measures: names such as ``nDCG@10``, as a list or separated by commas; every measure of
            ir_measures and of OPERA.
        precision: arithmetic of the model.
        max_query_length: tokens per query; the default is the model's limit.
        max_passage_length: tokens per document; the default is the model's limit.
        query_prompt: text before each query, empty for none; the default is the data's prompt,
            else the model's.
        document_prompt: text before each document, empty for none; the default is the model's.
        relevant_grade: lowest grade that counts as relevant; the default is the run's if ``model``
            is a run on these data, else 1.
        columns: columns of tables by role, as for :func:`opera.load_data`.
        encoding: encoding of tables, as for :func:`opera.load_data`.
        skip_bad_rows: leave out rows that break a rule, as for :func:`opera.load_data`.

    Returns:
        Per-query values and their means (``.measures``).

    Raises:
        InputError: for invalid input.
    """
    parsed = parse_measures(measures)
    split = text(split, "split")
    settings = EncodingSettings.chosen(
        precision=precision,
        max_query_length=max_query_length,
        max_passage_length=max_passage_length,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    named = named_source(data, columns=columns, encoding=encoding, skip_bad_rows=skip_bad_rows)
    source, model, run = data_and_model(named, model)
    original = load_data(source)
    prepared = with_run_splits(original, run)
    if relevant_grade is not None:  # keep the run's splits, but use the original grades
        prepared = copy_splits(original, source=prepared).with_relevant_grade(relevant_grade)
    if split not in prepared.splits and prepared.splits:
        options = " or ".join(f"--split {name}" for name in prepared.splits)
        raise DataError(f"{prepared.title}: has no split '{split}'; pass {options}")
    prepared.judged_qrels(split)
    log_copies(prepared)
    encoder = open_encoder(model, **with_data_prompt(settings, prepared, model))
    result = evaluate_encoder(encoder, prepared, split, parsed, run_corpus_text(run))
    if known := trained_queries(original, model, result.query_ids):
        queries = f"{known:,} of these {counted(len(result.query_ids), f'{split} query')}"
        name = model_title(model)
        log.warning("warning: %s was trained on %s, so its scores are too high", name, queries)
    return result


def evaluate_encoder(
    encoder: Encoder,
    data: RetrievalData,
    split: str,
    measures: Sequence[str | Measure] = DEFAULT_MEASURES,
    corpus_text: CorpusText = "title_text",
    sizes: Sequence[int] = (),
) -> Evaluation:
    """Rank the corpus for the judged queries of a split and compute measures.

    ``sizes`` are numbers of first dimensions to measure in addition to the full embeddings.

    Raises:
        DataError: if the split is missing or has no relevant document.
        SettingError: for an unknown measure.
    """
    parsed, qrels = parse_measures(measures), data.judged_qrels(split)
    depth, rows = ranking_depth(parsed), qrels.query_rows
    if data.sets:
        sets = {
            data_set.name: evaluate_encoder(encoder, data_set, split, parsed, corpus_text, sizes)
            for data_set in data_sets(data, split)
        }
        return _joined(data, split, sets)
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
    ranking = by_size.pop(encoder.dimension)
    return Evaluation(
        split=split,
        query_ids=data.queries.ids(rows),
        per_query=per_query(ranking, qrels, parsed),
        ranking=ranking,
        top_documents=_ids_of(data, ranking.doc_rows[:, :TOP_DOCUMENTS]),
        by_size={size: means(per_query(ranked, qrels, parsed)) for size, ranked in by_size.items()},
    )


def _ids_of(data: RetrievalData, doc_rows: NDArray[np.int32]) -> list[list[str]]:
    """The ids of ranked documents ``[n, depth]``, without the missing documents (-1)."""
    ids = iter(data.corpus.ids(doc_rows[doc_rows >= 0]))
    return [list(islice(ids, count)) for count in (doc_rows >= 0).sum(axis=1).tolist()]


def _joined(data: RetrievalData, split: str, sets: dict[str, Evaluation]) -> Evaluation:
    """Join the results of several data sets, with the depth of the shortest ranking."""
    first = dict(zip([data_set.name for data_set in data.sets], first_rows(data)[1], strict=False))
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


def relevant_columns(data: RetrievalData, split: str) -> dict[str, list[list[Any]]]:
    """Return each judged query's ``relevant`` document ids and their ``grades``."""
    qrels = data.judged_qrels(split).relevant()
    ids, grades = data.corpus.ids(qrels.doc_rows), qrels.grades.tolist()
    parts = [slice(*part) for part in pairwise(qrels.offsets.tolist())]
    return {"relevant": [ids[part] for part in parts], "grades": [grades[part] for part in parts]}


def query_difficulty(
    encoder: Encoder, data: RetrievalData, split: str, corpus_text: CorpusText = "title_text"
) -> NDArray[np.float32]:
    """Mean cosine of each judged query to its relevant documents: float32 ``[n]``.

    Lower is harder; the paper groups queries by this value (Appendix D.6).
    """
    if data.sets:
        sets = data_sets(data, split)
        return np.concatenate(
            [query_difficulty(encoder, data_set, split, corpus_text) for data_set in sets]
        )
    relevant = data.judged_qrels(split).relevant()
    pairs = relevant.pairs()
    query_embeddings = encoder.encode_queries(data, relevant.query_rows)
    document_embeddings = encoder.encode_corpus(data, corpus_text)
    cosines = pair_similarities(
        pairs, query_embeddings, document_embeddings, encoder.similarity == "cosine"
    )
    return (pairs.sum_by_query(cosines) / pairs.positives_per_query).astype(np.float32)
