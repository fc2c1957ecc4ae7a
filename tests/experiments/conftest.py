"""A folder of made-up runs."""

import pytest

from grids import RunsFolder


@pytest.fixture
def folder(tmp_path) -> RunsFolder:
    return RunsFolder(tmp_path / "runs")
