"""A folder of made-up runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from grids import RunsFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")
