"""Results of the studies, which a stopped study reads again and adds to."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from documents import ROOT


def test_a_stopped_study_goes_on_with_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "reproduction" / "studies"), *sys.path])
    from study import Results

    path, key = tmp_path / "results.csv", ("method", "rate")
    first = Results(path, key)
    first.add({"method": "ft", "rate": 2e-5}, seconds=12.3456, queries=np.array([0.12345, 1.0]))
    first.add({"method": "base", "rate": 0}, seconds=None)
    second = Results(path, key)
    assert second.has({"method": "ft", "rate": 2e-5})
    assert not second.has({"method": "ft", "rate": 1e-5})
    second.add({"method": "dp", "rate": 2e-5}, seconds=3, queries=np.array([0.5, 0.5]))
    rows = Results(path, key).rows
    assert list(rows) == [("ft", 2e-5), ("base", 0), ("dp", 2e-5)]
    assert rows["ft", 2e-5]["seconds"] == 12.346
    assert rows["base", 0]["seconds"] is None
    np.testing.assert_allclose(rows["ft", 2e-5]["queries"], [0.1235, 1.0], rtol=1e-3)
