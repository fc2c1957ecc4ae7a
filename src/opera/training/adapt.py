"""The main job: data and a model in, a better retriever and everything needed to trust it out."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from opera.config.recipe import make_recipe
from opera.data import RetrievalData, load_data
from opera.methods import Method, Plan
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import Evaluation, evaluate_encoder, query_difficulty, relevant_ids
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model
from opera.runs.folder import Run, RunWriter, check_out_folder, clear_leftovers, clear_run, refuse_other_settings
from opera.training.distributed import barrier, is_main, main_first, refuse_differences, world_size
from opera.training.model_card import write_card
from opera.training.session import TrainingResult, train
from opera.training_set.build import Material, gather
from opera.training_set.prepare import Prepared, prepare

log = logging.getLogger("opera")


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
        method: ``ft``, ``rp``, ``sp``, ``sp+cbs``, ``infobatch``, ``dp`` or ``sp+dp``.
        resume: go on with the run in ``out`` from its newest checkpoint.
        overwrite: replace the run in ``out``.
        callbacks: more transformers callbacks for the trainer.
        settings: any other setting by its name (``opera train --help-settings`` lists them).

    Returns:
        The finished run.

    Raises:
        InputError: for anything that cannot be used, before anything is written.
        TrainingError: if training breaks off.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; a checkpoint is saved first, from which ``resume`` goes on.
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
    barrier()  # every process has looked at the folder
    if is_main():
        if overwrite:
            clear_run(home)
        home.mkdir(parents=True, exist_ok=True)
        clear_leftovers(home)
    barrier()
    return _run(prepared, RunWriter(home, is_main()), clock, resume, callbacks)


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

    with clock.phase("evaluate_before"), main_first():
        before = evaluate_encoder(encoder, data, "test", FULL_MEASURES, settings.corpus_text)
        difficulty = {
            "relevant": relevant_ids(data, "test"),
            "similarity": query_difficulty(encoder, data, "test", settings.corpus_text),
        }
    with clock.phase("score_and_mine"):
        with main_first():
            material = gather(prepared)
        refuse_differences("training pairs, scores or negatives", material.fingerprint)
        batch = settings.per_device_train_batch_size * world_size() * settings.gradient_accumulation_steps
        plan = Plan(settings.seed, settings.max_steps, batch)
        method = prepared.method(material.pairs, plan, prepared.recipe.method_settings, material.scores)
        about |= {"method": method.summary(), **material.about}
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
            material.query_rows,
            material.pairs,
            method,
            material.negatives,
            material.known,
            settings,
            prepared.arguments,
            writer,
            resume,
            callbacks,
        )
    about |= _write_pairs(writer, data, material, method, result)
    writer.write_model(lambda folder: prepared.model.save_pretrained(str(folder), create_model_card=False))
    if writer.writes:
        with clock.phase("evaluate_after"):  # of the folder that the user gets, loaded as the user will load it
            after = _evaluate_saved(writer, prepared)
        writer.write_measures({"before": before.measures, "after": after.measures})
        writer.write_per_query(
            {"query_id": before.query_ids, **difficulty, **before.columns("before"), **after.columns("after")}
        )
        about |= {"status": "finished", "training": result.about(), "seconds": clock.seconds}
        write_card(Run(writer.path).model_path, about, before.measures, after.measures)
        writer.write_about(about)
    barrier()
    return Run.open(writer.path)


def _evaluate_saved(writer: RunWriter, prepared: Prepared) -> Evaluation:
    settings = prepared.settings
    saved = load_model(Run(writer.path).model_path, prepared.encoder.device)
    encoder = Encoder(saved, settings.precision, settings.encode_batch_size, use_cache=False)
    return evaluate_encoder(encoder, prepared.data, "test", FULL_MEASURES, settings.corpus_text)


def _write_pairs(
    writer: RunWriter, data: RetrievalData, material: Material, method: Method[Any], result: TrainingResult
) -> dict[str, Any]:
    """Write a row a training pair; returns what injected noise amounted to, for ``run.json``."""
    training = material.training
    qrels = training.qrels
    columns: dict[str, Any] = {
        "query_id": data.queries.ids(qrels.query_rows[qrels.query_index]),
        "doc_id": data.corpus.ids(qrels.doc_rows),
        "grade": qrels.grades,
        "injected": training.injected,
        "times_drawn": result.times_drawn,
        "kept": method.kept,
    }
    if material.scores is not None:
        columns["similarity"] = material.similarity
        if material.scores.cbs is not None:
            columns["cbs"] = material.scores.cbs
    writer.write_pairs(columns)
    if training.count == 0:
        return {}
    share_of_draws = float(result.times_drawn[training.injected].sum() / result.times_drawn.sum())
    return {
        "noise": {
            "injected_pairs": training.count,
            "share_of_pairs": training.count / len(training.injected),
            "share_of_draws": share_of_draws,
        }
    }


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
