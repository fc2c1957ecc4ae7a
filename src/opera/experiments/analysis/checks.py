"""Whether a finished run holds all that an analysis reads; one that does not is left out, and named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.core.terminal import shown
from opera.runs.folder import (
    MEASURES_FILE,
    PAIRS_FILE,
    PER_QUERY_FILE,
    RUN_FILE,
    SAMPLING_FILE,
    TRACE_FILE,
    Run,
)
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
    values = [
        name
        for name in queries.column_names
        if name.split(" ")[0] in ("before", "after", "fine_tuned")
    ]
    measured = [
        name
        for name in (*values, "similarity")
        if name in queries.column_names and "documents" not in name
    ]
    needed = [*measured, *(f"after {name}" for name in measures)]
    _check_columns(run.path / PER_QUERY_FILE, queries, dict.fromkeys(needed, "measure"))
    with_similarity = (
        {"doc_id": "text", "similarity": "measure"} if "similarity" in pairs.column_names else {}
    )
    _check_columns(run.path / PAIRS_FILE, pairs, with_similarity)
    drawn = pairs["times_drawn"].to_numpy()
    if (drawn < 0).any() or not drawn.any():
        raise broken(run.path / PAIRS_FILE, "column 'times_drawn' holds no counts")
    _check_columns(run.path / TRACE_FILE, trace, {"seconds": "measure"})
    if (trace["seconds"].to_numpy() < 0).any():
        raise broken(run.path / TRACE_FILE, "column 'seconds' holds negative values")
    _check_sampling(run, pairs)


def _check_settings(run: Run) -> None:
    """Check the settings that results are grouped by."""
    record, place = run.record, run.path / RUN_FILE
    if record.training is None:
        raise broken(place, "training: is missing, though the run is finished")
    for values, rules in (
        (record.identity, {"method": str}),
        (record.settings, {"method": str, "max_steps": int}),
    ):
        for name, kind in rules.items():
            if type(values.get(name)) is not kind:
                raise broken(
                    place, f"{name}: must be a {'name' if kind is str else 'whole number'}"
                )
    steps: dict[str, Any] = {
        "settings.max_steps": record.settings["max_steps"],
        "training.steps": record.training.steps,
        "identity.max_steps": record.identity.get("max_steps", ""),
    }
    for name, value in steps.items():
        optional = name.startswith("identity") and value is None
        if not optional and not (isinstance(value, int) and 1 <= value <= MAX_STEPS):
            raise broken(place, f"{name}: must be a number of steps, got {shown(value)}")
    if record.guard is not None and record.guard.share not in {
        point.share for point in record.guard.curve
    }:
        raise broken(place, "guard.share: was not tried")


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
