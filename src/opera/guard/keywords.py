"""The weight w of keyword search in hybrid search, chosen on dev by the guard's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opera.core.intervals import DIFFERENCE, mean_interval
from opera.data import Mixture
from opera.guard.rule import Anchors, QueryKind, choose_mixing_weight, cross_fitted
from opera.retrieval.evaluation import Evaluation
from opera.retrieval.hybrid import fusion_of
from opera.retrieval.measures import parse_measures, per_query
from opera.run_folder.record import KeywordsRecord

KEYWORD_WEIGHTS = tuple(n / 10 for n in range(11))
"""The values of w to try."""


def choose_keyword_weights(
    mixture: Mixture,
    model: Evaluation,
    words: Evaluation,
    kinds: Sequence[QueryKind],
    anchors: Anchors,
    measure: str,
    seed: int = 0,
) -> KeywordsRecord:
    """Choose w for each data set, and record why.

    Args:
        mixture: the dev split, and the documents that it ranks.
        model: the model's results on dev.
        words: the results of keyword search on dev.
        kinds: the kinds of queries that dev represents.
        anchors: a(s) of w.
        measure: the measure that decides.
        seed: of the halves of dev that choose w for each other.
    """
    parsed, weights = parse_measures(measure), dict[str, float]()
    alone, hybrid = model.per_query[measure], model.per_query[measure].copy()
    parts = rows_of_sets(mixture)
    for data_set in mixture.with_relevant("dev"):
        rows, qrels = parts[data_set.name], data_set.judged_qrels("dev")
        fusion = fusion_of(data_set, model, words)
        values = {
            weight: per_query(fusion.ranking(weight, parsed[0].depth), qrels, parsed)[measure]
            for weight in KEYWORD_WEIGHTS
        }
        kinds_of_set = [replace(kind, rows=kind.rows[rows]) for kind in kinds]
        weight = choose_mixing_weight(values, kinds_of_set, anchors)
        if weight > 0:
            hybrid[rows] = cross_fitted(values, kinds_of_set, anchors, seed)
        weights[data_set.name] = weight
    low, high = mean_interval(hybrid - alone, bounds=DIFFERENCE)
    return KeywordsRecord(
        weights=weights,
        measure=measure,
        queries=len(alone),
        bm25=words.measures[measure],
        final=float(alone.mean()),
        hybrid=float(hybrid.mean()),
        low=low,
        high=high,
    )


def rows_of_sets(mixture: Mixture) -> dict[str, NDArray[np.bool_]]:
    """Mark the dev queries of each data set, by its name."""
    sets = mixture.with_relevant("dev")
    counts = [data_set.judged_qrels("dev").n_queries for data_set in sets]
    set_of_query = np.repeat(np.arange(len(sets)), counts)
    return {data_set.name: set_of_query == number for number, data_set in enumerate(sets)}
