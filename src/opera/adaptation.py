"""The main job: data and a model in, a better retriever and everything needed to trust it out."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback

from opera.card import write_card
from opera.config import Recipe, TrainSettings, make_recipe
from opera.data import Judgements, RetrievalData, load_data
from opera.device import describe_device, pick_device
from opera.encode import Encoder
from opera.errors import SettingError
from opera.evaluation import Evaluation, evaluate_encoder, judged, with_needed_splits
from opera.measures import DEFAULT_MEASURES, check_measures
from opera.methods import METHODS, Method, Pairs, PairScores, Plan
from opera.mine import ListedNegatives, Negatives, RandomNegatives, check_range, mine_hard_negatives
from opera.models import is_static, load_model, parameter_count, set_lengths, set_training_ways
from opera.positives import KnownPositives
from opera.runs import Run, RunWriter, check_out_folder, clear_leftovers, clear_run, refuse_other_settings
from opera.score import pretrained_scores
from opera.train import TrainingResult, train, training_arguments

log = logging.getLogger("opera")

VERSIONED = (
    "opera-retrieval",
    "torch",
    "sentence-transformers",
    "transformers",
    "accelerate",
    "ir-measures",
    "numpy",
)


@dataclass(frozen=True)
class Prepared:
    """Everything checked and loaded, nothing yet written."""

    recipe: Recipe
    data: RetrievalData
    training: Judgements
    model: SentenceTransformer
    encoder: Encoder
    method: type[Method]
    arguments: SentenceTransformerTrainingArguments
    about: dict[str, Any]

    @property
    def settings(self) -> TrainSettings:
        """The settings that are not the method's."""
        return self.recipe.train


def adapt(
    data: str | Path | RetrievalData,
    *,
    model: str | Path,
    out: str | Path,
    method: str = "dp",
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    **settings: Any,
) -> Run:
    """Adapt a retriever to a data set and measure it before and after.

    Args:
        data: a BEIR folder, a FlagEmbedding ``.jsonl`` file, ``python:PACKAGE``, or loaded data.
        model: a sentence-transformers folder or hub id, an OPERA run, or ``minilm``.
        out: the run folder to write.
        method: ``ft``, ``rp``, ``sp`` or ``dp``.
        resume: go on with the run in ``out`` from its newest checkpoint.
        overwrite: replace the run in ``out``.
        callbacks: more transformers callbacks for the trainer.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run.

    Raises:
        InputError: for anything that cannot be used, before anything is written.
        TrainingError: if training breaks off.
    """
    recipe = make_recipe({"method": method, **settings})
    home = Path(os.path.normpath(out))
    check_out_folder(home, resume, overwrite)
    clock = Clock()
    with clock.phase("load"):
        loaded = load_data(data) if isinstance(data, str | Path) else data
        prepared = prepare(loaded, str(model), recipe, set(settings), RunWriter(home).checkpoints)
    if resume:
        refuse_other_settings(home, prepared.about["identity"])
        if Run.open(home).finished:
            log.info("%s is finished already: nothing to do", home)
            return Run.open(home)
    if overwrite:
        clear_run(home)
    home.mkdir(parents=True, exist_ok=True)
    clear_leftovers(home)
    return _run(prepared, RunWriter(home), clock, resume, callbacks)


def prepare(data: RetrievalData, model_spec: str, recipe: Recipe, chosen: set[str], checkpoints: Path) -> Prepared:
    """Load and check everything that a run needs; writes nothing.

    Args:
        data: the data set.
        model_spec: what :func:`load_model` takes.
        recipe: the run's settings.
        chosen: names of the settings that the user gave.
        checkpoints: where the trainer will save.

    Raises:
        InputError: for anything that cannot be used.
    """
    settings = recipe.train
    if settings.needs_dev:
        check_measures([settings.metric_for_best_model])
    data.training_split()
    data = with_needed_splits(data, settings, settings.needs_dev)
    for split in ("test", "dev") if settings.needs_dev else ("test",):
        judged(data, split)
    data.corpus.refuse_empty(settings.corpus_text, "document")
    training = data.training_split()
    method = METHODS[recipe.method]
    method.check(recipe.method_settings, training.n_queries, len(training.doc_rows))
    kind = _negatives_kind(settings, data)
    if kind == "hard":
        check_range(settings.mining_range, len(data.corpus))
    device = pick_device()
    model = load_model(model_spec, device)
    lengths = set_lengths(model, settings.max_query_length, settings.max_passage_length, chosen)
    set_training_ways(model, settings.dropout, settings.attn_implementation)
    encoder = Encoder(model, settings.precision, settings.encode_batch_size)
    learning_rate = settings.learning_rate or default_learning_rate(model)
    resolved = {"learning_rate": learning_rate, "precision": encoder.precision, "negatives": kind, **lengths}
    about = {
        "identity": {
            **recipe.flat(),
            "data_fingerprint": data.fingerprint,
            "model_fingerprint": encoder.fingerprint,
        },
        "data": {
            "source": data.source,
            "fingerprint": data.fingerprint,
            "counts": data.counts(),
            "notes": list(data.notes),
        },
        "model": {
            "source": model_spec,
            "fingerprint": encoder.fingerprint,
            "parameters": parameter_count(model),
        },
        "device": describe_device(device),
        "seed": settings.seed,
        "settings": {**recipe.flat(), **resolved},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONED}},
    }
    arguments = training_arguments(settings, learning_rate, encoder.precision, model, checkpoints)
    return Prepared(recipe, data, training, model, encoder, method, arguments, about)


