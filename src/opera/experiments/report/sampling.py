"""The report's charts of a run's sampling: the paper's Figure 1, heat maps, and the similarities with T."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.experiments.analysis import Group
from opera.runs.folder import Run
from opera.runs.sampling import BIN_EDGES, CODES, MAX_LOG_RATIO, SamplingRecord, quantised

BANDS = 40
"""Number of bands by similarity, with equally many pairs each, in Figure 1."""

SHOWN_QUERIES, SHOWN_DOCUMENTS, SHOWN_PAIRS = 40, 32, 240
"""Rows and columns of the heat map of queries and documents, and columns of the heat map of pairs."""

SCALE = {"codes": CODES, "farthest": MAX_LOG_RATIO}
"""What the page needs to decode the codes."""


@dataclass(frozen=True)
class RunSampling:
    """A run's recorded sampling probabilities, with what the charts need beside them.

    Attributes:
        run: the run.
        record: its recorded probabilities.
        pair_query: int64 ``[P]``, index of each recorded pair's query among the recorded queries.
        similarity: float32 ``[P]``, pretrained similarity of the recorded pairs; ``None`` if no run recorded it.
    """

    run: Run
    record: SamplingRecord
    pair_query: NDArray[np.int64]
    similarity: NDArray[np.float32] | None

    @cached_property
    def pair_ratio(self) -> NDArray[np.float64]:
        """P(q, d) divided by fine-tuning's: float64 ``[T, P]``."""
        return self.record.query()[:, self.pair_query] * self.record.document()


def run_samplings(groups: Sequence[Group]) -> dict[str, RunSampling]:
    """Read the sampling record of each group's first seed, by label; groups without a record are left out.

    All groups are on one data set. A run without similarities takes those of another run with the same pairs.
    """
    tables = {group.method: group.pair_tables[0] for group in groups}
    with_similarity = [table for table in tables.values() if "similarity" in table.column_names]
    samplings = {}
    for group in groups:
        run, table = group.runs[0], tables[group.method]
        record = run.sampling()
        if record is None or len(record.steps) == 0:
            continue
        candidates = [table, *with_similarity] if "similarity" in table.column_names else with_similarity
        source = next((other for other in candidates if _same_pairs(other, table)), None)
        similarity = None if source is None else source["similarity"].to_numpy()[record.pair_ids]
        samplings[group.method] = RunSampling(run, record, _pair_queries(table, record), similarity)
    return samplings


def sampling_charts(sampling: RunSampling) -> dict[str, Any]:
    """Collect everything the page draws of one run's sampling."""
    record = sampling.record
    return {
        "steps": record.steps.tolist(),
        "queries": len(record.query_ids),
        "pairs": len(record.pair_ids),
        "by_similarity": _by_similarity(sampling),
        "by_query": _by_query(sampling),
        "by_start": _by_start(sampling),
        "histogram": _histogram(sampling),
        "drawable": np.mean(sampling.record.query_codes > 0, axis=1).tolist(),
    }


def _by_similarity(sampling: RunSampling) -> dict[str, Any] | None:
    """Figure 1: how often the pairs of each similarity band are drawn, relative to fine-tuning."""
    if sampling.similarity is None:
        return None
    order = np.argsort(sampling.similarity, kind="stable")
    counts = np.bincount(sampling.pair_query)
    fair = 1 / (len(counts) * counts[sampling.pair_query])  # Equation 1, over the recorded queries
    drawn = sampling.pair_ratio * fair
    bands = np.array_split(order, min(BANDS, len(order)))
    ratio = [[float(row[band].sum() / fair[band].sum()) for band in bands] for row in drawn]
    ends = [float(sampling.similarity[band[0]]) for band in bands]
    return {"similarity": _rounded(ends, 3), "ratio": [_rounded(row, 3) for row in ratio]}


def _by_query(sampling: RunSampling) -> dict[str, Any]:
    """P(q, d) of some queries' documents at each recorded step; documents by similarity, else in the data's order."""
    record = sampling.record
    chosen = _evenly_spaced(len(record.query_ids), SHOWN_QUERIES)
    ratio = sampling.pair_ratio
    rows: list[NDArray[np.int64]] = []
    for query in chosen:
        own = np.flatnonzero(sampling.pair_query == query)
        if sampling.similarity is not None:
            own = own[np.argsort(-sampling.similarity[own], kind="stable")]
        rows.append(own[_evenly_spaced(len(own), SHOWN_DOCUMENTS)])
    width = max(len(row) for row in rows)
    codes = np.zeros((len(record.steps), len(rows), width), dtype=np.uint8)
    exists = np.zeros((len(rows), width), dtype=np.uint8)
    for number, row in enumerate(rows):
        codes[:, number, : len(row)] = quantised(ratio[:, row])
        exists[number, : len(row)] = 1
    ids = sampling.run.pairs()["query_id"].to_numpy(zero_copy_only=False)[record.pair_ids]
    names = [str(ids[row[0]]) for row in rows]
    return {"names": names, "width": width, "codes": _encode(codes), "exists": _encode(exists)}


def _by_start(sampling: RunSampling) -> dict[str, Any]:
    """P(q, d) of some pairs over training, sorted by its value at the start."""
    ratio = sampling.pair_ratio
    order = np.lexsort((np.arange(ratio.shape[1]), -ratio[0]))
    shown = order[_evenly_spaced(len(order), SHOWN_PAIRS)]
    return {"width": len(shown), "codes": _encode(quantised(ratio[:, shown]))}


def _histogram(sampling: RunSampling) -> dict[str, Any] | None:
    """The similarities that the method knows at each recorded step, and the thresholds in force."""
    counts = sampling.record.similarity
    if counts.shape[1] == 0:
        return None
    filled = np.flatnonzero(counts.any(axis=0))
    low, high = int(filled[0]), int(filled[-1]) + 1
    trace = sampling.run.trace()
    threshold = np.full(len(sampling.record.steps), np.nan)
    if "document_threshold" in trace.column_names:
        rows = np.clip(sampling.record.steps, 0, trace.num_rows - 1)
        threshold = trace["document_threshold"].to_numpy(zero_copy_only=False)[rows].astype(np.float64)
    pairs = sampling.run.pairs()
    kept = pairs["kept"].to_numpy(zero_copy_only=False)
    kept_from = None
    by_similarity = "similarity" in pairs.column_names and not {"cbs", "start_score"} & set(pairs.column_names)
    if by_similarity and not kept.all():
        kept_from = float(pairs["similarity"].to_numpy()[kept].min())
    return {
        "edges": _rounded(BIN_EDGES[low : high + 1].tolist(), 4),
        "counts": counts[:, low:high].tolist(),
        "threshold": [None if np.isnan(value) else round(float(value), 4) for value in threshold],
        "kept_from": kept_from,
    }


def _same_pairs(other: pa.Table, table: pa.Table) -> bool:
    return all(other[name].equals(table[name]) for name in ("query_id", "doc_id"))


def _pair_queries(table: pa.Table, record: SamplingRecord) -> NDArray[np.int64]:
    """Index of each recorded pair's query. Pairs are sorted by query, so a new id is the next query."""
    ids = table["query_id"].to_numpy(zero_copy_only=False)[record.pair_ids]
    return np.cumsum(np.concatenate([[False], ids[1:] != ids[:-1]]))


def _evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most ``most`` evenly spaced indices below ``count``."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _encode(codes: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")


def _rounded(values: Sequence[float], digits: int) -> list[float]:
    return [round(value, digits) for value in values]
