"""``opera evaluate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Opera
from opera.runs.folder import Run


def test_it_measures_a_run(run_opera: Opera, trained: Run, beir: Path, tmp_path: Path) -> None:
    evaluated = run_opera(
        "evaluate", beir, "--model", trained.path, "--split", "test", "--full", "--json", "--run-file", "out.trec"
    )
    result = json.loads(evaluated.stdout)
    assert result["measures"] == pytest.approx(json.loads((trained.path / "measures.json").read_text())["after"])
    assert result["queries"] == 16
    assert (tmp_path / "out.trec").read_text().startswith("test0 Q0 d")
    full = json.loads(run_opera("evaluate", beir, "--model", trained.path, "--full", "--json").stdout)["measures"]
    assert len(full) == 30
    assert "nDCG@100" in full
