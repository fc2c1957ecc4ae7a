"""``opera.evaluate``: measure a model, keyword search, and both together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from opera.config.arguments import ModelArguments, reading_of, with_group
from opera.config.training import EncodingSettings
from opera.core.arguments import text
from opera.core.errors import DataError, SettingError, raise_first
from opera.core.figures import DEFAULT_MEASURES, PRIMARY
from opera.core.terminal import counted, log
from opera.data import Mixture, RetrievalData, Source, load_all
from opera.data.copies import log_copies
from opera.data.loading import named_source
from opera.data.retrieval_data import with_relevant_grade
from opera.data.splits import copy_splits, draw_missing_splits
from opera.data.texts import CorpusText
from opera.guard.rule import (
    KEYWORD_ANCHOR,
    STATIC_KEYWORD_ANCHOR,
    QueryKind,
    choose_keyword_weights,
)
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.evaluation import Evaluation, KeywordSearch, evaluate_encoder, evaluate_hybrid
from opera.retrieval.keywords import POOL
from opera.retrieval.kinds.dense import is_static
from opera.retrieval.locate import (
    Model,
    data_and_model,
    first_stage_model,
    model_title,
    origin_on,
    run_corpus_text,
    run_keyword_weight,
    trained_queries,
    with_run_splits,
)
from opera.retrieval.measures import Measure, parse_measures
from opera.retrieval.prompts import with_data_prompt
from opera.retrieval.search import index_facts
from opera.run.rerank import Reranking


@with_group(ModelArguments)
def evaluate(
    data: Any,
    *,
    model: Model | None = None,
    split: str = "test",
    measures: str | Sequence[str | Measure] = DEFAULT_MEASURES,
    relevant_grade: int | None = None,
    bm25: bool | None = None,
    hybrid: bool = False,
    reranker: str | Path | None = None,
    first_stage: Model | None = None,
    depth: int | None = None,
    max_length: int | None = None,
    **arguments: Unpack[ModelArguments],
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
        relevant_grade: lowest grade that counts as relevant; the default is the run's if ``model``
            is a run on these data, else 1.
        bm25: also measure keyword search; the default is up to 200,000 documents.
        hybrid: also measure the model fused with keyword search. The weight is that of the run that
            made the model, else it is chosen on dev.
        reranker: also measure a cross-encoder that sorts the best documents of a first stage: its
            folder or hub id, or what ``opera train --kind reranker`` wrote. The prompts are the
            reranker's.
        first_stage: the model that ranks all documents for the reranker, as ``model``; the default
            ``bm25`` is keyword search.
        depth: how many documents of each query the reranker sorts; the default is 100.
        max_length: tokens of query and document together that the reranker reads; the default is
            the reranker's limit.
        arguments: how to read tables, and how the model reads texts (``ModelArguments``).

    Returns:
        Per-query values and their means (``.measures``), and the same for ``.bm25`` and
        ``.hybrid``. With a reranker: the first stage's values, and the same for ``.reranked``,
        with the ``.changes`` and their intervals.

    Raises:
        InputError: for invalid input.

    Examples:
        >>> result = opera.evaluate("my-run", measures="nDCG@10,R@5")
        >>> sorted(result.measures)
        ['R@5', 'nDCG@10']
    """
    parsed, split = parse_measures(measures), text(split, "split")
    deep = ", ".join(measure.name for measure in parsed if measure.depth > POOL)
    raise_first(
        SettingError,
        (hybrid and deep, f"--hybrid: ranks {POOL} documents, too few for {deep}"),
        (
            hybrid and bm25 is False,
            "--hybrid --no-bm25: hybrid search needs BM25; remove one of the two",
        ),
    )
    settings = EncodingSettings.chosen(**arguments)
    reranking = Reranking.checked(
        reranker,
        settings,
        model=model,
        bm25=bm25,
        hybrid=hybrid,
        first_stage=first_stage,
        depth=depth,
        max_length=max_length,
    )
    named = named_source(data, **reading_of(arguments))
    if reranking is not None:
        return _with_reranker(named, reranking, split, parsed, relevant_grade, settings)
    source, model, run = data_and_model(named, model)
    prepared = _with_splits(load_all([source]), run, split, relevant_grade)
    joined = prepared.joined
    encoder = open_encoder(model, **with_data_prompt(settings, joined, model))
    corpus_text = run_corpus_text(run)
    result = evaluate_encoder(encoder, prepared, split, parsed, corpus_text)
    result = replace(result, index=index_facts(encoder, prepared, split, corpus_text))
    keywords = KeywordSearch.of(prepared, corpus_text, hybrid or bm25)
    if keywords is not None:
        result = replace(result, bm25=keywords.evaluate(prepared, split, parsed))
    if hybrid:
        if keywords is None:
            raise DataError(f"--hybrid: {joined.title} has no words to search")
        weights = keyword_weights(prepared, model, encoder, keywords, corpus_text)
        result = _with_hybrid(result, prepared, weights, parsed)
    warn_of_trained_queries(joined, model, result)
    return result


