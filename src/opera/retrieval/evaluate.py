"""``opera.evaluate``: measure a model on a data set in one call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from opera.config.encoding import EncodingSettings
from opera.core.arguments import text, texts
from opera.core.paths import expand_user
from opera.data import RetrievalData, load_data
from opera.data.splits import copy_splits
from opera.retrieval.device import Precision
from opera.retrieval.encoder import open_encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder
from opera.retrieval.measures import DEFAULT_MEASURES, check_measures, split_names
from opera.retrieval.prompts import with_data_prompt
from opera.retrieval.run_model import run_corpus_text, trained_on_dev, with_run_splits

log = logging.getLogger("opera")


def evaluate(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    split: str = "test",
    measures: str | Sequence[str] = DEFAULT_MEASURES,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    relevant_grade: int | None = None,
) -> Evaluation:
    """Measure a model on a split of a data set.

    Args:
        data: anything :func:`opera.load_data` reads, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        split: the split to evaluate on.
        measures: names such as ``nDCG@10``, as a list or separated by commas; every measure of ir_measures and
            OPERA's own.
        precision: what to compute in.
        max_query_length: tokens per query; the default is the run's if ``model`` is a run, else the model's own limit.
        max_passage_length: tokens per document, likewise.
        query_prompt: text before each query, empty for none; the default is the data's, or the model's own.
        document_prompt: text before each document, likewise.
        relevant_grade: lowest grade that counts as relevant; the default is the run's own if ``model`` is a run on
            these data, else 1.

    Returns:
        Per-query values and their means (``.measures``).

    Raises:
        InputError: for invalid input.
    """
    names = split_names(measures) if isinstance(measures, str) else texts(measures, "measures")
    check_measures(names)
    split = text(split, "split")
    reading = {
        "max_query_length": max_query_length,
        "max_passage_length": max_passage_length,
        "query_prompt": query_prompt,
        "document_prompt": document_prompt,
    }
    given = {
        "precision": precision,
        **{name: value for name, value in reading.items() if value is not None},
    }
    encoding = EncodingSettings.parse(given).model_dump(exclude_unset=True)
    model = expand_user(model, "model")
    original = load_data(data)
    prepared = with_run_splits(original, model)
    if (
        relevant_grade is not None
    ):  # keep the run's splits, but count relevance from the original grades
        prepared = copy_splits(original, source=prepared).with_relevant_grade(relevant_grade)
    prepared.judged_qrels(split)
    if split == "dev" and trained_on_dev(original, model):
        log.info(
            "note: %s was trained again with its dev split in train, so its measures on dev promise too much",
            model,
        )
    encoder = open_encoder(model, **with_data_prompt(encoding, prepared, model))
    return evaluate_encoder(encoder, prepared, split, names, run_corpus_text(model))
