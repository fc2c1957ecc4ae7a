"""Evaluating a model in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opera.config import TrainSettings
from opera.data import RetrievalData, load_data
from opera.data.tables import TextChoice
from opera.device import Precision, pick_device
from opera.encode import Encoder
from opera.evaluation import Evaluation, evaluate_encoder, judged, with_needed_splits
from opera.measures import DEFAULT_MEASURES, check_measures
from opera.models import load_model, set_lengths
from opera.runs import Run, holds_run


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
        split: which judgements to use.
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
    return evaluate_encoder(encoder, loaded, split, measures, text_choice(model))


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


def text_choice(model: str | Path) -> TextChoice:
    """Return what of a document a run's model was trained on; title and text for other models."""
    return "text" if holds_run(Path(model)) and Run.open(model).settings["corpus_text"] == "text" else "title_text"


def open_encoder(
    model: str | Path,
    precision: Precision = "auto",
    max_query_length: int | None = None,
    max_passage_length: int | None = None,
) -> Encoder:
    """Load a model for encoding, with its own lengths unless others are given."""
    loaded = load_model(model, pick_device())
    lengths = {"max_query_length": max_query_length, "max_passage_length": max_passage_length}
    chosen = {name for name, value in lengths.items() if value is not None}
    if chosen:
        own = [getattr(loaded[0], name, None) for name in ("query_length", "document_length")]
        set_lengths(loaded, max_query_length or own[0], max_passage_length or own[1], chosen)
    return Encoder(loaded, precision)
