"""Which test queries the explorer shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opera.experiments.analysis import find_groups
from opera.experiments.report.explorer import explorer_data


def test_of_many_queries_those_that_changed_most_are_shown(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opera.experiments.report.explorer.MAX_QUERIES", 4)
    (group,) = [group for group in find_groups(grid / "dp") if group.steps == 16]
    shown = [query["id"] for query in explorer_data([group], None)["queries"]]
    names, moved = [], []
    for table in group.query_tables:
        names += table["query_id"].to_pylist()
        moved.append(table["after nDCG@10"].to_numpy() - table["before nDCG@10"].to_numpy())
    changes = np.abs(np.mean(moved, axis=0))
    assert len(shown) == 4
    assert min(changes[names.index(name)] for name in shown) >= np.sort(changes)[-4] - 1e-9
