"""Whether a finished run holds all that an analysis reads; one that does not is left out, and named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.terminal import shown
from opera.runs.folder import MEASURES_FILE, PAIRS_FILE, PER_QUERY_FILE, RUN_FILE, SAMPLING_FILE, TRACE_FILE, Run
from opera.runs.reading import broken, check_columns

MAX_STEPS = 10**12
"""More than any run has; sums of them stay exact."""


def check_run(run: Run, measures: Sequence[str] = ()) -> None:
    """Read every file of a finished run that analysis and report read, and check that they fit each other.

    Args:
        run: the run.
        measures: measures that must be there before and after training, and after it for each query.

    Raises:
        RunFolderError: naming the first file that is missing, damaged or not of this run.
    """
    _check_settings(run)
    for moment in ("before", "after", "fine_tuned"):
        for name in measures:
            if name not in run.measures[moment]:
                raise broken(run.path / MEASURES_FILE, f"{moment}: {name} is missing")
    queries, pairs, trace = run.per_query(), run.pairs(), run.trace()
    _check_columns(
        run.path / PER_QUERY_FILE,
        queries,
        _per_query_kinds(queries) | {f"after {name}": "measure" for name in measures},
    )
    kinds = {"doc_id": "text", "kept": "flag", "similarity": "measure", "cbs": "measure"}
    needed = {"doc_id": "text"} if "similarity" in pairs.column_names else {}
    _check_columns(
        run.path / PAIRS_FILE, pairs, needed | {name: kinds[name] for name in kinds if name in pairs.column_names}
    )
    drawn = pairs["times_drawn"].to_numpy()
    if (drawn < 0).any() or not drawn.any():
        raise broken(run.path / PAIRS_FILE, "column 'times_drawn' holds no counts")
    values = dict.fromkeys(set(trace.column_names) - {"step"}, "number")
    _check_columns(run.path / TRACE_FILE, trace, {**values, "seconds": "measure"})
    if (trace["seconds"].to_numpy() < 0).any():
        raise broken(run.path / TRACE_FILE, "column 'seconds' holds negative values")
    _check_sampling(run, pairs)


def _check_settings(run: Run) -> None:
    """Check the settings that results are grouped by."""
    record, place = run.record, run.path / RUN_FILE
    if record.training is None:
        raise broken(place, "training: is missing, though the run is finished")
    for values, rules in ((record.identity, {"method": str}), (record.settings, {"method": str, "max_steps": int})):
        for name, kind in rules.items():
            if type(values.get(name)) is not kind:
                raise broken(place, f"{name}: must be a {'name' if kind is str else 'whole number'}")
    steps: dict[str, Any] = {
        "settings.max_steps": record.settings["max_steps"],
        "training.steps": record.training.steps,
        "identity.max_steps": record.identity.get("max_steps", ""),
    }
    for name, value in steps.items():
        optional = name.startswith("identity") and value is None
        if not optional and not (isinstance(value, int) and 1 <= value <= MAX_STEPS):
            raise broken(place, f"{name}: must be a number of steps, got {shown(value)}")
    if record.guard is not None and record.guard.share not in {point.share for point in record.guard.curve}:
        raise broken(place, "guard.share: was not tried")
    if record.training.evaluations and not isinstance(record.settings.get("metric_for_best_model"), str):
        raise broken(place, "settings.metric_for_best_model: is missing, though the run was evaluated")


def _per_query_kinds(table: pa.Table) -> dict[str, str]:
    kinds = {"before documents": "texts", "after documents": "texts", "relevant": "texts", "similarity": "measure"}
    measures = [name for name in table.column_names if name.split(" ")[0] in ("before", "after", "fine_tuned")]
    found = dict.fromkeys(measures, "measure") | {name: kinds[name] for name in kinds if name in table.column_names}
    documents = [name for name in measures if name.endswith(" documents")]
    return found | dict.fromkeys(documents, "texts")


def _check_columns(path: Path, table: pa.Table, kinds: dict[str, str]) -> None:
    if table.num_rows == 0:
        raise broken(path, "has no rows")
    check_columns(path, table, kinds)


def _check_sampling(run: Run, pairs: pa.Table) -> None:
    """Check that the recorded probabilities are of these pairs."""
    record, place = run.sampling(), run.path / SAMPLING_FILE
    if record is None or len(record.steps) == 0:
        return
    ids = record.pair_ids
    if len(ids) == 0 or (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= pairs.num_rows:
        raise broken(place, "its pairs are not those of the run")
    queries = pairs["query_id"].to_numpy(zero_copy_only=False)[ids]
    if 1 + int((queries[1:] != queries[:-1]).sum()) != len(record.query_ids):
        raise broken(place, "its queries are not those of the run")
    if record.similarity.shape[1]:
        check_columns(run.path / PAIRS_FILE, pairs, {"kept": "flag"})
        if not record.similarity.any():
            raise broken(place, "its histogram is empty")
