"""Measure every share on the dev split, and decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.config.training import TrainSettings
from opera.data import RetrievalData
from opera.data.combined import each_set
from opera.data.novelty import asks_about_known, seen_share
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.measures import parse_measures, per_query, ranking_depth
from opera.retrieval.models import is_static
from opera.retrieval.search import exact_search
from opera.runs.record import GuardRecord, SecondTraining, ShareMean
from opera.training.guard.dev_corpus import DevCorpus, reduced_corpus
from opera.training.guard.rule import Kind, choose_share, cross_fitted, mean_variance
from opera.training.guard.verdict import guarded_measure, verdict_of
from opera.training.guard.weights import Weights, mix
from opera.training_set.prepare import Prepared
from opera.training_set.prepare_model import encoder_of

PerQuery = NDArray[np.float64]


def dev_corpus(encoder: Encoder, data: RetrievalData, settings: TrainSettings) -> DevCorpus:
    """The documents to rank on dev, ``guard_documents`` of them for a transformer with more.

    Args:
        encoder: the untrained model.
        data: the data set.
        settings: the run's settings.
    """
    limit, seed = settings.guard_documents, settings.seed
    if is_static(encoder.model) or settings.adapter_kind is not None or len(data.corpus) <= limit:
        return DevCorpus(data)
    return reduced_corpus(encoder, data, limit, settings.corpus_text, seed)


def untrained_values(
    encoder: Encoder, data: RetrievalData, dev: DevCorpus, settings: TrainSettings
) -> PerQuery:
    """The deciding measure of each dev query before training: float64 ``[n]``; reads the corpus from the cache."""
    measure, corpus_text = settings.metric_for_best_model, settings.corpus_text
    if dev.rows is None or data.sets:
        return dev_values(encoder, dev, settings)
    qrels = dev.data.judged_qrels("dev")
    queries = encoder.encode_queries(data, qrels.query_rows)
    documents = np.asarray(encoder.encode_corpus(data, corpus_text)[dev.rows])
    parsed = parse_measures([measure])
    depth = ranking_depth(parsed)
    ranking = exact_search(queries, documents, dev.data.corpus, depth, encoder.device)
    return per_query(ranking, qrels, parsed)[measure]


def dev_values(encoder: Encoder, dev: DevCorpus, settings: TrainSettings) -> PerQuery:
    """The deciding measure of each dev query: float64 ``[n]``."""
    measure = settings.metric_for_best_model
    return evaluate_encoder(encoder, dev.data, "dev", [measure], settings.corpus_text).per_query[
        measure
    ]


def measure_shares(
    model: SentenceTransformer,
    dev: DevCorpus,
    settings: TrainSettings,
    untrained: Weights,
    at_zero: PerQuery,
    shares: Sequence[float],
) -> dict[float, PerQuery]:
    """Measure the mixtures of a fine-tuned model with its untrained weights on dev.

    Args:
        model: holds the fine-tuned weights, and does so again in the end.
        dev: the dev split and its documents.
        settings: the run's settings.
        untrained: the weights before training.
        at_zero: the values of λ = 0, which are known.
        shares: what to measure; the first is 0.

    Returns:
        The deciding measure of each dev query, float64 ``[n]``, by share.
    """
    fine_tuned = Weights.of(model)
    per_query = {0.0: at_zero}
    for share in shares[1:]:
        mix(untrained, fine_tuned, share).put_into(model)
        per_query[share] = model_values(model, dev, settings)
    fine_tuned.put_into(model)
    return per_query


def model_values(model: SentenceTransformer, dev: DevCorpus, settings: TrainSettings) -> PerQuery:
    """The deciding measure of each dev query, float64 ``[n]``, of a model as it is now."""
    return dev_values(encoder_of(model, settings), dev, settings)


def kinds_of(prepared: Prepared) -> dict[str, Kind]:
    """What the dev queries stand for, by the setting ``future``: those of one kind, or of two.

    Test is read for ``like-test`` alone, and of it one number.
    """
    data, dev = prepared.data, prepared.data.judged_qrels("dev")
    every = np.ones(dev.n_queries, dtype=bool)
    match prepared.future:
        case "same-documents":
            return {"same documents": Kind(every, 1.0)}
        case "new-documents":
            return {"new documents": Kind(every, 0.0)}
        case "both":
            known = asks_about_known(dev, data.training_split(), len(data.corpus))
            return {"same documents": Kind(known, 1.0), "new documents": Kind(~known, 0.0)}
        case _:
            return {"like test": Kind(every, seen_share(prepared.whole, "test"))}


def decide(
    per_query: Mapping[float, PerQuery], prepared: Prepared, documents: int | None
) -> GuardRecord:
    """Choose λ, and record why.

    Args:
        per_query: what :func:`measure_shares` returned.
        prepared: the run.
        documents: how many documents the dev queries were ranked among; ``None`` for all.
    """
    settings, kinds = prepared.settings, kinds_of(prepared)
    share = choose_share(per_query, list(kinds.values()), prepared.is_static)
    honest = cross_fitted(per_query, list(kinds.values()), prepared.is_static, settings.seed)
    dev = guarded_measure(per_query[0.0], per_query[1.0], honest if share > 0 else per_query[0.0])
    parts = (
        {name: kind.rows for name, kind in kinds.items()}
        if len(kinds) > 1
        else _rows_of_sets(prepared.data)
    )
    return GuardRecord(
        share=share,
        verdict=verdict_of(share, dev, len(honest)),
        measure=settings.metric_for_best_model,
        future=str(prepared.future),
        future_given=settings.future is not None,
        dev_given=prepared.data is prepared.whole,
        dev_queries=len(honest),
        dev_documents=documents,
        dev_seen=seen_share(prepared.data, "dev"),
        test_seen=kinds["like test"].seen if "like test" in kinds else None,
        curve=[
            ShareMean(share=tried, mean=float(values.mean())) for tried, values in per_query.items()
        ],
        dev=dev,
        refit=prepared.refits and share > 0,
        dev_parts={
            name: {
                "queries": int(rows.sum()),
                "before": float(per_query[0.0][rows].mean()),
                "fine_tuned": float(per_query[1.0][rows].mean()),
                "after": float(per_query[share][rows].mean()),
            }
            for name, rows in parts.items()
            if rows.any()
        }
        or None,
    )


def compare_trainings(trial: PerQuery, second: PerQuery) -> SecondTraining:
    """Say whether the second training may be handed over, by each dev query's measure at the same λ, float64 ``[n]``.

    It has seen the dev queries, so its values are too high, and only a training that went wrong is found: where even
    they are lower than the trial's by more than the standard error of the difference, it is not.
    """
    difference = second - trial
    error = mean_variance(difference) ** 0.5 if len(difference) > 1 else 0.0
    return SecondTraining(
        trial=float(trial.mean()),
        second=float(second.mean()),
        error=float(error),
        kept=bool(difference.mean() >= -error),
    )


def _rows_of_sets(data: RetrievalData) -> dict[str, NDArray[np.bool_]]:
    """Which dev queries are of each of several data sets; empty for one."""
    sets = each_set(data, "dev") if data.sets else []
    counts = {own.name: own.judged_qrels("dev").n_queries for own in sets}
    of_set = np.repeat(np.arange(len(counts)), list(counts.values()))
    return {name: of_set == number for number, name in enumerate(counts)}
