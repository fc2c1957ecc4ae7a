"""Measure every share on the dev split, and decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from opera.config.training import TrainSettings
from opera.data import RetrievalData
from opera.retrieval.encoder import Encoder
from opera.retrieval.evaluation import evaluate_encoder
from opera.retrieval.measures import check_measures
from opera.retrieval.measures import per_query as measure_per_query
from opera.retrieval.models import is_static
from opera.retrieval.nearest import exact_search
from opera.runs.record import GuardRecord, ShareMean
from opera.training.guard.dev_corpus import DevCorpus, reduced_corpus
from opera.training.guard.rule import choose_share
from opera.training.guard.verdict import guarded_measure, verdict_of
from opera.training.guard.weights import Weights, mix

PerQuery = NDArray[np.float64]


def dev_corpus(encoder: Encoder, data: RetrievalData, settings: TrainSettings) -> DevCorpus:
    """The documents to rank on dev, ``guard_documents`` of them for a transformer with more.

    Args:
        encoder: the untrained model.
        data: the data set.
        settings: the run's settings.
    """
    limit, seed = settings.guard.guard_documents, settings.optimisation.seed
    if is_static(encoder.model) or settings.adapter.kind is not None or len(data.corpus) <= limit:
        return DevCorpus(data)
    return reduced_corpus(encoder, data, limit, settings.encoding.corpus_text, seed)


def untrained_values(encoder: Encoder, data: RetrievalData, dev: DevCorpus, settings: TrainSettings) -> PerQuery:
    """The deciding measure of each dev query before training: float64 ``[n]``; reads the corpus from the cache."""
    measure, corpus_text = settings.evaluation.metric_for_best_model, settings.encoding.corpus_text
    if dev.rows is None or data.parts:
        return dev_values(encoder, dev, settings)
    qrels = dev.data.judged_qrels("dev")
    queries = encoder.encode_queries(data, qrels.query_rows)
    documents = np.asarray(encoder.encode_corpus(data, corpus_text)[dev.rows])
    ranking = exact_search(queries, documents, dev.data.corpus, check_measures([measure]), encoder.device)
    return measure_per_query(ranking, qrels, [measure])[measure]


def dev_values(encoder: Encoder, dev: DevCorpus, settings: TrainSettings) -> PerQuery:
    """The deciding measure of each dev query: float64 ``[n]``."""
    measure = settings.evaluation.metric_for_best_model
    return evaluate_encoder(encoder, dev.data, "dev", [measure], settings.encoding.corpus_text).per_query[measure]


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
    fine_tuned, encoding = Weights.of(model), settings.encoding
    per_query = {0.0: at_zero}
    for share in shares[1:]:
        mix(untrained, fine_tuned, share).put_into(model)
        encoder = Encoder(
            model, encoding.precision, encoding.encode_batch_size, use_cache=False, search_memory=encoding.search_bytes
        )
        per_query[share] = dev_values(encoder, dev, settings)
    fine_tuned.put_into(model)
    return per_query


def decide(
    per_query: Mapping[float, PerQuery],
    settings: TrainSettings,
    *,
    dev_split: str,
    seen: Mapping[str, float],
    static: bool,
    refit: bool,
    documents: int | None,
    sets: Mapping[str, int] | None = None,
) -> GuardRecord:
    """Choose λ, and record why.

    Args:
        per_query: what :func:`measure_shares` returned.
        settings: the run's settings.
        dev_split: how the dev split came about.
        seen: by split, ``dev`` and ``test``: the share of its relevant pairs whose document train names.
        static: whether the model is a static embedding table, or an adapter.
        refit: whether a share above 0 is followed by another training.
        documents: how many documents the dev queries were ranked among; ``None`` for all.
        sets: of several data sets, how many dev queries each has, in their order.
    """
    share = choose_share(per_query, seen["test"], static)
    dev = guarded_measure(per_query[0.0], per_query[1.0], per_query[share], settings.optimisation.seed, "dev")
    return GuardRecord(
        share=share,
        verdict=verdict_of(share, dev, len(per_query[share])),
        measure=settings.evaluation.metric_for_best_model,
        dev_split=dev_split,
        dev_queries=len(per_query[share]),
        dev_documents=documents,
        dev_seen=seen["dev"],
        test_seen=seen["test"],
        curve=[ShareMean(share=tried, mean=float(values.mean())) for tried, values in per_query.items()],
        dev=dev,
        refit=refit and share > 0,
        dev_sets=None if sets is None else _by_set(per_query, share, sets),
    )


def _by_set(per_query: Mapping[float, PerQuery], share: float, sets: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Average the values before, fine-tuned and after over the dev queries of each set."""
    ends = np.cumsum(list(sets.values()))
    return {
        name: {
            when: float(per_query[at][end - count : end].mean())
            for when, at in (("before", 0.0), ("fine_tuned", 1.0), ("after", share))
        }
        for (name, count), end in zip(sets.items(), ends.tolist(), strict=True)
    }
