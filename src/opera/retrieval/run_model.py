"""What a run records about its model: the splits it was trained on and the text of a document it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opera.config.training import TrainSettings
from opera.core.errors import SettingError
from opera.data import RetrievalData
from opera.data.splits import draw_missing_splits
from opera.data.texts import CorpusText
from opera.runs.folder import RUN_FILE, Run, holds_run
from opera.runs.reading import broken
from opera.runs.record import RunRecord


def with_run_splits(data: RetrievalData, model: str | Path) -> RetrievalData:
    """Apply a run's relevant grade and splits if ``model`` is a run on these data; else return ``data`` unchanged."""
    if not holds_run(Path(model)):
        return data
    run = Run.open(model)
    if data.fingerprint not in _fingerprints(run.record):
        return data
    names = (
        "seed",
        "test_fraction",
        "dev_fraction",
        "future",
        "relevant_grade",
        "guard",
        "eval_steps",
    )
    given = run.record.identity
    settings = recorded_settings(run, {name: given[name] for name in names if name in given})
    return draw_missing_splits(
        data.with_relevant_grade(settings.relevant_grade),
        seed=settings.seed,
        test_fraction=settings.test_fraction,
        needs_dev=settings.needs_dev,
        dev_fraction=settings.dev_fraction,
        future=settings.future,
    )


def trained_on_dev(data: RetrievalData, model: str | Path) -> bool:
    """Whether ``model`` is a run on these data that was trained again with its drawn dev split in train."""
    if not holds_run(Path(model)):
        return False
    record = Run.open(model).record
    return (
        data.fingerprint in _fingerprints(record)
        and record.guard is not None
        and record.guard.refit
    )


def _fingerprints(record: RunRecord) -> set[str]:
    """Those of the data of a run, and of each data set where they are several: their splits are drawn one by one."""
    return {record.data.fingerprint, *(each.fingerprint for each in record.sets or ())}


def run_corpus_text(model: str | Path) -> CorpusText:
    """Return what of a document a run's model was trained on; title and text for any other model."""
    return (
        "text"
        if holds_run(Path(model)) and Run.open(model).settings.get("corpus_text") == "text"
        else "title_text"
    )


def run_lengths(model: str | Path) -> dict[str, int]:
    """Return the lengths that a run encoded with, which its saved model need not hold; empty for any other model."""
    if not holds_run(Path(model)):
        return {}
    run = Run.open(model)
    recorded = {name: run.settings.get(name) for name in ("max_query_length", "max_passage_length")}
    given = {name: length for name, length in recorded.items() if length is not None}
    settings = recorded_settings(run, given)
    return {name: getattr(settings, name) for name in given}


def run_scores_without_prompts(model: str | Path) -> bool:
    """Whether ``model`` is a run whose prompts hold in search alone."""
    return holds_run(Path(model)) and Run.open(model).settings.get("prompt_phases") == "search"


def recorded_settings(run: Run, values: Mapping[str, Any]) -> TrainSettings:
    """Check settings that a run's ``run.json`` holds.

    Raises:
        RunFolderError: naming the file, and each setting that breaks its rule.
    """
    try:
        return TrainSettings.parse(values)
    except SettingError as error:
        raise broken(run.path / RUN_FILE, "; ".join(error.lines)) from None
