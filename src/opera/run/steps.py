"""The steps of a run behind :func:`opera.adapt`: prepare, train once or twice, choose, write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from accelerate import PartialState
from transformers import TrainerCallback

from opera.core.cache import sole_use
from opera.core.errors import OperaError, StorageError, TrainingError
from opera.core.figures import PRIMARY
from opera.core.files import remove
from opera.core.processes import everywhere
from opera.core.terminal import counted, log
from opera.data import Mixture
from opera.data.copies import text_keys
from opera.guard.choice import Guard, Weights, log_mean, mixed_weights
from opera.guard.dev_corpus import corpus_during_training, most_documents
from opera.identity import refuse_other_run
from opera.methods import Method
from opera.retrieval.device import join_processes, refuse_differences
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import (
    Evaluation,
    KeywordSearch,
    evaluate_encoder,
    evaluate_hybrid,
    query_difficulty,
    relevant_columns,
)
from opera.retrieval.kinds.dense import reads_vectors
from opera.retrieval.measures import FULL_MEASURES
from opera.retrieval.models import load_model
from opera.retrieval.search import index_facts
from opera.run.check import Checked
from opera.run.costs import time_run
from opera.run.session import PHASES, Session, announce, new_record
from opera.run.write import missing_candidates, write_results
from opera.run_folder.folder import (
    KEYWORDS_FOLDER,
    LOG_FILE,
    MODEL_FOLDER,
    TRIAL_FOLDER,
    Run,
    RunWriter,
)
from opera.run_folder.housekeeping import (
    check_free,
    drop_checkpoints,
    logged_to,
    prepare_folder,
    replace_run,
)
from opera.run_folder.record import GuardRecord, NegativesRecord, RunRecord
from opera.training.build import TrainingSet, build_training_set
from opera.training.callbacks import checked_callbacks, logging_services
from opera.training.prepare import Prepared, encoder_of, load_and_check
from opera.training.sampler import Sampler
from opera.training.trainer import Fit, make_sampler, train, training_arguments


def open_session(
    checked: Checked, callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None
) -> Session:
    """Load the model, and check it with the data, the settings and the resumed run. This writes
    nothing.
    """
    services = logging_services(checked.recipe.train.of_trainer("report_to"))
    trainer_callbacks = [*services, *checked_callbacks(callbacks)]
    processes = join_processes()
    prepared = load_and_check(checked.data, checked.model, checked.recipe, processes.num_processes)
    run = RunWriter(checked.target, processes.is_main_process)
    training_arguments(prepared.settings, prepared.model.trained, run.checkpoints)  # may raise
    if checked.resume:
        prepared, record = _resumed(checked, prepared)
    else:
        record = new_record(prepared, checked.folder)
    processes.wait_for_everyone()  # until every process has read the folder
    return Session(prepared, run, checked.started, checked.resume, trainer_callbacks, record)


def _resumed(checked: Checked, prepared: Prepared) -> tuple[Prepared, RunRecord]:
    """Return the run with the automatic values of its earlier start, and its record."""
    earlier = Run.open(checked.target).record
    advice = "use the same settings, or --overwrite to start again"
    refuse_other_run(f"--resume {checked.folder}", earlier.identity, prepared.identity, advice)
    prepared = prepared.resolved_as(earlier.settings)
    if earlier.status == "finished":
        log.info("%s is already finished: nothing to do", checked.folder)
        return prepared, earlier
    values = {name: getattr(earlier, name) for name in ("started", "guard", "keywords", "seconds")}
    return prepared, new_record(prepared, checked.folder).model_copy(update=values)


@contextmanager
def in_progress(session: Session, checked: Checked) -> Iterator[None]:
    """Hold the run folder during the block, and record in ``run.json`` how the block ends. After
    the block, the run replaces the folder's run, if it was trained next to that run.
    """
    folder, target, writes = checked.folder, checked.target, session.run.writes
    with ExitStack() as stack:
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(sole_use(folder, "trains into it"))
            # another process may have used the folder in the meantime
            check_free(folder, checked.resume, checked.overwrite)
            prepare_folder(folder, target, checked.resume)
        PartialState().wait_for_everyone()
        try:
            if writes:
                stack.enter_context(logged_to(target / LOG_FILE))
            if target != folder:
                log.info("note: %s stays as it is until %s is finished", folder, target)
            session.add_seconds("load", time.perf_counter() - checked.started)
            session.update()
            session.run.write_skipped([data_set.skipped for data_set in checked.data.data_sets])
            yield
        except (Exception, KeyboardInterrupt) as error:
            fields = {}
            if isinstance(error, Exception):
                log.debug("failed: %s", error)
                fields = {"status": "failed"}
            with suppress(OSError, OperaError):  # also records the seconds of this session
                session.update(**fields)
            if isinstance(error, StorageError):
                raise StorageError(f"{error}; --resume continues the run") from error
            raise
        if target != folder:
            everywhere(lambda: replace_run(folder) if writes else None)


def first_training(session: Session) -> Fit | None:
    """Train without the dev queries; ``None`` if a resumed run has already chosen the second
    training.
    """
    prepared, run, record = session.prepared, session.run, session.record.guard
    if record is not None and record.refit and record.second is not None:
        return None
    writer, phase = (run.nested(TRIAL_FOLDER), TRIAL_FOLDER) if prepared.refits else (run, "train")
    description = PHASES[TRIAL_FOLDER if prepared.data.dev_drawn else "train"]
    return fit(session, prepared.data.with_splits, writer, phase, description)


def choose_training(session: Session, guard: Guard, first: Fit | None) -> tuple[Fit, GuardRecord]:
    """Choose λ, and train a second time if dev was split off train and the run does so.

    The first training excludes the dev queries and writes to ``trial/``; λ is chosen on dev. The
    second trains on all pairs with this λ, and is compared with the first on dev. The choice and
    the comparison are saved at once, so that a resumed run continues from there.

    Args:
        session: the run.
        guard: the guard, with the base weights.
        first: the first training; the model has its weights.

    Returns:
        The training of the final model, whose weights the model then has, and the guard's record.
    """
    model, run = session.prepared.model.trained, session.run
    fine_tuned, record = Weights.of(model), session.record.guard
    if record is None:
        record = guard.choose(fine_tuned)
        session.update(guard=record, keywords=guard.choose_keyword_weights(record.mixing_weight))
    if record.refit:
        guard.base.put_into(model)
        title = "second training, as planned: on all pairs, with those of dev"
        second = fit(session, session.prepared.data.with_dev_restored, run, "train", title, first)
        if record.second is None:
            comparison = guard.compare(fine_tuned, Weights.of(model), record.mixing_weight)
            record = record.model_copy(update={"second": comparison, "refit": comparison.kept})
            session.update(guard=record)
        if record.refit:
            if run.writes:
                drop_checkpoints(run.path / TRIAL_FOLDER)
            return second, record
        log.info("the second training is worse on dev, so the final model comes from the first")
        fine_tuned.put_into(model)
        if run.writes:
            remove(run.checkpoints)
    assert first is not None, "a run skips the first training only if it keeps the second"
    if session.prepared.refits:
        run.adopt(TRIAL_FOLDER)
    session.update(**facts_of(first.training_set, first.sampler))
    return first, record


def train_and_write(session: Session) -> None:
    """Measure the base model, train, choose λ, and write the final model and all results."""
    prepared = session.prepared
    announce(prepared)
    if not (prepared.is_static or prepared.processes > 1 or session.resume):
        with session.phase("time"), suppress(TrainingError):
            costs = time_run(prepared, session.started)
            session.planned = {**costs.phases, "load": 0.0}
            log.info("%s", costs.sentence)
    if prepared.model.base is not None:
        with session.phase("encode"):
            prepared.encode()
    data, settings = prepared.data.with_splits, prepared.settings
    keywords = None
    if settings.bm25 is not False:
        with session.phase("keywords", "indexing the words of the documents"):
            keywords = KeywordSearch.of(data, settings.corpus_text, settings.bm25)
    guard = Guard(prepared, session.phase, keywords) if settings.guard else None
    base, columns = _measure_base(session)
    if settings.evaluates_on_dev:
        session.dev = corpus_during_training(
            prepared.model.base_as_saved,
            data,
            keywords,
            settings,
            most_documents(prepared.is_static, prepared.model.base_as_saved, data),
        )
    training, choice = first_training(session), None
    if guard is not None:
        training, choice = choose_training(session, guard, training)
    assert training is not None
    mixing_weight = 1.0 if choice is None else choice.mixing_weight
    results, encoder = _save_and_measure(session, base, guard, mixing_weight)
    with session.phase("review"):
        missing = missing_candidates(encoder, training.training_set, prepared.settings)
    if session.run.writes:
        if keywords is not None:
            results |= _measure_keywords(session, keywords, results["final"])
        write_results(session, training, choice, results, columns, missing)
        if not settings.keeps_checkpoints:
            drop_checkpoints(session.run.path)
    PartialState().wait_for_everyone()


def _measure_base(session: Session) -> tuple[Evaluation, dict[str, Any]]:
    """Measure the base model on test; also return columns that describe the test queries."""
    prepared, data = session.prepared, session.prepared.data.with_splits
    with session.phase("evaluate_before"):
        base = _on_test(prepared.model.base_as_saved, prepared)
        base = _with_index(prepared.model.base_as_saved, prepared, base)
        columns = {
            "query_id": base.query_ids,
            **relevant_columns(data.joined, "test"),
            "similarity": query_difficulty(
                prepared.model.base_as_saved, data, "test", prepared.settings.corpus_text
            ),
        }
    log_mean("test", PRIMARY, base.per_query[PRIMARY])
    return base, columns


def _measure_keywords(
    session: Session, keywords: KeywordSearch, final: Evaluation
) -> dict[str, Evaluation]:
    """Measure keyword search on test, alone and with the final model, and save its indexes."""
    data, record = session.prepared.data.with_splits, session.record.keywords
    names = list(final.per_query)
    with session.phase("keywords", "measuring keyword search on test"):
        results = {"bm25": keywords.evaluate(data, "test", names)}
        if record is not None:
            both = evaluate_hybrid(data, "test", final, results["bm25"], record.weights, names)
            results["hybrid"] = both
        session.run.write_model(keywords.save, KEYWORDS_FOLDER)
    return results


def _save_and_measure(
    session: Session, base: Evaluation, guard: Guard | None, mixing_weight: float
) -> tuple[dict[str, Evaluation], Encoder]:
    """Mix the weights by the mixing weight, save the final model, and measure it.

    The fine-tuned model is not measured if it is not the final model, and if encoding the corpus
    once more takes long.

    Args:
        session: the run, whose model has the fine-tuned weights.
        base: the base model on test.
        guard: holds the base weights; ``None`` without a guard.
        mixing_weight: λ.

    Returns:
        The results on test by model, with the keys of ``measures.json``, and the final model's
        encoder. OPERA measures the final model as the user will load it.
    """
    prepared, model, results = session.prepared, session.prepared.model.trained, {"base": base}
    embeddings = None if guard is None else guard.embeddings
    if guard is not None and mixing_weight < 1:
        if mixing_weight == 0 or guard.encoding_is_cheap:
            with session.phase("evaluate_fine_tuned"):
                encoder = encoder_of(model, prepared.settings, embeddings=embeddings)
                results["fine_tuned"] = _on_test(encoder, prepared)
        mixed_weights(guard.base, Weights.of(model), mixing_weight).put_into(model)
    # if the main process fails, all processes fail; afterwards, all can read the model
    save = partial(prepared.save_model, keeps_base=mixing_weight == 0)
    everywhere(lambda: session.run.write_model(save, MODEL_FOLDER))
    final, final_encoder = base, prepared.model.base_as_saved
    if mixing_weight > 0:
        with session.phase("evaluate_after"):
            if not reads_vectors(model):  # an adapter is measured on the vectors that it trained on
                model = load_model(session.run.path / MODEL_FOLDER, prepared.model.encoder.device)
            # searches with the final model will need its embeddings again
            keeps = embeddings is None and not prepared.is_static
            final_encoder = encoder_of(
                model, prepared.settings, embeddings=embeddings, use_cache=keeps
            )
            final = _with_index(final_encoder, prepared, _on_test(final_encoder, prepared))
    if mixing_weight == 1:
        results["fine_tuned"] = final
    return {**results, "final": final}, final_encoder


def _with_index(encoder: Encoder, prepared: Prepared, result: Evaluation) -> Evaluation:
    """Add the size of the index to an evaluation on test."""
    data, corpus_text = prepared.data.with_splits, prepared.settings.corpus_text
    return replace(result, index=index_facts(encoder, data, "test", corpus_text))


def _on_test(encoder: Encoder, prepared: Prepared) -> Evaluation:
    """Evaluate on test with all recorded measures and the guard's measure."""
    settings, data = prepared.settings, prepared.data.with_splits
    guarded = [settings.metric_for_best_model] if settings.guard else []
    names = dict.fromkeys([*FULL_MEASURES, *guarded])
    return evaluate_encoder(
        encoder, data, "test", list(names), settings.corpus_text, settings.matryoshka or ()
    )


