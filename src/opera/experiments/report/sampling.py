"""What the report shows of a run's sampling: the paper's Figure 1, its heat maps, and the similarities with T."""

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
from opera.runs.sampling import BIN_EDGES, CODES, FARTHEST, SamplingRecord, quantised

BANDS = 40
"""Bands of equally many pairs, by similarity, in the picture of Figure 1."""

SHOWN_QUERIES, SHOWN_DOCUMENTS, SHOWN_PAIRS = 40, 32, 240
"""Rows and columns of the map of queries and documents, and columns of the map of pairs."""


@dataclass(frozen=True)
class Sampled:
    """A run's record together with what the pictures need beside it.

    Attributes:
        run: the run.
        record: its recorded probabilities.
        query_of: int32 ``[P]``, for each recorded pair the place of its query among the recorded ones.
        similarity: float32 ``[P]``, pretrained similarity of the recorded pairs; ``None`` where no run knows it.
    """

    run: Run
    record: SamplingRecord
    query_of: NDArray[np.int64]
    similarity: NDArray[np.float32] | None

    @cached_property
    def pair_ratio(self) -> NDArray[np.float64]:
        """P(q, d) over fine-tuning's: float64 ``[T, P]``."""
        return self.record.query()[:, self.query_of] * self.record.document()


def sampled_runs(groups: Sequence[Group]) -> dict[str, Sampled]:
    """Take the first seed's run of each group that has a record, by label; the groups are of one data set.

    Where a run keeps no similarities, those of another run with the same pairs serve.
    """
    tables = {group.method: group.pair_tables[0] for group in groups}
    known = [table for table in tables.values() if "similarity" in table.column_names]
    found = {}
    for group in groups:
        run, table = group.runs[0], tables[group.method]
        record = run.sampling()
        if record is None or len(record.steps) == 0:
            continue
        own = next(
            (other for other in [table, *known] if "similarity" in other.column_names and _same(other, table)), None
        )
        similarity = None if own is None else own["similarity"].to_numpy()[record.pair_ids]
        found[group.method] = Sampled(run, record, _query_places(table, record), similarity)
    return found


def sampling_pictures(sampled: Sampled) -> dict[str, Any]:
    """Everything the page draws of one run's sampling."""
    record = sampled.record
    return {
        "steps": record.steps.tolist(),
        "queries": len(record.query_ids),
        "pairs": len(record.pair_ids),
        "by_similarity": _by_similarity(sampled),
        "by_query": _by_query(sampled),
        "by_start": _by_start(sampled),
        "histogram": _histogram(sampled),
        "drawable": np.mean(sampled.record.query_codes > 0, axis=1).tolist(),
    }


def _by_similarity(sampled: Sampled) -> dict[str, Any] | None:
    """Figure 1: how many times as often as by fine-tuning the pairs of each band of similarity are drawn."""
    if sampled.similarity is None:
        return None
    order = np.argsort(sampled.similarity, kind="stable")
    counts = np.bincount(sampled.query_of)
    fair = 1 / (len(counts) * counts[sampled.query_of])  # Equation 1, over the recorded queries
    drawn = sampled.pair_ratio * fair
    bands = np.array_split(order, min(BANDS, len(order)))
    ratio = [[float(row[band].sum() / fair[band].sum()) for band in bands] for row in drawn]
    ends = [float(sampled.similarity[band[0]]) for band in bands]
    return {"similarity": _rounded(ends, 3), "ratio": [_rounded(row, 3) for row in ratio]}


def _by_query(sampled: Sampled) -> dict[str, Any]:
    """P(q, d) of some queries' documents at each moment; a query's documents by similarity, else as they stand."""
    record = sampled.record
    chosen = _spread_out(len(record.query_ids), SHOWN_QUERIES)
    ratio = sampled.pair_ratio
    rows: list[NDArray[np.int64]] = []
    for query in chosen:
        own = np.flatnonzero(sampled.query_of == query)
        if sampled.similarity is not None:
            own = own[np.argsort(-sampled.similarity[own], kind="stable")]
        rows.append(own[_spread_out(len(own), SHOWN_DOCUMENTS)])
    width = max(len(row) for row in rows)
    codes = np.zeros((len(record.steps), len(rows), width), dtype=np.uint8)
    there = np.zeros((len(rows), width), dtype=np.uint8)
    for place, row in enumerate(rows):
        codes[:, place, : len(row)] = quantised(ratio[:, row])
        there[place, : len(row)] = 1
    ids = sampled.run.pairs()["query_id"].to_numpy(zero_copy_only=False)[record.pair_ids]
    names = [str(ids[row[0]]) for row in rows]
    return {"names": names, "width": width, "codes": _packed(codes), "there": _packed(there)}


def _by_start(sampled: Sampled) -> dict[str, Any]:
    """P(q, d) of some pairs over training, sorted by what it was at the start."""
    ratio = sampled.pair_ratio
    order = np.lexsort((np.arange(ratio.shape[1]), -ratio[0]))
    shown = order[_spread_out(len(order), SHOWN_PAIRS)]
    return {"width": len(shown), "codes": _packed(quantised(ratio[:, shown]))}


def _histogram(sampled: Sampled) -> dict[str, Any] | None:
    """The similarities as the method knows them at each moment, and the thresholds in force."""
    counts = sampled.record.similarity
    if counts.shape[1] == 0:
        return None
    used = np.flatnonzero(counts.any(axis=0))
    low, high = int(used[0]), int(used[-1]) + 1
    trace = sampled.run.trace()
    threshold = np.full(len(sampled.record.steps), np.nan)
    if "document_threshold" in trace.column_names:
        place = np.clip(sampled.record.steps, 0, trace.num_rows - 1)
        threshold = trace["document_threshold"].to_numpy(zero_copy_only=False)[place].astype(np.float64)
    pairs = sampled.run.pairs()
    kept = pairs["kept"].to_numpy(zero_copy_only=False)
    cut = None
    if "cbs" not in pairs.column_names and not kept.all() and "similarity" in pairs.column_names:
        cut = float(pairs["similarity"].to_numpy()[kept].min())
    return {
        "edges": _rounded(BIN_EDGES[low : high + 1].tolist(), 4),
        "counts": counts[:, low:high].tolist(),
        "threshold": [None if np.isnan(value) else round(float(value), 4) for value in threshold],
        "kept_from": cut,
    }


def _same(other: pa.Table, table: pa.Table) -> bool:
    return all(other[name].equals(table[name]) for name in ("query_id", "doc_id"))


def _query_places(table: pa.Table, record: SamplingRecord) -> NDArray[np.int64]:
    """For each recorded pair, the place of its query; pairs are sorted by query, so a new id is the next query."""
    ids = table["query_id"].to_numpy(zero_copy_only=False)[record.pair_ids]
    return np.cumsum(np.concatenate([[False], ids[1:] != ids[:-1]]))


def _spread_out(count: int, most: int) -> NDArray[np.int64]:
    """Evenly spread places among ``count``, ``most`` of them at most."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _packed(codes: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")


def _rounded(values: Sequence[float], digits: int) -> list[float]:
    return [round(value, digits) for value in values]


SCALE = {"codes": CODES, "farthest": FARTHEST}
"""What the page needs to read the codes."""