def default_learning_rate(model: SentenceTransformer) -> float:
    """The ``auto`` learning rate: static models take far larger steps than transformers, small ones larger than big."""
    if is_static(model):
        return 1e-2
    return 1e-4 if parameter_count(model) < 50_000_000 else 2e-5


def _run(
    prepared: Prepared, writer: RunWriter, clock: Clock, resume: bool, callbacks: Sequence[TrainerCallback]
) -> Run:
    settings, data, encoder = prepared.settings, prepared.data, prepared.encoder
    about = {
        "status": "running",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **prepared.about,
    }
    if resume:
        earlier = Run.open(writer.path).about
        about["started"] = earlier["started"]
        clock.add(earlier["seconds"])
    writer.write_about({**about, "seconds": clock.seconds})
    for note in data.notes:
        log.info("note: %s", note)
    log.info(
        "%s: %s",
        data.name,
        ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in data.counts().items()),
    )
    log.info("model %s on %s, %s", prepared.about["model"]["source"], about["device"], encoder.precision)

    with clock.phase("evaluate_before"):
        before = evaluate_encoder(encoder, data, "test", choice=settings.corpus_text)
    with clock.phase("score_and_mine"):
        pairs = prepared.training.pairs()
        known = KnownPositives(pairs, len(data.corpus))
        negatives, negatives_about = _negatives(prepared, known)
        scores = (
            _scores(prepared, pairs, known) if prepared.method.needs_scores(prepared.recipe.method_settings) else None
        )
        batch = settings.per_device_train_batch_size * settings.gradient_accumulation_steps
        plan = Plan(settings.seed, settings.max_steps, batch)
        method = prepared.method(pairs, plan, prepared.recipe.method_settings, scores)
        about |= {"method": method.summary(), "negatives": negatives_about}
    log.info(
        "%s: %s",
        method.title.lower(),
        ", ".join(f"{n:,} {what.replace('_', ' ')}" for what, n in method.summary().items()),
    )
    writer.write_about({**about, "seconds": clock.seconds})
    with clock.phase("train"):
        result = train(
            prepared.model,
            data,
            prepared.training.query_rows,
            pairs,
            method,
            negatives,
            known,
            settings,
            prepared.arguments,
            writer,
            resume,
            callbacks,
        )
    writer.write_model(lambda folder: prepared.model.save_pretrained(str(folder), create_model_card=False))
    with clock.phase("evaluate_after"):  # of the folder that the user gets, loaded as the user will load it
        after = _evaluate_saved(writer, prepared)
    _write_results(writer, about, clock, before, after, result)
    return Run.open(writer.path)


def _write_results(
    writer: RunWriter,
    about: dict[str, Any],
    clock: Clock,
    before: Evaluation,
    after: Evaluation,
    result: TrainingResult,
) -> None:
    writer.write_measures({"before": before.measures, "after": after.measures})
    writer.write_per_query({"query_id": before.query_ids, **before.columns("before"), **after.columns("after")})
    about |= {"status": "finished", "training": vars(result), "seconds": clock.seconds}
    write_card(Run(writer.path).model_path, about, before.measures, after.measures)
    writer.write_about(about)


def _evaluate_saved(writer: RunWriter, prepared: Prepared) -> Evaluation:
    settings = prepared.settings
    saved = load_model(Run(writer.path).model_path, prepared.encoder.device)
    encoder = Encoder(saved, settings.precision, settings.encode_batch_size, use_cache=False)
    return evaluate_encoder(encoder, prepared.data, "test", DEFAULT_MEASURES, settings.corpus_text)


def _negatives_kind(settings: TrainSettings, data: RetrievalData) -> str:
    if settings.negatives == "given" and data.given_negatives is None:
        raise SettingError(f"negatives=given: {data.source} holds no negatives; use negatives=random or negatives=hard")
    return settings.negatives or ("given" if data.given_negatives is not None else "random")


def _negatives(prepared: Prepared, known: KnownPositives) -> tuple[Negatives, dict[str, Any]]:
    settings, data, training = prepared.settings, prepared.data, prepared.training
    kind = prepared.about["settings"]["negatives"]
    n_docs = len(data.corpus)
    if kind == "random" or settings.train_group_size == 1:
        return RandomNegatives(n_docs), {"kind": kind}
    if kind == "given":
        given = data.given_negatives
        assert given is not None
        rows = [given.doc_rows[given.offsets[q] : given.offsets[q + 1]] for q in training.query_rows]
        listed = ListedNegatives.of(rows, n_docs)
    else:
        listed = mine_hard_negatives(
            prepared.encoder.queries(data, training.query_rows),
            prepared.encoder.corpus(data, settings.corpus_text),
            data.corpus,
            known,
            settings.mining_range,
            settings.max_mined_negatives,
            settings.seed,
            prepared.encoder.device,
        )
    if listed.without:
        log.info("note: %d queries have no %s negative: theirs are random", listed.without, kind)
    return listed, {"kind": kind, "queries_without": listed.without, "listed": len(listed.doc_rows)}


def _scores(prepared: Prepared, pairs: Pairs, known: KnownPositives) -> PairScores:
    settings = prepared.settings
    return pretrained_scores(
        pairs,
        prepared.encoder.queries(prepared.data, prepared.training.query_rows),
        prepared.encoder.corpus(prepared.data, settings.corpus_text),
        settings.temperature,
        settings.per_device_train_batch_size * settings.train_group_size,
        settings.seed,
        known if settings.mask_known_positives else None,
    )


class Clock:
    """Seconds of each phase of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        start = time.perf_counter()
        yield
        self.add({name: time.perf_counter() - start})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add to the phases, such as the seconds of an earlier sitting."""
        for name, more in seconds.items():
            self.seconds[name] = round(self.seconds.get(name, 0.0) + more, 3)