def _with_reranker(
    data: Source,
    reranking: Reranking,
    split: str,
    measures: Sequence[Measure],
    relevant_grade: int | None,
    settings: Mapping[str, Any],
) -> Evaluation:
    """Measure a first stage, and the reranker behind it."""
    source, first_stage, run = data_and_model(data, reranking.first_stage)
    mixture = load_all([source])
    known_run = reranking.run_on(mixture, run)
    prepared = _with_splits(mixture, known_run, split, relevant_grade)
    result = reranking.evaluate(prepared, split, measures, settings, run_corpus_text(known_run))
    for model in (first_stage_model(first_stage), reranking.reranker):
        warn_of_trained_queries(prepared.joined, model, result)
    return result


def warn_of_trained_queries(data: RetrievalData, model: Model | None, result: Evaluation) -> None:
    """Warn if a run trained the model on the queries of a result."""
    if model is not None and (known := trained_queries(data, model, result.query_ids)):
        queries = f"{known:,} of these {counted(len(result.query_ids), f'{result.split} query')}"
        log.warning(
            "warning: %s was trained on %s, so its scores are too high", model_title(model), queries
        )


def _with_splits(
    original: Mixture, run: Model | None, split: str, relevant_grade: int | None
) -> Mixture:
    """Return the data with the splits and the relevant grade of a run.

    Raises:
        DataError: if the data have no such split, or no relevant document in it.
    """
    prepared = with_run_splits(original, run)
    if relevant_grade is not None:  # keep the run's splits, but use the original grades
        prepared = original.map(copy_splits, prepared)
        prepared = prepared.map(with_relevant_grade, lowest=relevant_grade)
    joined = prepared.joined
    if split not in joined.splits and joined.splits:
        options = " or ".join(f"--split {name}" for name in joined.splits)
        raise DataError(f"{joined.title}: has no split '{split}'; pass {options}")
    joined.judged_qrels(split)
    for data_set in prepared.data_sets:
        log_copies(data_set)
    return prepared


def _with_hybrid(
    result: Evaluation, data: Mixture, weights: dict[str, float], measures: Sequence[Measure]
) -> Evaluation:
    """Add the results of the model fused with keyword search."""
    assert result.bm25 is not None
    if result.split != "test":
        log.warning(
            "warning: dev chooses the weight of keyword search, so the figures of both together "
            "on %s may be too high",
            result.split,
        )
    hybrid = evaluate_hybrid(data, result.split, result, result.bm25, weights, measures)
    return replace(result, hybrid=hybrid, keyword_weights=weights)


def keyword_weights(
    data: Mixture,
    model: Model,
    encoder: Encoder,
    keywords: KeywordSearch,
    corpus_text: CorpusText,
) -> dict[str, float]:
    """Return the weight of keyword search for each data set: a run's, else chosen on dev.

    A model that chooses on dev has not been trained on the data, so all their documents are new.
    Without a dev split, one is drawn from train.

    Raises:
        SettingError: if the model was trained on the data without keyword search.
        DataError: if the data have neither a dev split nor a train split.
    """
    weights = {data_set.name: run_keyword_weight(model, data_set) for data_set in data.data_sets}
    chosen = {name: weight for name, weight in weights.items() if weight is not None}
    if len(chosen) == len(weights):
        return chosen
    if any(origin_on(data_set, model) is not None for data_set in data.data_sets):
        raise SettingError(
            f"--hybrid: {model_title(model)} was trained on these data without a weight of keyword "
            "search, and dev cannot choose one any more; train it again with bm25=true"
        )
    joined = data.joined
    if not {"dev", "train"} & joined.splits.keys():
        raise DataError(
            f"--hybrid: {joined.title} has neither a dev nor a train split to choose the weight on"
        )
    with_dev = data if "dev" in joined.splits else draw_missing_splits(data, seed=0, needs_dev=True)
    model_on_dev = evaluate_encoder(encoder, with_dev, "dev", [PRIMARY], corpus_text)
    words = keywords.evaluate(with_dev, "dev", [PRIMARY])
    queries = len(model_on_dev.query_ids)
    log.info("note: keyword search gets a weight from %s", counted(queries, "dev query"))
    return choose_keyword_weights(
        with_dev,
        model_on_dev,
        words,
        [QueryKind(np.ones(queries, dtype=bool), seen=0.0)],
        STATIC_KEYWORD_ANCHOR if is_static(encoder.model) else KEYWORD_ANCHOR,
        PRIMARY,
    ).weights
