"""A folder of made-up runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from grids import PaperRuns


@pytest.fixture
def folder(tmp_path: Path) -> PaperRuns:
    return PaperRuns(tmp_path / "grid")