def fit(
    session: Session,
    data: Mixture,
    run: RunWriter,
    phase: str,
    description: str,
    first: Fit | None = None,
) -> Fit:
    """Train the session's model, which must hold its base weights.

    Args:
        session: the run.
        data: the data sets; their train splits are used.
        run: writes the trace and the checkpoints.
        phase: name of the training in ``seconds``.
        description: of the training in the log.
        first: an earlier training of the run, whose first visits this training copies.
    """
    prepared = session.prepared
    with session.phase("score_and_mine"):
        training_set = build_training_set(prepared, data)
        refuse_differences("training pairs, scores or negatives", training_set.shared_arrays)
        sampler = make_sampler(training_set, prepared.recipe)
    queries = np.logical_or.reduceat(sampler.kept, training_set.pairs.query_offsets[:-1])
    log.info(
        "training on %s of %s (method: %s)",
        counted(int(sampler.kept.sum()), "pair"),
        counted(int(queries.sum()), "query"),
        prepared.recipe.method,
    )
    session.update(**facts_of(training_set, sampler))
    with session.phase(phase, description):
        if first is not None:
            keys = text_keys(training_set.data, training_set.train)
            first_keys = text_keys(first.training_set.data, first.training_set.train)
            sampler.visits.take_over(keys, first.visits, first_keys)
        model, settings = prepared.model.trained, prepared.settings
        return train(
            model,
            training_set,
            sampler,
            settings,
            run,
            session.resume,
            session.callbacks,
            session.dev,
        )


def facts_of(training_set: TrainingSet, sampler: Sampler) -> dict[str, Any]:
    """Return the entries of ``run.json`` about the method and the training set."""
    methods = [data_set.method for data_set in sampler.sets]
    negatives, lists = training_set.negatives, training_set.negatives.lists
    pools = [scores.smallest_pool for scores in training_set.scores]
    return {
        "method": summary_of(methods),
        "negatives": NegativesRecord(
            kind=negatives.kind,
            queries_without=None if lists is None else lists.queries_without,
            listed=None if lists is None else len(lists.doc_rows),
        ),
        "smallest_cbs_pool": min((pool for pool in pools if pool is not None), default=None),
    }


def summary_of(methods: Sequence[Method[Any]]) -> dict[str, Any]:
    """Return the facts about a method; of several sets, the sums of counts and lists of others."""
    summaries = [method.summary() for method in methods]
    if len(summaries) == 1:
        return summaries[0]
    facts = {name: [summary[name] for summary in summaries] for name in summaries[0]}
    return {
        name: sum(values) if all(isinstance(value, Integral) for value in values) else values
        for name, values in facts.items()
    }
