"""``opera train --kind reranker``: train a cross-encoder, and compare it with its first stage."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from opera.config.automatic import Situation, resolve
from opera.config.recipe import Recipe, make_recipe, with_full_names
from opera.config.training import TrainSettings, flag_of, reads_lists
from opera.core.arguments import (
    absolute_path,
    expand_user,
    flag,
    user_path,
    whole_number,
    without_parents,
)
from opera.core.errors import SettingError, raise_first
from opera.core.files import check_reads_stay, replace_folder
from opera.core.processes import several_processes
from opera.core.terminal import counted, log
from opera.data import Mixture, RetrievalData, check_stays_out, load_all
from opera.data.loading import log_notes, named_source
from opera.data.names import TableSource, source_title, with_paths
from opera.identity import Origin
from opera.methods import AUTO
from opera.methods.denoise import Denoise
from opera.retrieval.locate import (
    BM25,
    DEPTH,
    Model,
    checked_model,
    first_stage_model,
    inputs_of,
    model_title,
    origin_of,
    run_corpus_text,
    run_on,
    with_run_splits,
)
from opera.run.noisy_pairs import noise_record
from opera.run.write_reranker import result_tables, write_reranker
from opera.run_folder.folder import MODEL_FOLDER
from opera.run_folder.record import DataRecord
from opera.run_folder.reranker_run import (
    RERANKER_NAMES,
    RerankerRecord,
    RerankerRun,
    check_reranker_folder,
)
from opera.run_folder.summary import Change
from opera.training.prepare_data import prepare_data

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from opera.retrieval.evaluation import Evaluation, Reranked
    from opera.run.first_stage import FirstStage
    from opera.training.reranker import RerankerFit

APPLICABLE = (
    *("max_steps", "epochs", "learning_rate", "warmup_ratio", "seed", "precision"),
    *("per_device_train_batch_size", "train_group_size", "negatives", "range", "keep"),
    *("relative_margin", "absolute_margin", "max_score"),
    *("relevant_grade", "decisions", "corpus_text"),
)
"""The settings of training that apply to a reranker."""
MARGINS = ("relative_margin", "absolute_margin", "max_score")
DOCUMENTS, DOCUMENTS_OF_DENOISE = 5, 2
"""Documents per query in a row, by default: its positive and its negatives. ``denoise`` compares
the positive with documents of other rows, and a reranker reads each of these pairs."""
BATCH_SIZE = 32
"""Rows in a batch, by default."""
RERANKER = "reranker"
"""The value of ``--kind``."""
NEEDS_RERANKER = "needs --kind reranker"
"""The reason against arguments of a reranker in another training."""
VERSIONS = ("opera-retrieval", "torch", "sentence-transformers", "transformers", "numpy")


@dataclass
class RerankerTraining:
    """The checked arguments of the training of a reranker, and its state.

    Attributes:
        data: the data with all splits.
        model: the base model as the user named it.
        folder: the folder to write.
        recipe: all settings.
        first_stage: ``bm25``, or the model that ranks all documents.
        depth: how many documents of each test query the reranker sorts.
        max_length: tokens of a pair that it reads; ``None`` for its own limit.
        overwrite: whether to replace the reranker in the folder.
        seconds: of each phase.
    """

    data: Mixture
    model: str
    folder: Path
    recipe: Recipe
    first_stage: Any
    depth: int
    max_length: int | None
    overwrite: bool
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, description: str) -> Iterator[None]:
        """Log a description, and time the block."""
        log.info("%s", description)
        began = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - began, 3)


def train_reranker(
    data: Any,
    *,
    model: Model | None,
    out: str | Path,
    settings: Mapping[str, Any],
    first_stage: Model | None = None,
    depth: int | None = None,
    max_length: int | None = None,
    overwrite: bool = False,
    **reading: Any,
) -> RerankerRun:
    """Train a cross-encoder, compare it with its first stage on test, and write its folder.

    Args:
        data: one data set.
        model: folder or hub id of a cross-encoder, or of an encoder, which gets a new head.
        out: the folder to write. It is written at once, at the end.
        settings: ``method``, the settings of :data:`APPLICABLE`, and those of the method.
        first_stage: as :func:`opera.evaluate`. Negatives are mined from it.
        depth: as :func:`opera.evaluate`.
        max_length: tokens of query and document together; saved with the model.
        overwrite: replace the reranker in ``out``.
        reading: how to read tables.

    Raises:
        InputError: for invalid input.
        TrainingError: if training fails.
    """
    training = _checked(
        data, model, out, settings, first_stage, depth, max_length, overwrite, reading
    )
    # torch takes seconds to load, so mistakes are reported first
    import torch

    from opera.run.evaluate import warn_of_trained_queries
    from opera.run.first_stage import FirstStage
    from opera.training.reranker import open_base

    joined, train = training.data.joined, training.recipe.train
    with torch.inference_mode(False), TemporaryDirectory() as temporary:
        base, new_head = open_base(training.model, training.max_length, train.seed)
        if new_head:
            log.info("note: %s has no head of a reranker, so it gets a new one", training.model)
        with training.phase("first_stage", "searching with the first stage"):
            settings = {"precision": train.precision}
            stage = FirstStage.open(
                training.first_stage, training.data, train.corpus_text, settings
            )
            first = stage.evaluate(training.data, "test", _measures(), training.depth)
        for trained_model in (first_stage_model(training.first_stage), training.model):
            warn_of_trained_queries(joined, trained_model, first)
        before = None if new_head else _measure(training, training.model, first)
        fit = _fit(training, base, stage, joined)
        model_folder = Path(temporary) / MODEL_FOLDER
        replace_folder(model_folder, partial(_save, base))
        after = _measure(training, str(model_folder), first)
        record = _record(training, first, before, after, fit)
        tables = result_tables(joined, first, before, after, fit)
        _origin(training).write(model_folder)
        check_reranker_folder(training.folder, training.overwrite)  # others may have used it
        training.folder.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(training.folder, partial(write_reranker, model_folder, record, tables))
    return RerankerRun.open(training.folder)


def refuse_arguments(
    arguments: Mapping[str, Any], reason: str = "does not apply to a reranker"
) -> None:
    """Raise a :class:`SettingError` for the first argument with a value."""
    given = [name for name, value in arguments.items() if value]
    raise_first(SettingError, *((True, f"{flag_of(name)}: {reason}") for name in given))


def _checked(
    data: Any,
    model: Model | None,
    out: str | Path,
    settings: Mapping[str, Any],
    first_stage: Model | None,
    depth: int | None,
    max_length: int | None,
    overwrite: bool,
    reading: Mapping[str, Any],
) -> RerankerTraining:
    """Check the arguments, and load the data."""
    stage = checked_model(BM25 if first_stage is None else first_stage, "--first-stage")
    raise_first(
        SettingError,
        (model is None, "--model: give a cross-encoder, or an encoder, which gets a new head"),
        (several_processes(), "--kind reranker: trains in one process; start it without torchrun"),
    )
    spec, folder = expand_user(str(model), "--model"), without_parents(user_path(out, "--out"))
    recipe = _recipe(settings, stage, spec)
    check_reranker_folder(folder, flag(overwrite, "overwrite"))
    how = reading["encoding"], reading["skip_bad_rows"]
    source = named_source(data, **reading, strict=not reads_lists(dict(recipe.train)))
    check_stays_out(folder, "--out", source)
    reads = inputs_of(source, spec, first_stage_model(stage))
    check_reads_stay(folder, reads, [folder / name for name in RERANKER_NAMES])
    if isinstance(source, str | TableSource):
        log.info("reading %s", source_title(source))
    mixture = load_all([source], *how)
    if (splitting_run := run_on(mixture.joined, first_stage_model(stage), spec)) is not None:
        mixture = with_run_splits(mixture, splitting_run)
    prepared = prepare_data(mixture, recipe).with_splits
    log_notes(prepared.joined)
    return RerankerTraining(
        data=prepared,
        model=spec,
        folder=folder,
        recipe=recipe,
        first_stage=stage,
        depth=DEPTH if depth is None else whole_number(depth, "--depth", 1),
        max_length=None if max_length is None else whole_number(max_length, "--max-length", 8),
        overwrite=overwrite,
    )


def _recipe(settings: Mapping[str, Any], stage: Any, base: str) -> Recipe:
    """Build the recipe, and reject settings that do not apply to a reranker.

    Raises:
        SettingError: with the first setting that does not apply, or a wrong value.
    """
    chosen = {name: value for name, value in with_full_names(settings).items() if value is not None}
    others = [name for name in chosen if name in TrainSettings.model_fields.keys() - {*APPLICABLE}]
    negatives = chosen.setdefault("negatives", "hard")
    margins = [name for name in MARGINS if name in chosen]
    raise_first(
        SettingError,
        *((True, f"{flag_of(name)}: does not apply to a reranker") for name in others),
        (
            negatives not in ("hard", "given"),
            f"--negatives={negatives}: a reranker needs hard or given negatives",
        ),
        (
            stage == BM25 and margins,
            f"{', '.join(map(flag_of, margins))}: needs a model as --first-stage",
        ),
    )
    if chosen.get("method", AUTO) == AUTO:
        chosen["method"] = "ft"
    models = first_stage_model(stage), base
    made_by_run = next((model for model in models if origin_of(model) is not None), None)
    chosen.setdefault("corpus_text", run_corpus_text(made_by_run))
    recipe = make_recipe({**chosen, "guard": False})
    denoises = issubclass(recipe.method_class, Denoise)
    chosen.setdefault("train_group_size", DOCUMENTS_OF_DENOISE if denoises else DOCUMENTS)
    chosen.setdefault("per_device_train_batch_size", BATCH_SIZE)
    return make_recipe({**chosen, "guard": False})


def _measures() -> list[str]:
    from opera.retrieval.measures import FULL_MEASURES

    return list(FULL_MEASURES)


def _measure(training: RerankerTraining, model: str, first: Evaluation) -> Reranked:
    """Measure a reranker on test."""
    from opera.retrieval.measures import parse_measures
    from opera.retrieval.reranker import open_reranker
    from opera.retrieval.reranking import evaluate_reranker

    train = training.recipe.train
    is_base = model == training.model
    name = "base" if is_base else "final"
    with training.phase(f"measure_{name}", f"measuring the {name} model on test"):
        reranker = open_reranker(model, max_length=training.max_length, precision=train.precision)
        return evaluate_reranker(
            reranker,
            training.data,
            "test",
            first,
            training.depth,
            parse_measures(_measures()),
            train.corpus_text,
        )


def _fit(
    training: RerankerTraining, model: CrossEncoder, stage: FirstStage, data: RetrievalData
) -> RerankerFit:
    """Mine negatives, and train."""
    from opera.retrieval.models import SMALL_TRANSFORMER, parameter_count
    from opera.training.documents import DocumentPool, KnownPositives
    from opera.training.negatives import given_negatives
    from opera.training.reranker import train_cross_encoder, training_rows

    train, split = training.recipe.train, data.training_split()
    is_small = parameter_count(model) < SMALL_TRANSFORMER
    device = model.device.type
    situation = Situation(split.n_queries, "small" if is_small else "large", device)
    training.recipe = training.recipe.model_copy(update={"train": resolve(train, situation)})
    train = training.recipe.train
    with training.phase("mine", "looking for negatives"):
        if train.negatives == "given":
            known = KnownPositives.of(data, split.query_rows, split.pairs())
            pool = DocumentPool.of(data, train.corpus_text)
            negatives = given_negatives(data, split.query_rows, known, pool)
        else:
            negatives = stage.mine(data, train, train.seed)
        if negatives.queries_without:
            count = counted(negatives.queries_without, "query")
            log.info("note: using random negatives for %s without a negative", count)
        rows = training_rows(data, negatives, train.n_negatives, train.corpus_text, train.seed)
    log.info(
        "%s: %d steps of %d queries (%.3g epochs), %d negatives per query, learning rate %g",
        training.recipe.method,
        train.max_steps,
        train.per_device_train_batch_size,
        train.epochs,
        train.n_negatives,
        train.learning_rate,
    )
    with training.phase("train", "training"):
        return train_cross_encoder(model, rows, training.recipe)


def _record(
    training: RerankerTraining,
    first: Evaluation,
    before: Reranked | None,
    after: Reranked,
    fit: RerankerFit,
) -> RerankerRecord:
    data, flat = training.data.joined, training.recipe.flat()
    noisy = fit.noisy_labels
    results = {"first_stage": first, "base": before, "final": after}
    settings = {name: flat[name] for name in flat if name in APPLICABLE}
    of_method = training.recipe.method_settings.model_dump()
    return RerankerRecord(
        data=DataRecord(
            source=with_paths(data.source, absolute_path),
            fingerprint=data.fingerprint,
            counts=data.counts(),
            notes=list(data.notes),
        ),
        model=training.model,
        new_head=before is None,
        first_stage=model_title(training.first_stage),
        depth=training.depth,
        method=training.recipe.method,
        settings={**settings, **of_method, "max_length": training.max_length},
        steps=fit.steps,
        seed=training.recipe.train.seed,
        seconds=training.seconds,
        seconds_per_query=after.seconds_per_query,
        measures={name: result.measures for name, result in results.items() if result is not None},
        changes=after.changes,
        changes_from_base={}
        if before is None
        else {
            name: Change.of(after.per_query[name] - values)
            for name, values in before.per_query.items()
        },
        noisy_labels=None if noisy is None else noise_record(noisy, fit.visits, fit.kept),
        versions={name: version(name) for name in VERSIONS},
    )


def _origin(training: RerankerTraining) -> Origin:
    """Return the facts by which commands know the data and the queries of the training."""
    data, train = training.data.joined, training.recipe.train
    models = first_stage_model(training.first_stage), training.model
    drew, base = origin_of(run_on(data, *models)), origin_of(training.model)
    identity = json.dumps([training.recipe.flat(), data.fingerprint, training.model])
    queries = data.queries.digests[data.training_split().query_rows]
    if base is not None:
        queries = np.union1d(base.queries, queries)
    return Origin(
        run=hashlib.sha256(identity.encode()).hexdigest(),
        data=(data.fingerprint,),
        seed=train.seed if drew is None else drew.seed,
        needs_dev=drew is not None and drew.needs_dev,
        expected_documents=None if drew is None else drew.expected_documents,
        relevant_grade=max(train.relevant_grade, 0 if drew is None else drew.relevant_grade),
        corpus_text=train.corpus_text,
        cutoffs=None,
        keyword_weights={},
        queries=np.asarray(queries),
    )


def _save(model: CrossEncoder, folder: Path) -> None:
    """Save a model without an automatic card."""
    model.save_pretrained(str(folder), create_model_card=False)
