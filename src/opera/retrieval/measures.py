"""Rankings against qrels: trec_eval's measures through ir_measures, and the paper's own nDCG beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
from numpy.typing import NDArray

from opera.core.errors import SettingError, nearest
from opera.data.qrels import Qrels

RETRIEVED_IDEAL = "retrieved_ideal_nDCG"
RETRIEVED_DEPTH = 100
"""How many retrieved documents the paper's nDCG looks at (paper.md, row 8)."""

DEFAULT_MEASURES = ("nDCG@10", f"{RETRIEVED_IDEAL}@10", "R@20", "RR@10", "Success@10")
CUTOFFS = (1, 5, 10, 20, 50, 100)
FULL_MEASURES = tuple(
    f"{family}@{cutoff}" for family in ("nDCG", RETRIEVED_IDEAL, "R", "RR", "Success") for cutoff in CUTOFFS
)

_MEASURE = re.compile(r"(\w+)@([1-9]\d*)")


@dataclass(frozen=True)
class Ranking:
    """The best documents for each judged query, best first.

    Attributes:
        doc_rows: int32 ``[n, depth]``, corpus rows; -1 past the end of a small corpus.
        scores: float32 ``[n, depth]``, non-increasing along a row; -inf past the end.
    """

    doc_rows: NDArray[np.int32]
    scores: NDArray[np.float32]


def check_measures(names: Sequence[str]) -> int:
    """Return the depth a ranking needs for these measures.

    Raises:
        SettingError: for a name that is not FAMILY@CUTOFF with a family that OPERA reports.
    """
    depth = RETRIEVED_DEPTH
    families = ("nDCG", RETRIEVED_IDEAL, "R", "RR", "Success", "P", "AP")
    for name in names:
        match = _MEASURE.fullmatch(name)
        if not match or match[1] not in families:
            raise SettingError(
                f"unknown measure '{name}'{nearest(name, [f'{f}@10' for f in families])} "
                f"(known: {', '.join(families)}, each with a cutoff such as @10)"
            )
        depth = max(depth, int(match[2]))
    return depth


def per_query(
    ranking: Ranking, qrels: Qrels, names: Sequence[str] = DEFAULT_MEASURES
) -> dict[str, NDArray[np.float64]]:
    """Compute measures for each judged query.

    ``nDCG`` is trec_eval's (graded gains, the ideal over all judged documents); ``R`` is hits over the number of
    relevant documents, not capped at the cutoff; ``retrieved_ideal_nDCG`` is :func:`retrieved_ideal_ndcg`.

    Args:
        ranking: rows parallel to ``qrels.query_rows``.
        qrels: every query must have a relevant document.
        names: measures such as ``nDCG@10``.

    Returns:
        float64 ``[n]`` by measure name, in the order of ``names``.
    """
    check_measures(names)
    values: dict[str, NDArray[np.float64]] = {}
    asked = {name: ir_measures.parse_measure(name) for name in names if not name.startswith(RETRIEVED_IDEAL)}
    if asked:
        results = {measure: np.zeros(qrels.n_queries) for measure in asked.values()}
        for metric in ir_measures.iter_calc(list(asked.values()), _qrels(qrels), _run(ranking)):
            results[metric.measure][int(metric.query_id)] = metric.value
        values = {name: results[measure] for name, measure in asked.items()}
    gains = _binary_gains(ranking, qrels)
    for name in names:
        if name.startswith(RETRIEVED_IDEAL):
            values[name] = retrieved_ideal_ndcg(gains, int(name.split("@")[1]))
    return {name: values[name] for name in names}


def retrieved_ideal_ndcg(gains: NDArray[np.float64], cutoff: int) -> NDArray[np.float64]:
    """The paper's NDCG@k: the ideal ranking holds only relevant documents *among the 100 retrieved*.

    It rewards lost recall and must never stand under the name nDCG (paper.md, row 8). Zero where nothing relevant was
    retrieved.

    Args:
        gains: float64 ``[n, depth]``, 1 where the document at that rank is relevant, else 0.
        cutoff: k.

    Returns:
        float64 ``[n]``.
    """
    considered = gains[:, :RETRIEVED_DEPTH]
    discounts = 1 / np.log2(np.arange(2, considered.shape[1] + 2))
    found = considered[:, :cutoff] @ discounts[:cutoff]
    ideal = -np.sort(-considered, axis=1)[:, :cutoff] @ discounts[:cutoff]
    return np.divide(found, ideal, out=np.zeros(len(found)), where=ideal > 0)


def means(values: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Average each measure over the queries."""
    return {name: float(per_query_values.mean()) for name, per_query_values in values.items()}


def _qrels(qrels: Qrels) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {str(query): {} for query in range(qrels.n_queries)}
    for query, doc, grade in zip(qrels.query_of, qrels.doc_rows, qrels.grades, strict=True):
        grades[str(query)][str(doc)] = int(grade)
    return grades


def _run(ranking: Ranking) -> dict[str, dict[str, float]]:
    """Give ir_measures ranks for scores: its providers break ties in different ways, and the ranking has none left."""
    depth = ranking.doc_rows.shape[1]
    return {
        str(query): {str(doc): float(depth - rank) for rank, doc in enumerate(docs) if doc >= 0}
        for query, docs in enumerate(ranking.doc_rows.tolist())
    }


def _binary_gains(ranking: Ranking, qrels: Qrels) -> NDArray[np.float64]:
    gains = np.zeros(ranking.doc_rows.shape)
    for query in range(qrels.n_queries):
        part = slice(qrels.offsets[query], qrels.offsets[query + 1])
        relevant = qrels.doc_rows[part][qrels.grades[part] > 0]
        gains[query] = np.isin(ranking.doc_rows[query], relevant)
    return gains
